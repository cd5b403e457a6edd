package generate

import (
	"encoding/json"

	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/runtime/sample"
)

// Recommended returns how the model's makers would have tokens chosen, and how many at
// most, by its generation_config.json: nothing that changes probabilities, and 0, where
// they do not say.
func Recommended(m *model.Model) (_ sample.Options, maxTokens int) {
	usual := sample.Options{Temperature: 1, TopP: 1, RepetitionPenalty: 1}
	c := struct {
		Temperature       float64 `json:"temperature"`
		TopP              float64 `json:"top_p"`
		TopK              int     `json:"top_k"`
		MinP              float64 `json:"min_p"`
		RepetitionPenalty float64 `json:"repetition_penalty"`
		MaxNewTokens      int     `json:"max_new_tokens"`
	}{Temperature: usual.Temperature, TopP: usual.TopP, RepetitionPenalty: usual.RepetitionPenalty}
	if p, ok := m.File("generation_config.json"); ok {
		json.Unmarshal(p, &c) // what is null or of another type is not said
	}
	o := sample.Options{Temperature: c.Temperature, TopP: c.TopP, TopK: c.TopK, MinP: c.MinP, RepetitionPenalty: c.RepetitionPenalty}
	if _, err := sample.New(o); err != nil {
		o = usual
	}
	return o, max(0, c.MaxNewTokens)
}
