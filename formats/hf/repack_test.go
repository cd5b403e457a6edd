package hf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// stored makes a plain tensor as safetensors gives it.
func stored(name string, d tensor.DType, data []byte, shape ...int64) formats.Tensor {
	return formats.Tensor{Name: name, Shape: shape, Scheme: d.String(),
		Parts: []formats.Part{{Name: "data", DType: d, Shape: shape, Data: tensor.BytesBlob(data)}}}
}

func f32(values ...float32) []byte { return float32Bytes(values) }

func i32(values ...uint32) []byte {
	var out []byte
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, v)
	}
	return out
}

// join runs what Open does behind reading the files.
func join(t *testing.T, quantization string, tensors ...formats.Tensor) ([]formats.Tensor, error) {
	t.Helper()
	d := &Dir{path: "dir", config: config(t, `{"quantization_config": `+quantization+`}`), tensors: tensors}
	err := d.joinQuantized()
	return d.tensors, err
}

// decode joins tensors that make one matrix and decodes it.
func decode(t *testing.T, quantization string, tensors ...formats.Tensor) (*scheme.Matrix, func(row int64) []float32) {
	t.Helper()
	out, err := join(t, quantization, tensors...)
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != 1 || out[0].Name != "m.weight" {
		t.Fatalf("%v", out)
	}
	m, err := scheme.Open(&out[0])
	if err != nil {
		t.Fatal(err)
	}
	row := make([]float32, m.K)
	return m, func(r int64) []float32 { m.DecodeRow(row, r); return row }
}

// codes returns random numbers below 2^bits.
func codes(r *rand.Rand, n, bits int64) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = r.Uint32N(1 << bits)
	}
	return out
}

// stream packs codes into words without gaps, the first in the lowest bits.
func stream(codes []uint32, bits int64) []uint32 {
	out := make([]uint32, int64(len(codes))*bits/32)
	for i, c := range codes {
		for b := range bits {
			at := int64(i)*bits + b
			out[at/32] |= c >> b & 1 << (at % 32)
		}
	}
	return out
}

// TestGPTQ packs random matrices bit by bit, large enough for several chunks.
func TestGPTQ(t *testing.T) {
	for _, c := range []struct {
		n, k, bits, group int64
		v2, order         bool
	}{
		{4096, 2304, 4, 128, false, false}, {64, 96, 2, 32, true, false}, {64, 96, 3, 32, false, false},
		{64, 96, 3, 96, false, true}, {32, 64, 8, 64, false, false}, {32, 64, 8, 32, true, true}, {64, 64, 4, 32, false, true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(c.k), uint64(c.bits)))
			groups, plus := c.k/c.group, uint32(1)
			format := "gptq"
			if c.v2 {
				format, plus = "gptq_v2", 0
			}
			q := codes(r, c.n*c.k, c.bits) // [N][K]
			qweight := make([]uint32, c.k*c.bits/32*c.n)
			for i := range c.n {
				for w, v := range stream(q[i*c.k:(i+1)*c.k], c.bits) {
					qweight[int64(w)*c.n+i] = v
				}
			}
			z := codes(r, groups*c.n, c.bits) // [G][N]
			var qzeros []uint32
			for g := range groups {
				qzeros = append(qzeros, stream(z[g*c.n:(g+1)*c.n], c.bits)...)
			}
			scales := make([]float32, groups*c.n)
			for i := range scales {
				scales[i] = r.Float32()
			}
			index := make([]uint32, c.k)
			for i := range index {
				index[i] = uint32(int64(i) / c.group)
			}
			if c.order {
				r.Shuffle(len(index), func(a, b int) { index[a], index[b] = index[b], index[a] })
			}
			m, row := decode(t, fmt.Sprintf(`{"quant_method": "gptq", "bits": %d, "group_size": %d, "checkpoint_format": %q}`, c.bits, c.group, format),
				stored("m.qweight", tensor.I32, i32(qweight...), c.k*c.bits/32, c.n),
				stored("m.qzeros", tensor.I32, i32(qzeros...), groups, c.n*c.bits/32),
				stored("m.scales", tensor.F32, f32(scales...), groups, c.n),
				stored("m.g_idx", tensor.I32, i32(index...), c.k))
			if reordered := m.Params["index"] != 0; reordered != (c.order && groups > 1) {
				t.Errorf("index %d", m.Params["index"])
			}
			for i := range c.n {
				for k, v := range row(i) {
					g := int64(index[k])
					want := scales[g*c.n+i] * float32(int64(q[i*c.k+int64(k)])-int64(z[g*c.n+i]+plus))
					if v != want {
						t.Fatalf("weight [%d][%d] is %v, want %v", i, k, v, want)
					}
				}
			}
		})
	}
}

