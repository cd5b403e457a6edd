package export

import (
	"maps"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/tokenizer"
)

// vocabularyKeys returns a tokenizer as GGUF metadata, padded to the rows of
// the embedding table, and what llama.cpp may tokenize otherwise.
func vocabularyKeys(t *tokenizer.Tokenizer, rows int64) ([]gguf.KV, string, error) {
	v, err := t.GGUFVocabulary()
	if err != nil {
		return nil, "", err
	}
	if int64(len(v.Tokens)) > rows {
		return nil, "", formats.Unsupportedf("", "tokenizer", "%d tokens where the embedding table has %d rows: llama.cpp loads no such file", len(v.Tokens), rows)
	}
	v.Pad(int(rows))
	const p = "tokenizer.ggml."
	out := []gguf.KV{{Key: p + "model", Value: v.Model}, {Key: p + "pre", Value: v.Pre}, {Key: p + "tokens", Value: v.Tokens}}
	if v.Scores != nil {
		out = append(out, gguf.KV{Key: p + "scores", Value: v.Scores})
	}
	out = append(out, gguf.KV{Key: p + "token_type", Value: v.Types})
	if v.Merges != nil {
		out = append(out, gguf.KV{Key: p + "merges", Value: v.Merges})
	}
	for _, id := range []struct {
		key string
		id  int32
	}{
		{"bos_token_id", v.BOS}, {"eos_token_id", v.EOS}, {"unknown_token_id", v.UNK},
		{"seperator_token_id", v.SEP}, // llama.cpp's own spelling
		{"padding_token_id", v.PAD},
	} {
		if id.id >= 0 {
			out = append(out, gguf.KV{Key: p + id.key, Value: uint32(id.id)})
		}
	}
	out = append(out, gguf.KV{Key: p + "add_bos_token", Value: v.AddBOS}, gguf.KV{Key: p + "add_eos_token", Value: v.AddEOS})
	if v.Model != "gpt2" {
		out = append(out, gguf.KV{Key: p + "add_space_prefix", Value: v.AddSpacePrefix},
			gguf.KV{Key: p + "remove_extra_whitespaces", Value: v.RemoveExtraWhitespaces})
	}
	if len(v.PrecompiledCharsmap) > 0 {
		out = append(out, gguf.KV{Key: p + "precompiled_charsmap", Value: v.PrecompiledCharsmap})
	}
	return append(out, templateKeys(v)...), v.Approximate, nil
}

func templateKeys(v *tokenizer.Vocabulary) []gguf.KV {
	const key = "tokenizer.chat_template"
	var out []gguf.KV
	var names []string
	for _, name := range slices.Sorted(maps.Keys(v.Templates)) {
		if name == "default" {
			out = append(out, gguf.KV{Key: key, Value: v.Templates[name]})
			continue
		}
		names = append(names, name)
		out = append(out, gguf.KV{Key: key + "." + name, Value: v.Templates[name]})
	}
	if len(names) > 0 {
		out = append(out, gguf.KV{Key: key + "s", Value: names})
	}
	return out
}
