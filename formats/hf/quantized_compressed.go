package hf

import (
	"encoding/binary"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/pyjson"
	"github.com/nstf/nstf/formats/tensor"
)

// compressed-tensors (llm-compressor). What a module's tensors are says their
// types and names, so targets and ignore lists need no matching; the
// configuration says which bits, groups and blocks may occur. For W[N][K] in
// groups of G:
//
//	pack-quantized     weight_packed i32 [N][ceil(K*bits/32)]   code + 2^(bits-1), along K
//	                   weight_zero_point i32 [ceil(N*bits/32)][K/G], likewise along N; optional
//	                   weight_shape i64 [2], weight_scale [N][K/G], weight_g_idx i32 [K] optional
//	int-quantized      weight i8 [N][K], weight_scale, weight_zero_point i8; optional
//	float-quantized    weight f8_e4m3, weight_scale: see joinFP8
//	naive-quantized    either of the two before
//	mxfp4-pack-quantized  weight_packed u8 [N][K/2], weight_scale u8 [N][K/32]
//	nvfp4-pack-quantized  with weight_global_scale too: see joinModelOpt
//
//	w = scale * (code - zero)
//
// Source: compressed_tensors' compressors and quantization/quant_args.py.
func (j *joiner) joinCompressed() error {
	c, err := j.compressedConfig()
	if err != nil {
		return err
	}
	err = j.each(".weight_packed", func(i int, base string) error {
		t := &j.in[i]
		if global := j.find(base + ".weight_global_scale"); global != nil {
			return j.putNVFP4(i, base, global, true)
		}
		if t.Parts[0].DType == tensor.U8 {
			return j.compressedMXFP4(i, base)
		}
		return j.compressedPacked(i, base, c)
	})
	if err != nil {
		return err
	}
	err = j.each(".weight", func(i int, base string) error {
		if j.in[i].Parts[0].DType != tensor.I8 {
			return nil
		}
		return j.compressedInt8(i, base, c)
	})
	if err != nil {
		return err
	}
	return j.joinScaledFP8(c.block)
}

// A compressed is what config_groups say: the bits, group sizes and the block
// that occur in any of them.
type compressed struct {
	bits, groups []int64
	block        []int64
}

// compressedFormats are the values of format that are read.
var compressedFormats = []string{"dense", "pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
	"mxfp4-pack-quantized", "nvfp4-pack-quantized", "mixed-precision"}