func TestAWQ(t *testing.T) {
	const n, k, group = 4104, 2176, 128
	r := rand.New(rand.NewPCG(1, 2))
	order := []int64{0, 2, 4, 6, 1, 3, 5, 7}
	pack := func(q []uint32, rows int64) []uint32 { // q is [rows][n]
		out := make([]uint32, rows*n/8)
		for i := range out {
			for nibble, column := range order {
				out[i] |= q[int64(i)*8+column] << (4 * nibble)
			}
		}
		return out
	}
	q, z := codes(r, k*n, 4), codes(r, k/group*n, 4)
	scales := make([]float32, k/group*n)
	for i := range scales {
		scales[i] = r.Float32()
	}
	_, row := decode(t, `{"quant_method": "awq", "w_bit": 4, "q_group_size": 128, "version": "GEMM"}`,
		stored("m.qweight", tensor.I32, i32(pack(q, k)...), k, n/8),
		stored("m.qzeros", tensor.I32, i32(pack(z, k/group)...), k/group, n/8),
		stored("m.scales", tensor.F32, f32(scales...), k/group, n))
	for i := int64(0); i < n; i++ {
		for c, v := range row(i) {
			at := int64(c)/group*n + i
			if want := scales[at] * float32(int64(q[int64(c)*n+i])-int64(z[at])); v != want {
				t.Fatalf("weight [%d][%d] is %v, want %v", i, c, v, want)
			}
		}
	}
}

const ct = `{"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"g":
	{"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 4}}}}`

// TestCompressedPadding has rows and columns that do not fill words, zero
// points and reordered columns.
func TestCompressedPadding(t *testing.T) {
	const n, k, groups = 9, 11, 3
	r := rand.New(rand.NewPCG(3, 4))
	q, z := codes(r, n*k, 4), codes(r, n*groups, 4)
	words, zeros := make([]uint32, n*2), make([]uint32, 2*groups)
	for i := range int64(n) {
		for c := range int64(k) {
			words[i*2+c/8] |= q[i*k+c] << (c % 8 * 4)
		}
		for g := range int64(groups) {
			zeros[i/8*groups+g] |= z[i*groups+g] << (i % 8 * 4)
		}
	}
	scales := make([]float32, n*groups)
	for i := range scales {
		scales[i] = r.Float32()
	}
	index := []uint32{2, 0, 0, 1, 1, 2, 0, 1, 2, 0, 1}
	shape := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, n), k)
	_, row := decode(t, ct,
		stored("m.weight_packed", tensor.I32, i32(words...), n, 2), stored("m.weight_shape", tensor.I64, shape, 2),
		stored("m.weight_scale", tensor.F32, f32(scales...), n, groups),
		stored("m.weight_zero_point", tensor.I32, i32(zeros...), 2, groups),
		stored("m.weight_g_idx", tensor.I32, i32(index...), k))
	for i := range int64(n) {
		for c, v := range row(i) {
			at := i*groups + int64(index[c])
			if want := scales[at] * float32(int64(q[i*k+int64(c)])-int64(z[at])); v != want {
				t.Fatalf("weight [%d][%d] is %v, want %v", i, c, v, want)
			}
		}
	}
}

// TestCompressedInt8 has one scale for all rows, and zero points by group.
func TestCompressedInt8(t *testing.T) {
	q := []byte{0x80, 0xFF, 0, 1, 127, 3, 2, 0xFE}
	for _, c := range []struct {
		scale, zero formats.Tensor
		want        []float32
	}{
		{stored("m.weight_scale", tensor.F32, f32(0.5), 1), formats.Tensor{}, []float32{-64, -0.5, 0, 0.5, 63.5, 1.5, 1, -1}},
		{stored("m.weight_scale", tensor.F32, f32(0.5, 2), 2, 1), stored("m.weight_zero_point", tensor.I8, []byte{0xFF, 2}, 2, 1),
			[]float32{-63.5, 0, 0.5, 1, 250, 2, 0, -8}},
	} {
		in := []formats.Tensor{stored("m.weight", tensor.I8, q, 2, 4), c.scale}
		if c.zero.Name != "" {
			in = append(in, c.zero)
		}
		_, row := decode(t, strings.Replace(strings.Replace(ct, "pack", "int", 1), `"num_bits": 4, "group_size": 4`, `"num_bits": 8`, 1), in...)
		for i := range int64(2) {
			for k, v := range row(i) {
				if v != c.want[i*4+int64(k)] {
					t.Errorf("[%d][%d] is %v, want %v", i, k, v, c.want[i*4+int64(k)])
				}
			}
		}
	}
}

