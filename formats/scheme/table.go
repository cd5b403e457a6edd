package scheme

import "github.com/nstf/nstf/formats/tensor"

// table is THE table. Ids and names are for ever: a row may be added, none
// may change its number, name, sizes or meaning, and none may go.
var table = []*Scheme{
	{ID: 1, Name: "f32", GGML: 0, Block: 1, DType: tensor.F32, layout: plain{}},
	{ID: 2, Name: "f16", GGML: 1, FileType: 1, Block: 1, DType: tensor.F16, layout: plain{}},
	{ID: 3, Name: "bf16", GGML: 30, FileType: 32, Block: 1, DType: tensor.BF16, layout: plain{}},
	{ID: 4, Name: "f64", GGML: 28, Block: 1, DType: tensor.F64, layout: plain{}},
	{ID: 5, Name: "i8", GGML: 24, Block: 1, DType: tensor.I8, layout: plain{}},
	{ID: 6, Name: "i16", GGML: 25, Block: 1, DType: tensor.I16, layout: plain{}},
	{ID: 7, Name: "i32", GGML: 26, Block: 1, DType: tensor.I32, layout: plain{}},
	{ID: 8, Name: "i64", GGML: 27, Block: 1, DType: tensor.I64, layout: plain{}},
	{ID: 9, Name: "u8", GGML: -1, Block: 1, DType: tensor.U8, layout: plain{}},
	{ID: 10, Name: "u16", GGML: -1, Block: 1, DType: tensor.U16, layout: plain{}},
	{ID: 11, Name: "u32", GGML: -1, Block: 1, DType: tensor.U32, layout: plain{}},
	{ID: 12, Name: "u64", GGML: -1, Block: 1, DType: tensor.U64, layout: plain{}},
	{ID: 13, Name: "bool", GGML: -1, Block: 1, DType: tensor.Bool, layout: plain{}},
	{ID: 14, Name: "f8_e4m3", GGML: -1, Block: 1, DType: tensor.F8E4M3, layout: plain{}},
	{ID: 15, Name: "f8_e5m2", GGML: -1, Block: 1, DType: tensor.F8E5M2, layout: plain{}},
	{ID: 16, Name: "f8_e4m3fnuz", GGML: -1, Block: 1, DType: tensor.F8E4M3Z, layout: plain{}},
	{ID: 17, Name: "f8_e5m2fnuz", GGML: -1, Block: 1, DType: tensor.F8E5M2Z, layout: plain{}},
	{ID: 18, Name: "f8_e8m0", GGML: -1, Block: 1, DType: tensor.F8E8M0, layout: plain{}},
	{ID: 19, Name: "f6_e2m3", GGML: -1, Block: 1, DType: tensor.F6E2M3, layout: plain{}},
	{ID: 20, Name: "f6_e3m2", GGML: -1, Block: 1, DType: tensor.F6E3M2, layout: plain{}},
	{ID: 21, Name: "f4_e2m1", GGML: -1, Block: 1, DType: tensor.F4E2M1, layout: plain{}},
	{ID: 22, Name: "c64", GGML: -1, Block: 1, DType: tensor.C64, layout: plain{}},

	{ID: 32, Name: "q4_0", GGML: 2, FileType: 2, Block: 32, BlockBytes: 18, layout: blocks{decodeQ40},
		Group: 32, Scale: ScaleF16, ScaleAt: []int{0}, Ops: 2},
	{ID: 33, Name: "q4_1", GGML: 3, FileType: 3, Block: 32, BlockBytes: 20, layout: blocks{decodeQ41},
		Group: 32, Mins: true, Scale: ScaleF16, ScaleAt: []int{0, 2}, Ops: 2},
	{ID: 34, Name: "q5_0", GGML: 6, FileType: 8, Block: 32, BlockBytes: 22, layout: blocks{decodeQ50},
		Group: 32, Scale: ScaleF16, ScaleAt: []int{0}, Ops: 2},
	{ID: 35, Name: "q5_1", GGML: 7, FileType: 9, Block: 32, BlockBytes: 24, layout: blocks{decodeQ51},
		Group: 32, Mins: true, Scale: ScaleF16, ScaleAt: []int{0, 2}, Ops: 2},
	{ID: 36, Name: "q8_0", GGML: 8, FileType: 7, Block: 32, BlockBytes: 34, layout: blocks{decodeQ80},
		Group: 16, Scale: ScaleF16, ScaleAt: []int{0}, Ops: 2},
	{ID: 37, Name: "q2_k", GGML: 10, FileType: 10, Block: 256, BlockBytes: 84, layout: blocks{decodeQ2K},
		Group: 16, Mins: true, Scale: ScaleF16, ScaleAt: []int{80, 82}, Ops: 2, Smaller: "q4_0"},
	{ID: 38, Name: "q3_k", GGML: 11, FileType: 12, Block: 256, BlockBytes: 110, layout: blocks{decodeQ3K},
		Group: 16, Scale: ScaleF16, ScaleAt: []int{108}, Ops: 2, Smaller: "q4_0"},
	{ID: 39, Name: "q4_k", GGML: 12, FileType: 15, Block: 256, BlockBytes: 144, layout: blocks{decodeQ4K},
		Group: 32, Mins: true, Scale: ScaleF16, ScaleAt: []int{0, 2}, Ops: 2, Smaller: "q4_0"},
	{ID: 40, Name: "q5_k", GGML: 13, FileType: 17, Block: 256, BlockBytes: 176, layout: blocks{decodeQ5K},
		Group: 32, Mins: true, Scale: ScaleF16, ScaleAt: []int{0, 2}, Ops: 2, Smaller: "q5_0"},
	{ID: 41, Name: "q6_k", GGML: 14, FileType: 18, Block: 256, BlockBytes: 210, layout: blocks{decodeQ6K},
		Group: 16, Scale: ScaleF16, ScaleAt: []int{208}, Ops: 2, Smaller: "q8_0"},
	{ID: 42, Name: "iq1_s", GGML: 19, FileType: 24, Block: 256, BlockBytes: 50, layout: blocks{decodeIQ1S},
		Group: 32, Scale: ScaleF16, ScaleAt: []int{0}, Ops: 3},
	{ID: 43, Name: "iq1_m", GGML: 29, FileType: 31, Block: 256, BlockBytes: 56, layout: blocks{decodeIQ1M},
		Group: 16, Scale: ScaleNibbles, ScaleAt: []int{48}, Ops: 3},
	{ID: 44, Name: "iq2_xxs", GGML: 16, FileType: 19, Block: 256, BlockBytes: 66, layout: blocks{decodeIQ2XXS},
		Group: 32, Scale: ScaleF16, ScaleAt: []int{0}, Ops: 3, Smaller: "iq4_nl"},
	{ID: 45, Name: "iq2_xs", GGML: 17, FileType: 20, Block: 256, BlockBytes: 74, layout: blocks{decodeIQ2XS},
		Group: 16, Scale: ScaleF16, ScaleAt: []int{0}, Ops: 3, Smaller: "iq4_nl"},
	{ID: 46, Name: "iq2_s", GGML: 22, FileType: 28, Block: 256, BlockBytes: 82, layout: blocks{decodeIQ2S},
		Group: 16, Scale: ScaleF16, ScaleAt: []int{0}, Ops: 3, Smaller: "iq4_nl"},
	{ID: 47, Name: "iq3_xxs", GGML: 18, FileType: 23, Block: 256, BlockBytes: 98, layout: blocks{decodeIQ3XXS},
		Group: 32, Scale: ScaleF16, ScaleAt: []int{0}, Ops: 3, Smaller: "iq4_nl"},
	{ID: 48, Name: "iq3_s", GGML: 21, FileType: 26, Block: 256, BlockBytes: 110, layout: blocks{decodeIQ3S},
		Group: 32, Scale: ScaleF16, ScaleAt: []int{0}, Ops: 3, Smaller: "iq4_nl"},
	{ID: 49, Name: "iq4_nl", GGML: 20, FileType: 25, Block: 32, BlockBytes: 18, layout: blocks{decodeIQ4NL},
		Group: 32, Scale: ScaleF16, ScaleAt: []int{0}, Ops: 3},
	{ID: 50, Name: "iq4_xs", GGML: 23, FileType: 30, Block: 256, BlockBytes: 136, layout: blocks{decodeIQ4XS},
		Group: 32, Scale: ScaleF16, ScaleAt: []int{0}, Ops: 3, Smaller: "iq4_nl"},
	{ID: 51, Name: "tq1_0", GGML: 34, FileType: 36, Block: 256, BlockBytes: 54, layout: blocks{decodeTQ10},
		Group: 32, Scale: ScaleF16, ScaleAt: []int{52}, Trained: true},
	{ID: 52, Name: "tq2_0", GGML: 35, FileType: 37, Block: 256, BlockBytes: 66, layout: blocks{decodeTQ20},
		Group: 32, Scale: ScaleF16, ScaleAt: []int{64}, Trained: true},
	{ID: 53, Name: "mxfp4", GGML: 39, FileType: 38, Block: 32, BlockBytes: 17, layout: blocks{decodeMXFP4},
		Group: 32, Scale: ScaleE8M0, ScaleAt: []int{0}, Trained: true},
	{ID: 54, Name: "nvfp4", GGML: 40, FileType: 39, Block: 64, BlockBytes: 36, layout: nvfp4{blocks{decodeNVFP4}},
		Group: 16, Scale: ScaleE4M3, ScaleAt: []int{0, 1, 2, 3}, Trained: true},
	{ID: 55, Name: "q1_0", GGML: 41, FileType: 40, Block: 128, BlockBytes: 18, layout: blocks{decodeQ10},
		Group: 32, Scale: ScaleF16, ScaleAt: []int{0}, Trained: true},
	{ID: 56, Name: "q2_0", GGML: 42, FileType: 41, Block: 64, BlockBytes: 18, layout: blocks{decodeQ20},
		Group: 32, Scale: ScaleF16, ScaleAt: []int{0}, Trained: true},

	{ID: 96, Name: "affine", GGML: -1, Block: 1, layout: affine{}},
	{ID: 97, Name: "fp8", GGML: -1, Block: 1, layout: fp8{}},
	{ID: 98, Name: "nf4", GGML: -1, Block: 1, layout: nf4{}},
	{ID: 99, Name: "tcq", GGML: -1, Block: TCQTile, Ops: 4, layout: tcq{}},
}

// byName and byGGML index the table; they are never written again.
var byName, byGGML = index()

func index() (map[string]*Scheme, map[int32]*Scheme) {
	names, ids := map[string]*Scheme{}, map[int32]*Scheme{}
	for _, s := range table {
		names[s.Name] = s
		if s.GGML >= 0 {
			ids[s.GGML] = s
		}
	}
	return names, ids
}

// Table returns all schemes in the order of their ids.
func Table() []*Scheme { return append([]*Scheme(nil), table...) }

// ByName returns the scheme of that name.
func ByName(name string) (*Scheme, bool) {
	s, ok := byName[name]
	return s, ok
}

// ByGGML returns the scheme whose bytes are those of ggml's type id.
func ByGGML(id int32) (*Scheme, bool) {
	s, ok := byGGML[id]
	return s, ok
}

// ByDType returns the plain scheme of an element type, nil for an invalid
// type.
func ByDType(d tensor.DType) *Scheme {
	for _, s := range table {
		if s.Plain() && s.DType == d {
			return s
		}
	}
	return nil
}
