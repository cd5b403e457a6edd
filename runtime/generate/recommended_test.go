package generate

import (
	"testing"

	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/runtime/sample"
)

func TestRecommended(t *testing.T) {
	usual := sample.Options{Temperature: 1, TopP: 1, RepetitionPenalty: 1}
	for _, c := range []struct {
		file string
		want sample.Options
		most int
	}{
		{``, usual, 0},
		{`{`, usual, 0},
		{`[]`, usual, 0},
		{`{"temperature": null, "max_new_tokens": null}`, usual, 0},
		{`{"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.1, "repetition_penalty": 1.1, "max_new_tokens": 7, "eos_token_id": [1, 2]}`,
			sample.Options{Temperature: 0.6, TopP: 0.95, TopK: 20, MinP: 0.1, RepetitionPenalty: 1.1}, 7},
		{`{"temperature": "hot", "top_p": 0.5, "max_new_tokens": -1}`, sample.Options{Temperature: 1, TopP: 0.5, RepetitionPenalty: 1}, 0},
		{`{"temperature": -1, "top_p": 0.5, "max_new_tokens": 9}`, usual, 9},
	} {
		m := &model.Model{}
		if c.file != "" {
			m.Files = append(m.Files, model.File{Name: "generation_config.json", Data: []byte(c.file)})
		}
		if got, most := Recommended(m); got != c.want || most != c.most {
			t.Errorf("%s: %+v and %d, want %+v and %d", c.file, got, most, c.want, c.most)
		}
	}
}
