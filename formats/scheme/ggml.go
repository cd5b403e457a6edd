package scheme

import (
	"strconv"
	"strings"
)

// otherGGML names the numbers of ggml's type list that no row of the table has:
// types that were removed, or that no file holds, so that a file is refused by
// name.
//
// Sources: ggml/include/ggml.h of ggml-org/llama.cpp and GGMLQuantizationType
// of the gguf package 0.19.0 on PyPI.
var otherGGML = map[int32]string{
	4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 15: "Q8_K", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8",
	36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8",
}

// GGMLName returns ggml's name of a type number, or "type N" for one that was
// unknown when this was written.
func GGMLName(id int32) string {
	if s, ok := ByGGML(id); ok {
		return strings.ToUpper(s.Name)
	}
	if name, ok := otherGGML[id]; ok {
		return name
	}
	return "type " + strconv.Itoa(int(id))
}
