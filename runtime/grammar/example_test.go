package grammar_test

import (
	"fmt"
	"log"

	"github.com/nstf/nstf/runtime/grammar"
)

func Example() {
	g, err := grammar.ParseSchema([]byte(`{"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false}`))
	if err != nil {
		log.Fatal(err)
	}
	tokens := [][]byte{nil, []byte(`{"`), []byte("ok"), []byte(`":`), []byte(" "), []byte("tr"), []byte("ue"), []byte("}"), []byte("no")}
	v, err := grammar.NewVocabulary(tokens, []int32{0}) // token 0 ends a text
	if err != nil {
		log.Fatal(err)
	}
	m := v.Compile(g).NewMatcher()
	mask := make([]uint32, v.Words())
	for _, id := range []int32{1, 2, 3, 5, 6} {
		if err := m.Accept(id); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(m.Accept(8))
	if err := m.Mask(mask); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%b, may end: %v\n", mask[0], m.CanEnd())
	// Output:
	// "no" does not go on as the grammar does: byte 0, 'n'
	// 10010000, may end: false
}
