package scheme

import "strconv"

// ggmlNames names every number that ggml's type list ever had, those that
// were removed or that this table does not carry included, so that a file is
// refused by name.
//
// Sources: ggml/include/ggml.h of ggml-org/llama.cpp and GGMLQuantizationType
// of the gguf package 0.19.0 on PyPI.
var ggmlNames = [...]string{
	0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 4: "Q4_2", 5: "Q4_3", 6: "Q5_0", 7: "Q5_1",
	8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K",
	16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S",
	23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16",
	31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 34: "TQ1_0", 35: "TQ2_0",
	36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0",
}

// GGMLName returns ggml's name of a type number, or "type N" for one that was
// unknown when this was written.
func GGMLName(id int32) string {
	if id >= 0 && int(id) < len(ggmlNames) {
		return ggmlNames[id]
	}
	return "type " + strconv.Itoa(int(id))
}
