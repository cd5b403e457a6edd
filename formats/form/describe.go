package form

import (
	"fmt"
	"strings"

	"github.com/nstf/nstf/formats"
)

// Describe says in one word how a tensor is stored, as plans spell it: the
// scheme of a dense tensor ("q4_k", "tcq2"), "lowrank:32:q8_0" for a product of
// rank 32 with factors in q8_0, "tcq2+lr:32:q8_0" for one beside codes,
// "tcq2+shared:4:q8_0" for four shared matrices beside codes, and
// "train:8:16:f16" for a train of three cores. Factors of several schemes are
// joined by commas.
func Describe(t *formats.Tensor) string {
	if t.Form == "" {
		return word(t)
	}
	var rest []string
	main := ""
	for i := range t.Factors {
		f := &t.Factors[i]
		switch w := word(f); {
		case f.Name == "q":
			main = w + "+"
		case f.Name == "c":
		case len(rest) == 0 || rest[len(rest)-1] != w:
			rest = append(rest, w)
		}
	}
	f, _ := ByName(t.Form)
	size := ""
	switch f.ID {
	case LowRank:
		size = fmt.Sprintf("lowrank:%d", Rank(t))
	case Corrected:
		size = fmt.Sprintf("lr:%d", Rank(t))
	case Shared:
		size = fmt.Sprintf("shared:%d", t.Factors[0].Shape[1])
	case Train:
		size = "train"
		for i := 1; i < len(t.Factors); i++ {
			size += fmt.Sprintf(":%d", t.Params[fmt.Sprintf("rank%d", i)])
		}
	}
	return main + size + ":" + strings.Join(rest, ",")
}

// word names the scheme of one matrix.
func word(t *formats.Tensor) string {
	if bits, ok := t.Params["bits"]; ok && t.Scheme == "tcq" {
		return fmt.Sprintf("tcq%d", bits)
	}
	return t.Scheme
}
