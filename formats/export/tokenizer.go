package export

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/tokenizer"
)

// tokenizerFiles writes a tokenizer as the files of a Hugging Face directory.
func tokenizerFiles(t *tokenizer.Tokenizer) ([]model.File, error) {
	data, err := t.JSON()
	if err != nil {
		return nil, err
	}
	files := []model.File{{Name: "tokenizer.json", Data: data}}
	config := map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false}
	templates := t.ChatTemplates()
	if source, ok := templates["default"]; ok && len(templates) == 1 {
		files = append(files, model.File{Name: "chat_template.jinja", Data: []byte(source)})
	} else if len(templates) > 0 {
		config["chat_template"] = templateList(templates)
	}
	generation := map[string]any{}
	for name, id := range map[string]func() (int32, bool){"bos": t.BOS, "eos": t.EOS} {
		if n, ok := id(); ok {
			config[name+"_token"], _ = t.Piece(n)
			generation[name+"_token_id"] = n
		}
	}
	for name, content := range map[string]map[string]any{"tokenizer_config.json": config, "generation_config.json": generation} {
		p, err := json.MarshalIndent(content, "", "  ")
		if err != nil {
			return nil, err
		}
		files = append(files, model.File{Name: name, Data: append(p, '\n')})
	}
	return files, nil
}

// templateList is how tokenizer_config.json writes several chat templates. A
// name in it may be any text, unlike one of a file.
func templateList(templates map[string]string) []map[string]string {
	var out []map[string]string
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		out = append(out, map[string]string{"name": name, "template": templates[name]})
	}
	return out
}