// TestFP8Scales holds every way in which scales may belong to weights.
func TestFP8Scales(t *testing.T) {
	const fp8 = `{"quant_method": "fp8", "weight_block_size": [2, 3]}`
	for _, c := range []struct {
		shape, scale []int64
		rows, cols   int64
	}{
		{[]int64{4, 6}, []int64{}, 4, 6}, {[]int64{4, 6}, []int64{1}, 4, 6}, {[]int64{4, 6}, []int64{4}, 1, 6},
		{[]int64{4, 6}, []int64{4, 1}, 1, 6}, {[]int64{4, 6}, []int64{2, 2}, 2, 3}, {[]int64{3, 4}, []int64{2, 2}, 2, 3},
		{[]int64{2, 4, 6}, []int64{2}, 4, 6}, {[]int64{2, 4, 6}, []int64{2, 1, 1}, 4, 6}, {[]int64{2, 4, 6}, []int64{2, 4, 1}, 1, 6},
		{[]int64{2, 4, 6}, []int64{2, 2, 2}, 2, 3}, {[]int64{1, 3, 4}, []int64{1, 2, 2}, 2, 3},
	} {
		n, _ := (&formats.Tensor{Shape: c.shape}).Rows()
		elements := (&formats.Tensor{Shape: c.shape}).Elements()
		scales := (&formats.Tensor{Shape: c.scale}).Elements()
		m, row := decode(t, fp8, stored("m.weight", tensor.F8E4M3, []byte(strings.Repeat("\x38", int(elements))), c.shape...),
			stored("m.weight_scale_inv", tensor.F8E8M0, []byte("\x7f\x80\x81\x82\x83\x84\x85\x86")[:scales], c.scale...))
		if m.Params["rows"] != c.rows || m.Params["cols"] != c.cols {
			t.Errorf("%v with scales %v: %v", c.shape, c.scale, m.Params)
		}
		wide := ceilDiv(m.K, c.cols)
		for i := range n {
			for k, v := range row(i) { // 0x38 is 1, 0x7f+x is 2^x
				if want := float32(math.Ldexp(1, int(i/c.rows*wide+int64(k)/c.cols))); v != want {
					t.Errorf("%v with scales %v: [%d][%d] is %v, want %v", c.shape, c.scale, i, k, v, want)
				}
			}
		}
	}
}

