package scheme

import (
	"bytes"
	"math"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// nf4 is the layout of bitsandbytes: 4-bit codes of 16 levels that the tensor
// carries, and a largest magnitude for each block of weights. Blocks run over
// the flattened tensor, not over rows, and the first weight of a byte is in
// its high nibble.
//
//	w = level[q] * absmax
//
// Parameters: "block", the weights of a block, even; "nested", absent or 0
// where the magnitudes are float32, or else the blocks that share a second
// magnitude, when
//
//	absmax = nested_level[code]*nested_absmax + offset
type nf4 struct{}

func (nf4) params(s *Scheme, g geometry) (block, nested int64, err error) {
	if err = knownParams(s, g, "block", "nested"); err != nil {
		return
	}
	if block, err = param(s, g, "block", 2, 1<<20); err != nil {
		return
	}
	if block%2 != 0 {
		return 0, 0, formats.Errorf("", "", "%s: parameter %q is %d, which is odd", s.Name, "block", block)
	}
	if g.params["nested"] != 0 {
		nested, err = param(s, g, "nested", 1, 1<<20)
	}
	return
}

func (f nf4) parts(s *Scheme, g geometry) ([]PartSpec, error) {
	block, nested, err := f.params(s, g)
	if err != nil {
		return nil, err
	}
	n, err := tensor.Elements(g.shape)
	if err != nil {
		return nil, formats.Errorf("", "", "%v", err)
	}
	blocks := ceilDiv(n, block)
	rows := []partRow{
		{"codes", tensor.U8, []int64{ceilDiv(n, 2)}},
		{"levels", tensor.F32, []int64{16}},
	}
	if nested == 0 {
		rows = append(rows, partRow{"absmax", tensor.F32, []int64{blocks}})
	} else {
		rows = append(rows,
			partRow{"absmax", tensor.U8, []int64{blocks}},
			partRow{"nested_absmax", tensor.F32, []int64{ceilDiv(blocks, nested)}},
			partRow{"nested_levels", tensor.F32, []int64{256}},
			partRow{"offset", tensor.F32, []int64{1}})
	}
	return specs(rows...)
}

type nf4Rows struct {
	codes  []byte
	levels [16]float32
	block  int64
	absmax nf4Absmax
}

// nf4Absmax yields the magnitude of a block.
type nf4Absmax struct {
	data   []byte // f32, or codes where nested
	nested int64
	second []byte
	levels []float32
	offset float32
}

func (a *nf4Absmax) at(block int64) float32 {
	if a.nested == 0 {
		return math.Float32frombits(le.Uint32(a.data[4*block:]))
	}
	second := math.Float32frombits(le.Uint32(a.second[block/a.nested*4:]))
	return float32(a.levels[a.data[block]]*second) + a.offset
}

func newNF4Absmax(nested int64, parts [][]byte) (a nf4Absmax, err error) {
	a = nf4Absmax{data: parts[0], nested: nested}
	if nested > 0 {
		a.second = parts[1]
		a.levels = make([]float32, 256)
		err = tensor.ToFloat32(a.levels, parts[2], tensor.F32)
		a.offset = math.Float32frombits(le.Uint32(parts[3]))
	}
	return a, err
}

func (f nf4) open(s *Scheme, g geometry, data [][]byte) (rowDecoder, error) {
	block, nested, err := f.params(s, g)
	if err != nil {
		return nil, err
	}
	r := &nf4Rows{codes: data[0], block: block}
	if err := tensor.ToFloat32(r.levels[:], data[1], tensor.F32); err != nil {
		return nil, err
	}
	r.absmax, err = newNF4Absmax(nested, data[2:])
	return r, err
}

func (r *nf4Rows) decodeRow(dst []float32, row int64) {
	at := row * int64(len(dst))
	for len(dst) > 0 {
		n := min(int64(len(dst)), r.block-at%r.block)
		absmax := r.absmax.at(at / r.block)
		y := dst[:n]
		for j := range y {
			i := at + int64(j)
			q := r.codes[i>>1] >> (4 * (^i & 1)) & 15
			y[j] = r.levels[q] * absmax
		}
		dst, at = dst[n:], at+n
	}
}

// resolve returns the magnitudes as float32, computed from nested ones when
// they are read; decoding gives the same bits.
func (nf4) resolve(t *formats.Tensor) tensor.Blob {
	nested := t.Params["nested"]
	if nested == 0 {
		return t.Parts[2].Data
	}
	blocks := t.Parts[2].Data.Len()
	parts := t.Parts[2:]
	return tensor.Computed(4*blocks, func() ([]byte, error) {
		var raw [][]byte
		for _, p := range parts {
			b := make([]byte, p.Data.Len())
			if _, err := p.Data.ReadAt(b, 0); err != nil {
				return nil, err
			}
			raw = append(raw, b)
		}
		a, err := newNF4Absmax(nested, raw)
		if err != nil {
			return nil, err
		}
		out := make([]byte, 4*blocks)
		for i := range blocks {
			le.PutUint32(out[4*i:], math.Float32bits(a.at(i)))
		}
		return out, nil
	})
}

// flat returns pieces with resolved magnitudes.
func (nf4) flat(t *formats.Tensor, codes, absmax tensor.Blob) (pieces, error) {
	return pieces{
		params: map[string]int64{"block": t.Params["block"]},
		data:   []tensor.Blob{codes, t.Parts[1].Data, absmax},
	}, nil
}

func (f nf4) slice(t *formats.Tensor, s *Scheme, row, n int64) (pieces, error) {
	_, k := t.Rows()
	block, nested := t.Params["block"], t.Params["nested"]
	from, size := row*k, n*k
	if from%block != 0 {
		return pieces{}, formats.Unsupportedf("", "", "cutting %s at weight %d, inside a block of %d", s.Name, from, block)
	}
	first, count := from/block, ceilDiv(size, block)
	codes := t.Parts[0].Data.Slice(from/2, ceilDiv(size, 2))
	if nested == 0 || first%nested != 0 {
		return f.flat(t, codes, f.resolve(t).Slice(4*first, 4*count))
	}
	return pieces{params: t.Params, data: []tensor.Blob{
		codes, t.Parts[1].Data, t.Parts[2].Data.Slice(first, count),
		t.Parts[3].Data.Slice(4*(first/nested), 4*ceilDiv(count, nested)),
		t.Parts[4].Data, t.Parts[5].Data}}, nil
}

func (f nf4) pick(t *formats.Tensor, s *Scheme, index []int64) (pieces, error) {
	_, k := t.Rows()
	block := t.Params["block"]
	if k%block != 0 {
		return pieces{}, formats.Unsupportedf("", "", "reordering rows of %d weights of %s, whose blocks of %d cross rows", k, s.Name, block)
	}
	return f.flat(t, pickRows(t.Parts[0].Data, k/2, index), pickRows(f.resolve(t), k/block*4, index))
}

func (f nf4) concat(ts []*formats.Tensor, s *Scheme) (pieces, error) {
	if len(ts) == 1 {
		p := pieces{params: ts[0].Params}
		for _, part := range ts[0].Parts {
			p.data = append(p.data, part.Data)
		}
		return p, nil
	}
	block := ts[0].Params["block"]
	levels, err := ts[0].Parts[1].Data.Bytes()
	if err != nil {
		return pieces{}, err
	}
	absmax := make([]tensor.Blob, len(ts))
	for i, t := range ts {
		other, err := t.Parts[1].Data.Bytes()
		if err != nil {
			return pieces{}, err
		}
		if t.Params["block"] != block || !bytes.Equal(levels, other) {
			return pieces{}, formats.Unsupportedf("", "", "joining %s of different blocks or levels", s.Name)
		}
		if i+1 < len(ts) && t.Elements()%block != 0 {
			return pieces{}, formats.Unsupportedf("", "", "joining %s after %d weights, inside a block of %d", s.Name, t.Elements(), block)
		}
		absmax[i] = f.resolve(t)
	}
	return f.flat(ts[0], joinPart(ts, 0), tensor.Concat(absmax...))
}