func (j *joiner) compressedConfig() (*compressed, error) {
	c := &compressed{}
	if err := j.checkFormat(j.q); err != nil {
		return nil, err
	}
	if s, ok := j.q.Sub("sparsity_config"); ok {
		if format, err := s.StringOr("format", "dense"); err != nil || format != "dense" {
			return nil, orUnsupported(err, s.file, s.path+"format", "compressed-tensors with the sparsity format %q", format)
		}
	}
	if t, ok := j.q.Sub("transform_config"); ok {
		if groups, ok := t.Sub("config_groups"); ok && len(groups.Keys()) > 0 {
			return nil, formats.Unsupportedf(t.file, t.path+"config_groups", "compressed-tensors with transforms of weights")
		}
	}
	groups, ok := j.q.Sub("config_groups")
	if !ok {
		return nil, formats.Errorf(j.q.file, j.q.path+"config_groups", "required key is missing")
	}
	for _, name := range groups.Keys() {
		g, ok := groups.Sub(name)
		if !ok {
			v, _ := groups.Get(name)
			return nil, formats.Unsupportedf(groups.file, groups.path+name, "a group that is %s, not an object", pyjson.Kind(v))
		}
		if err := c.addGroup(j, g); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// orUnsupported returns err, or the UnsupportedError where it is nil.
func orUnsupported(err error, file, key, format string, args ...any) error {
	if err != nil {
		return err
	}
	return formats.Unsupportedf(file, key, format, args...)
}

// checkFormat refuses a format that is not read.
func (j *joiner) checkFormat(c *Config) error {
	format, err := c.StringOr("format", "dense")
	if err != nil || slices.Contains(compressedFormats, format) {
		return err
	}
	return formats.Unsupportedf(c.file, c.path+"format", "compressed-tensors in the format %q", format)
}

func (c *compressed) addGroup(j *joiner, g *Config) error {
	if err := j.checkFormat(g); err != nil {
		return err
	}
	w, ok := g.Sub("weights")
	if !ok {
		return nil // activations only
	}
	bits, err := w.Int("num_bits")
	if err != nil {
		return err
	}
	group, err := w.IntOr("group_size", -1)
	if err != nil {
		return err
	}
	block, err := j.blockSize(w, "block_structure")
	if err != nil {
		return err
	}
	c.bits, c.groups = append(c.bits, bits), append(c.groups, group)
	if block != nil {
		if c.block != nil && !slices.Equal(c.block, block) {
			return formats.Unsupportedf(w.file, w.path+"block_structure", "blocks of %v beside blocks of %v", block, c.block)
		}
		c.block = block
	}
	return nil
}

// group returns the columns of a group where there are that many groups in a
// row of k.
func (c *compressed) group(k, groups int64) (int64, bool) {
	if groups == 1 {
		return k, true
	}
	for _, g := range c.groups {
		if g > 0 && ceilDiv(k, g) == groups {
			return g, true
		}
	}
	return 0, false
}

// compressedScales takes weight_scale, which settles the group.
func (j *joiner) compressedScales(m *affineMatrix, base, of string, c *compressed) error {
	t, err := j.need(base+".weight_scale", of)
	if err != nil {
		return err
	}
	m.scaleType, m.scales = t.Parts[0].DType, t.Parts[0].Data
	groups := int64(1)
	if len(t.Shape) == 2 {
		groups = t.Shape[1]
	}
	var ok bool
	if m.group, ok = c.group(m.k, groups); !ok || !isScale(m.scaleType) || len(t.Shape) > 2 {
		return j.wrongShape(t, "f16, bf16 or f32 [%d, groups of %v]", m.n, c.groups)
	}
	switch t.Elements() {
	case m.n * groups:
	case 1: // of the whole tensor
		one := m.scales
		all := make([]tensor.Blob, m.n)
		for i := range all {
			all[i] = one
		}
		m.scales = tensor.Concat(all...)
	default:
		return j.wrongShape(t, "[%d, %d]", m.n, groups)
	}
	return nil
}

// compressedPacked joins pack-quantized tensors. Words along K with 4 or 8
// bits are our codes already; only a row's padding is cut.
func (j *joiner) compressedPacked(i int, base string, c *compressed) error {
	t := &j.in[i]
	m := &affineMatrix{name: base + ".weight"}
	if err := j.packedShape(m, t, base, c); err != nil {
		return err
	}
	if err := j.compressedScales(m, base, t.Name, c); err != nil {
		return err
	}
	rowBytes, stored := ceilDiv(m.k*m.bits, 8), t.Shape[1]*4
	m.codes = t.Parts[0].Data
	if rowBytes != stored {
		m.codes = repacked(m.n, rowBytes, 1, func(from, to int64) ([]byte, error) {
			in, err := readAll(t.Parts[0].Data.Slice(from*stored, (to-from)*stored))
			out := make([]byte, 0, (to-from)*rowBytes)
			for ; len(in) > 0; in = in[stored:] {
				out = append(out, in[:rowBytes]...)
			}
			return out, err
		})
	}
	if z := j.find(base + ".weight_zero_point"); z != nil {
		groups, words := m.groups(), ceilDiv(m.n, 32/m.bits)
		if len(z.Shape) != 2 || z.Shape[0] != words || z.Shape[1] != groups || z.Parts[0].DType != tensor.I32 {
			return j.wrongShape(z, "i32 [%d, %d]", words, groups)
		}
		m.zeroType, m.zeros = tensor.U8, compressedZeros(z.Parts[0].Data, m.n, groups, m.bits)
	}
	if g := j.find(base + ".weight_g_idx"); g != nil {
		var err error
		if m.index, err = j.groupIndex(g, m); err != nil {
			return err
		}
	}
	return j.put(i, m.tensor())
}

// packedShape reads weight_shape and finds the bits that fit it.
func (j *joiner) packedShape(m *affineMatrix, t *formats.Tensor, base string, c *compressed) error {
	s, err := j.need(base+".weight_shape", t.Name)
	if err != nil {
		return err
	}
	if d := s.Parts[0].DType; d != tensor.I64 && d != tensor.I32 || len(s.Shape) != 1 || s.Shape[0] != 2 {
		return j.wrongShape(s, "i64 [2]")
	}
	p, err := readAll(s.Parts[0].Data)
	if err != nil {
		return err
	}
	if s.Parts[0].DType == tensor.I64 {
		m.n, m.k = int64(binary.LittleEndian.Uint64(p)), int64(binary.LittleEndian.Uint64(p[8:]))
	} else {
		m.n, m.k = int64(int32(binary.LittleEndian.Uint32(p))), int64(int32(binary.LittleEndian.Uint32(p[4:])))
	}
	if len(t.Shape) != 2 || t.Parts[0].DType != tensor.I32 || t.Shape[0] != m.n || m.k < 1 || m.k > 1<<40 {
		return j.wrongShape(t, "i32 [%d, words of %d codes]", m.n, m.k)
	}
	for _, bits := range c.bits {
		if (bits == 4 || bits == 8) && ceilDiv(m.k, 32/bits) == t.Shape[1] {
			m.bits = bits
			return nil
		}
	}
	return formats.Unsupportedf(j.dir, t.Name, "%d words for %d codes with one of %v bits (4 and 8 are read)", t.Shape[1], m.k, c.bits)
}

// compressedZeros unpacks zero points [ceil(N*bits/32)][groups], words along
// N, into [N][groups].
func compressedZeros(b tensor.Blob, n, groups, bits int64) tensor.Blob {
	return tensor.Computed(n*groups, func() ([]byte, error) {
		in, err := readAll(b)
		if err != nil {
			return nil, err
		}
		out := make([]byte, n*groups)
		per := 32 / bits
		for i := range n {
			for g := range groups {
				v := binary.LittleEndian.Uint32(in[4*(i/per*groups+g):])
				out[i*groups+g] = byte(v >> (i % per * bits) & (1<<bits - 1))
			}
		}
		return out, nil
	})
}

// compressedInt8 joins int8 codes: ours are without a sign, so 128 is added
// to codes and zero points.
func (j *joiner) compressedInt8(i int, base string, c *compressed) error {
	t := &j.in[i]
	if len(t.Shape) != 2 || t.Shape[1] == 0 {
		return j.wrongShape(t, "i8 [N, K]")
	}
	m := &affineMatrix{name: t.Name, n: t.Shape[0], k: t.Shape[1], bits: 8}
	if err := j.compressedScales(m, base, t.Name, c); err != nil {
		return err
	}
	m.codes = unsigned(t.Parts[0].Data, m.n, m.k)
	if z := j.find(base + ".weight_zero_point"); z != nil {
		if z.Parts[0].DType != tensor.I8 || z.Elements() != m.n*m.groups() {
			return j.wrongShape(z, "i8 [%d, %d]", m.n, m.groups())
		}
		m.zeroType, m.zeros = tensor.U8, unsigned(z.Parts[0].Data, m.n, m.groups())
	}
	return j.put(i, m.tensor())
}

// unsigned adds 128 to int8 numbers.
func unsigned(b tensor.Blob, rows, cols int64) tensor.Blob {
	return repacked(rows, cols, 1, func(from, to int64) ([]byte, error) {
		p, err := readAll(b.Slice(from*cols, (to-from)*cols))
		for i := range p {
			p[i] ^= 0x80
		}
		return p, err
	})
}

func (j *joiner) compressedMXFP4(i int, base string) error {
	t := &j.in[i]
	scales, err := j.need(base+".weight_scale", t.Name)
	if err != nil {
		return err
	}
	if len(t.Shape) < 2 {
		return j.wrongShape(t, "u8 [N, K/2]")
	}
	shape := slices.Clone(t.Shape)
	shape[len(shape)-1] *= 2
	return j.putMXFP4(i, base+".weight", shape, t, scales)
}