var badGroups = []struct {
	name, config string
	tensors      []formats.Tensor
	unsupported  bool
	say          string
}{
	{"method unknown", `{"quant_method": "hqq"}`, nil, true, `quantized by "hqq"`},
	{"method missing", `{"bits": 4}`, nil, false, "quant_method"},
	{"gptq bits", `{"quant_method": "gptq", "bits": 5, "group_size": 2}`, gptq(), true, "5 bits"},
	{"gptq bits missing", `{"quant_method": "gptq", "group_size": 2}`, gptq(), false, `bits": required`},
	{"gptq marlin", `{"quant_method": "gptq", "bits": 4, "group_size": 8, "is_marlin_format": true}`, gptq(), true, `"marlin"`},
	{"gptq group 0", `{"quant_method": "gptq", "bits": 4, "group_size": 0}`, gptq(), false, "groups of 0"},
	{"gptq group wrong", `{"quant_method": "gptq", "bits": 4, "group_size": 4}`, gptq(), false, `[2, 8] expected`},
	{"gptq scales missing", `{"quant_method": "gptq", "bits": 4, "group_size": 8}`, gptq()[:1], false, `"m.scales": missing`},
	{"gptq words wrong", `{"quant_method": "gptq", "bits": 3, "group_size": 8}`, gptq(), false, "whole words"},
	{"gptq group index", `{"quant_method": "gptq", "bits": 4, "group_size": 8}`,
		append(gptq(), stored("m.g_idx", tensor.I32, i32(0, 0, 0, 0, 0, 0, 0, 1), 8)), false, "in group 1 of 1"},
	{"gptq group index negative", `{"quant_method": "gptq", "bits": 4, "group_size": 8}`,
		append(gptq(), stored("m.g_idx", tensor.I32, i32(0, 0, 0, 0, 0, 0, 0, 1<<32-1), 8)), false, "in group -1"},
	{"gptq index short", `{"quant_method": "gptq", "bits": 4, "group_size": 8}`,
		append(gptq(), stored("m.g_idx", tensor.I32, i32(0), 1)), false, "i32 [8] expected"},
	{"gptq and plain", `{"quant_method": "gptq", "bits": 4, "group_size": 8}`,
		append(gptq(), stored("m.weight", tensor.F32, f32(1), 1, 1)), false, "both plain and quantized"},
	{"awq version", `{"quant_method": "awq", "bits": 4, "group_size": 8, "version": "gemv"}`, nil, true, `"gemv"`},
	{"awq bits", `{"quant_method": "awq", "bits": 8, "group_size": 8}`, nil, true, "8 bits"},
	{"fp8 without scale", `{"quant_method": "fp8"}`, []formats.Tensor{stored("m.weight", tensor.F8E4M3, []byte{1}, 1, 1)}, false, "without"},
	{"fp8 with two scales", `{"quant_method": "fp8"}`, []formats.Tensor{stored("m.weight", tensor.F8E4M3, []byte{1}, 1, 1),
		stored("m.weight_scale", tensor.F32, f32(1), 1), stored("m.weight_scale_inv", tensor.F32, f32(1), 1)}, false, "has both"},
	{"fp8 e5m2", `{"quant_method": "fp8"}`, []formats.Tensor{stored("m.weight", tensor.F8E5M2, []byte{1}, 1, 1),
		stored("m.weight_scale", tensor.F32, f32(1), 1)}, true, "f8_e5m2"},
	{"fp8 grid wrong", `{"quant_method": "fp8", "weight_block_size": [1, 1]}`, []formats.Tensor{stored("m.weight", tensor.F8E4M3, make([]byte, 6), 2, 3),
		stored("m.weight_scale", tensor.F32, f32(1, 2, 3), 1, 3)}, false, "a scale for"},
	{"fp8 block crosses experts", `{"quant_method": "fp8", "weight_block_size": [2, 2]}`, []formats.Tensor{stored("m.weight", tensor.F8E4M3, make([]byte, 12), 2, 3, 2),
		stored("m.weight_scale", tensor.F32, f32(1, 2, 3, 4), 2, 2, 1)}, false, "a scale for"},
	{"fp8 block size", `{"quant_method": "fp8", "weight_block_size": [128]}`, nil, false, "not two sizes"},
	{"mxfp4 scales missing", `{"quant_method": "mxfp4"}`, []formats.Tensor{stored("m_blocks", tensor.U8, make([]byte, 16), 1, 1, 16)}, false, `"m_scales": missing`},
	{"mxfp4 block of 8", `{"quant_method": "mxfp4"}`, []formats.Tensor{stored("m_blocks", tensor.U8, make([]byte, 8), 1, 1, 8), stored("m_scales", tensor.U8, make([]byte, 1), 1, 1)}, false, "K/32, 16"},
	{"mxfp4 few scales", `{"quant_method": "mxfp4"}`, []formats.Tensor{stored("m_blocks", tensor.U8, make([]byte, 32), 1, 2, 16), stored("m_scales", tensor.U8, make([]byte, 1), 1, 1)}, false, "an exponent for each"},
	{"ct format", `{"quant_method": "compressed-tensors", "format": "nvfp4x", "config_groups": {}}`, nil, true, "nvfp4x"},
	{"nvfp4 scale of infinity", nvfp4CT, append(nvfp4Packed(), stored("m.weight_global_scale", tensor.F32, f32(0), 1)), false, "no factor"},
	{"nvfp4 factor missing", nvfp4ModelOpt, []formats.Tensor{stored("m.weight", tensor.U8, make([]byte, 32), 1, 32)}, false, "weight_scale_2"},
	{"nvfp4 few scales", nvfp4ModelOpt, []formats.Tensor{stored("m.weight", tensor.U8, make([]byte, 32), 1, 32), stored("m.weight_scale", tensor.F8E4M3, make([]byte, 2), 1, 2), stored("m.weight_scale_2", tensor.F32, f32(1))}, false, "for each 16"},
	{"nvfp4 short rows", nvfp4ModelOpt, []formats.Tensor{stored("m.weight", tensor.U8, make([]byte, 16), 1, 16), stored("m.weight_scale", tensor.F8E4M3, make([]byte, 2), 1, 2), stored("m.weight_scale_2", tensor.F32, f32(1))}, true, "multiples of 64"},
	{"modelopt algorithm", `{"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}`, nil, true, "W4A8_AWQ"},
	{"ct group's format", strings.Replace(ct, `"targets"`, `"format": "marlin-24", "targets"`, 1), nil, true, "marlin-24"},
	{"ct sparse", strings.Replace(ct, `"config_groups"`, `"sparsity_config": {"format": "sparse-24-bitmask"}, "config_groups"`, 1), nil, true, "sparse-24-bitmask"},
	{"ct transforms", strings.Replace(ct, `"config_groups"`, `"transform_config": {"config_groups": {"R1": {}}}, "config_groups"`, 1), nil, true, "transforms"},
	{"ct without groups", `{"quant_method": "compressed-tensors"}`, nil, false, "config_groups"},
	{"ct shape missing", ct, []formats.Tensor{stored("m.weight_packed", tensor.I32, i32(0), 1, 1)}, false, "weight_shape"},
	{"ct shape lies", ct, []formats.Tensor{stored("m.weight_packed", tensor.I32, i32(0), 1, 1),
		stored("m.weight_shape", tensor.I32, i32(1, 1<<31-1), 2)}, true, "1 words for 2147483647 codes"},
	{"ct shape negative", ct, []formats.Tensor{stored("m.weight_packed", tensor.I32, i32(0), 1, 1),
		stored("m.weight_shape", tensor.I32, i32(1, 1<<32-1), 2)}, false, "expected"},
	{"ct groups unknown", ct, []formats.Tensor{stored("m.weight_packed", tensor.I32, i32(0), 1, 1), stored("m.weight_shape", tensor.I32, i32(1, 8), 2),
		stored("m.weight_scale", tensor.F32, f32(1, 2, 3, 4), 1, 4)}, false, "groups of [4]"},
	{"bnb int8", `{"quant_method": "bitsandbytes"}`, []formats.Tensor{stored("m.SCB", tensor.F32, f32(1), 1)}, true, "8 bits"},
	{"bnb fp4", `{"quant_method": "bitsandbytes"}`, []formats.Tensor{stored("m.weight.quant_state.bitsandbytes__fp4", tensor.U8, []byte("{}"), 2)}, true, `"fp4"`},
	{"bnb weights missing", `{"quant_method": "bitsandbytes"}`, []formats.Tensor{stored("m.weight.quant_state.bitsandbytes__nf4", tensor.U8, []byte("{}"), 2)}, false, "missing"},
	{"bnb state no JSON", `{"quant_method": "bitsandbytes"}`, nf4(`{`), false, "expected"},
	{"bnb shape wrong", `{"quant_method": "bitsandbytes"}`, nf4(`{"shape": [2, 3], "blocksize": 64}`), false, "its quant_state"},
	{"bnb shape overflows", `{"quant_method": "bitsandbytes"}`, nf4(`{"shape": [4294967296, 4294967296], "blocksize": 64}`), false, "its quant_state"},
	{"bnb block 0", `{"quant_method": "bitsandbytes"}`, nf4(`{"shape": [1, 2], "blocksize": 0}`), false, "blocks of 0"},
	{"bnb map missing", `{"quant_method": "bitsandbytes"}`, nf4(`{"shape": [1, 2], "blocksize": 64}`), false, "quant_map"},
}

