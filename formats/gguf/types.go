package gguf

import (
	"fmt"

	"github.com/nstf/nstf/formats/tensor"
)

// A storage row says how ggml stores one tensor type: block weights take
// bytes bytes, and rows are whole blocks.
type storage struct {
	id     uint32
	scheme string
	dtype  tensor.DType // of dense types; U8 for blocks
	block  int64
	bytes  int64
}

// storages lists every tensor type that is read and written.
// Source: enum ggml_type and the block structs of ggml-common.h.
var storages = []storage{
	{0, "f32", tensor.F32, 1, 4},
	{1, "f16", tensor.F16, 1, 2},
	{2, "q4_0", tensor.U8, 32, 18},
	{3, "q4_1", tensor.U8, 32, 20},
	{6, "q5_0", tensor.U8, 32, 22},
	{7, "q5_1", tensor.U8, 32, 24},
	{8, "q8_0", tensor.U8, 32, 34},
	{10, "q2_k", tensor.U8, 256, 84},
	{11, "q3_k", tensor.U8, 256, 110},
	{12, "q4_k", tensor.U8, 256, 144},
	{13, "q5_k", tensor.U8, 256, 176},
	{14, "q6_k", tensor.U8, 256, 210},
	{16, "iq2_xxs", tensor.U8, 256, 66},
	{17, "iq2_xs", tensor.U8, 256, 74},
	{18, "iq3_xxs", tensor.U8, 256, 98},
	{19, "iq1_s", tensor.U8, 256, 50},
	{20, "iq4_nl", tensor.U8, 32, 18},
	{21, "iq3_s", tensor.U8, 256, 110},
	{22, "iq2_s", tensor.U8, 256, 82},
	{23, "iq4_xs", tensor.U8, 256, 136},
	{24, "i8", tensor.I8, 1, 1},
	{25, "i16", tensor.I16, 1, 2},
	{26, "i32", tensor.I32, 1, 4},
	{27, "i64", tensor.I64, 1, 8},
	{28, "f64", tensor.F64, 1, 8},
	{29, "iq1_m", tensor.U8, 256, 56},
	{30, "bf16", tensor.BF16, 1, 2},
	{34, "tq1_0", tensor.U8, 256, 54},
	{35, "tq2_0", tensor.U8, 256, 66},
	{39, "mxfp4", tensor.U8, 32, 17},
}

// refused names the ids that exist and are not read: layouts that ggml itself
// dropped, formats of activations that no file holds, and types newer than
// this reader.
var refused = map[uint32]string{
	4: "Q4_2 (dropped by ggml)", 5: "Q4_3 (dropped by ggml)",
	9: "Q8_1 (an activation format)", 15: "Q8_K (an activation format)",
	31: "Q4_0_4_4 (dropped by ggml)", 32: "Q4_0_4_8 (dropped by ggml)", 33: "Q4_0_8_8 (dropped by ggml)",
	36: "IQ4_NL_4_4 (dropped by ggml)", 37: "IQ4_NL_4_8 (dropped by ggml)", 38: "IQ4_NL_8_8 (dropped by ggml)",
	40: "NVFP4", 41: "Q1_0",
}

// storageByID and storageByScheme return nil for what storages lacks.
func storageByID(id uint32) *storage {
	for i := range storages {
		if storages[i].id == id {
			return &storages[i]
		}
	}
	return nil
}

func storageByScheme(scheme string) *storage {
	for i := range storages {
		if storages[i].scheme == scheme {
			return &storages[i]
		}
	}
	return nil
}

// refusedName names a tensor type that storages lacks.
func refusedName(id uint32) string {
	if name, ok := refused[id]; ok {
		return fmt.Sprintf("ggml type %d, %s", id, name)
	}
	return fmt.Sprintf("ggml type %d, which this version does not know", id)
}
