package tokenizer_test

import (
	"context"
	"fmt"
	"os"

	"github.com/nstf/nstf/formats/tokenizer"
)

func Example() {
	raw, err := os.ReadFile("../../testdata/tokenizer/llama3.json")
	if err != nil {
		fmt.Println(err)
		return
	}
	t, err := tokenizer.FromFiles("llama3", tokenizer.Files{
		JSON:         raw,
		Config:       []byte(`{"bos_token": "<s>", "eos_token": "</s>"}`),
		ChatTemplate: []byte(`{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{{ eos_token }}{% endfor %}`),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, _ := t.Encode("the cat", tokenizer.EncodeOptions{})
	text, _ := t.Decode(ids, true)
	fmt.Println(ids, text)

	chat, err := t.ChatTemplate("")
	if err != nil {
		fmt.Println(err)
		return
	}
	r, _ := chat.Render(context.Background(), []tokenizer.Message{{Role: "user", Content: "Is </s> a token?"}}, tokenizer.RenderOptions{})
	fmt.Println(r.Text)
	ids, _ = t.EncodeRendered(r) // the user's </s> is four characters, the template's is a token
	n := 0
	for _, id := range ids {
		if eos, _ := t.EOS(); id == eos {
			n++
		}
	}
	fmt.Println(n)
	// Output:
	// [1 88 262 280 296 2] the cat
	// <s>[user] Is </s> a token?</s>
	// 1
}