// gptq is a matrix [8][8] in one group of 4 bits.
func gptq() []formats.Tensor {
	return []formats.Tensor{stored("m.qweight", tensor.I32, make([]byte, 32), 1, 8),
		stored("m.scales", tensor.F32, make([]byte, 32), 1, 8), stored("m.qzeros", tensor.I32, make([]byte, 4), 1, 1)}
}

func nf4(state string) []formats.Tensor {
	return []formats.Tensor{stored("m.weight", tensor.U8, []byte{1}, 1, 1),
		stored("m.weight.quant_state.bitsandbytes__nf4", tensor.U8, []byte(state), int64(len(state)))}
}

func TestBadGroups(t *testing.T) {
	for _, c := range badGroups {
		_, err := join(t, c.config, c.tensors...)
		var bad *formats.FormatError
		var unsupported *formats.UnsupportedError
		if c.unsupported && !errors.As(err, &unsupported) || !c.unsupported && !errors.As(err, &bad) {
			t.Errorf("%s: error %v of the wrong family", c.name, err)
		} else if !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

const (
	nvfp4CT       = `{"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups": {"g": {"weights": {"num_bits": 4, "group_size": 16, "type": "float", "strategy": "tensor_group"}}}}`
	nvfp4ModelOpt = `{"quant_method": "modelopt", "quant_algo": "NVFP4"}`
)

// nvfp4Packed are two rows of 64 weights: the codes 0 to 15 over and over, under the
// scales 1, 2, 0.5 and 448, and others.
func nvfp4Packed() []formats.Tensor {
	codes := []byte(strings.Repeat("\x10\x32\x54\x76\x98\xba\xdc\xfe", 8))
	return []formats.Tensor{stored("m.weight_packed", tensor.U8, codes, 2, 32),
		stored("m.weight_scale", tensor.F8E4M3, []byte("\x38\x40\x30\x7e\x01\x08\x39\x00"), 2, 4)}
}

// TestNVFP4 holds both spellings to the formula, with a factor that is a power of two.
func TestNVFP4(t *testing.T) {
	values := []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6}
	scales := []float32{1, 2, 0.5, 448, 0x1p-9, 0x1p-6, 1.125, 0}
	in := nvfp4Packed()
	for what, c := range map[string]struct {
		config string
		in     []formats.Tensor
	}{
		"compressed-tensors": {nvfp4CT, append(in, stored("m.weight_global_scale", tensor.F32, f32(8), 1))},
		"modelopt": {nvfp4ModelOpt, []formats.Tensor{stored("m.weight", tensor.U8, mustRead(t, in[0]), 2, 32), in[1],
			stored("m.weight_scale_2", tensor.F32, f32(0.125))}},
	} {
		m, row := decode(t, c.config, c.in...)
		if m.Scheme.Name != "nvfp4" || m.Params["rows"] != 2 {
			t.Errorf("%s: %s %v", what, m.Scheme, m.Params)
		}
		for i := range int64(2) {
			for k, v := range row(i) {
				if want := values[k%16] * scales[int(i)*4+k/16] / 8; v != want {
					t.Fatalf("%s: [%d][%d] is %v, want %v", what, i, k, v, want)
				}
			}
		}
	}
	out, err := join(t, nvfp4ModelOpt, stored("m.weight", tensor.U8, make([]byte, 32), 1, 32),
		stored("m.weight_scale", tensor.F8E4M3, []byte{1, 2, 0x7f, 3}, 1, 4), stored("m.weight_scale_2", tensor.F32, f32(1)), stored("m.input_scale", tensor.F32, f32(3)))
	if err != nil || len(out) != 2 {
		t.Fatal(err)
	}
	if _, err := scheme.Open(&out[0]); err == nil || !strings.Contains(err.Error(), "scale 2 is negative or NaN") {
		t.Errorf("a NaN among scales: %v", err)
	}
}

func mustRead(t *testing.T, x formats.Tensor) []byte {
	t.Helper()
	p, err := x.Parts[0].Data.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestMXFP4NaN reads an exponent that has no meaning.
func TestMXFP4NaN(t *testing.T) {
	out, err := join(t, `{"quant_method": "mxfp4"}`, stored("m_blocks", tensor.U8, make([]byte, 32), 2, 1, 16), stored("m_scales", tensor.U8, []byte{1, 255}, 2, 1))
	if err != nil {
		t.Fatal(err)
	}
	_, err = out[0].Parts[0].Data.Bytes()
	var bad *formats.FormatError
	if !errors.As(err, &bad) || !strings.Contains(err.Error(), `"m_scales": exponent 1 is NaN`) {
		t.Error(err)
	}
}

// TestQuantizedWithoutConfig refuses what no file describes.
func TestQuantizedWithoutConfig(t *testing.T) {
	d := &Dir{path: "dir", config: config(t, `{}`), tensors: gptq()}
	var bad *formats.FormatError
	if err := d.joinQuantized(); !errors.As(err, &bad) || !strings.Contains(err.Error(), "no quantization_config") {
		t.Error(err)
	}
	d.files = map[string][]byte{"quantize_config.json": []byte(`{"bits": 4, "group_size": -1}`)}
	if err := d.joinQuantized(); err != nil || d.method != "gptq" || len(d.tensors) != 1 {
		t.Error(err, d.method)
	}
}
