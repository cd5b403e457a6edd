package schedule_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"strings"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/tokenizer"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/sample"
	"github.com/nstf/nstf/runtime/schedule"
)

// One prompt with two choices, of which one is greedy.
func ExampleScheduler_Submit() {
	m, err := checkpoint.Open("../../testdata/demo/model")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	tok, err := m.Tokenizer()
	if err != nil {
		log.Fatal(err)
	}
	ex, err := exec.New(m, exec.Options{Sequences: 4})
	if err != nil {
		log.Fatal(err)
	}
	defer ex.Close()
	s := schedule.New(ex, schedule.Options{})
	defer s.Close()

	ids, err := tok.Encode("He opened the door and", tokenizer.EncodeOptions{})
	if err != nil {
		log.Fatal(err)
	}
	st, err := s.Submit(context.Background(), schedule.Request{Prompt: ids, Choices: []schedule.Choice{
		{MaxTokens: 8}, {MaxTokens: 4, Sampling: sample.Options{Temperature: 1, Seed: 7}},
	}})
	if err != nil {
		log.Fatal(err)
	}
	var greedy []int32
	for {
		e, err := st.Next(context.Background())
		if err == io.EOF {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		if e.Choice == 0 {
			greedy = append(greedy, e.Token)
		}
	}
	text, err := tok.Decode(greedy, true)
	fmt.Println(strings.TrimSpace(text), err)
	fmt.Println(st.Usage().Tokens, "tokens")
	// Output:
	// opened it. The door opened, and <nil>
	// 12 tokens
}
