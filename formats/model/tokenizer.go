package model

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/hf"
	"github.com/nstf/nstf/formats/tokenizer"
)

// Tokenizer reads the tokenizer that travels with the model.
func (m *Model) Tokenizer() (*tokenizer.Tokenizer, error) {
	if meta, ok := m.File(MetadataFile); ok {
		f, err := gguf.Parse(m.Path, meta)
		if err != nil {
			return nil, err
		}
		return TokenizerOfGGUF(m.Path, f)
	}
	get := func(name string) []byte {
		p, _ := m.File(name)
		return p
	}
	return tokenizer.FromFiles(m.Path, tokenizer.Files{
		JSON: get("tokenizer.json"), Config: get("tokenizer_config.json"), Special: get("special_tokens_map.json"),
		Generation: get("generation_config.json"), Model: get("tokenizer.model"),
		ChatTemplate: m.chatTemplate(), Templates: m.namedTemplates(), ConfigJSON: get("config.json"),
	})
}

// chatTemplate returns the template that lies in a file of its own: as it is,
// or, as transformers 4.4x wrote it, in JSON.
func (m *Model) chatTemplate() []byte {
	if p, ok := m.File("chat_template.jinja"); ok {
		return p
	}
	var old struct {
		Template string `json:"chat_template"`
	}
	if p, ok := m.File("chat_template.json"); !ok || json.Unmarshal(p, &old) != nil || old.Template == "" {
		return nil
	}
	return []byte(old.Template)
}

// namedTemplates returns the templates that lie in a folder of their own.
func (m *Model) namedTemplates() map[string][]byte {
	out := map[string][]byte{}
	for _, f := range m.Files {
		if name, ok := TemplateName(f.Name); ok {
			out[name] = f.Data
		}
	}
	return out
}

// TemplateName returns the name of the chat template in a file of
// [hf.TemplateDir], false for other files.
func TemplateName(file string) (string, bool) {
	dir, base := path.Split(file)
	name, ok := strings.CutSuffix(base, ".jinja")
	return name, ok && dir == hf.TemplateDir+"/"
}

// HasTokenizer reports whether one travels with the model, readable or not.
func (m *Model) HasTokenizer() bool {
	meta, ok := m.File(MetadataFile)
	if !ok {
		_, fast := m.File("tokenizer.json")
		_, slow := m.File("tokenizer.model")
		return fast || slow
	}
	f, err := gguf.Parse(m.Path, meta)
	if err != nil {
		return true
	}
	_, ok = f.Get("tokenizer.ggml.model")
	return ok
}

// TokenizerOfGGUF reads the tokenizer in a GGUF's metadata. Errors name path.
func TokenizerOfGGUF(path string, f *gguf.File) (*tokenizer.Tokenizer, error) {
	return tokenizer.FromGGUF(path, ggufMetadata{f})
}

// ggufMetadata is a GGUF as the tokenizer reads it.
type ggufMetadata struct{ f *gguf.File }

func (m ggufMetadata) Get(key string) (any, bool) { return m.f.Get(key) }
