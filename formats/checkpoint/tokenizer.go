package checkpoint

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/hf"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/tokenizer"
)

// OpenTokenizer reads a tokenizer alone, out of anything that carries one,
// whatever the architecture: a Hugging Face directory or a file in one, a
// GGUF with tensors or without, a package. Tensors are not looked at.
//
// Errors are those of the operating system, [formats.FormatError] and
// [formats.UnsupportedError].
func OpenTokenizer(path string) (*tokenizer.Tokenizer, error) {
	switch filepath.Base(path) {
	case "tokenizer.json", "tokenizer.model":
		return dirTokenizer(filepath.Dir(path))
	}
	kind, magic, err := container(nil, path)
	if err != nil {
		return nil, err
	}
	switch kind {
	case model.KindHF:
		return dirTokenizer(folder(nil, path))
	case model.KindNSTF:
		return packageTokenizer(path)
	case model.KindGGUF:
		f, err := gguf.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return model.TokenizerOfGGUF(path, f)
	}
	return nil, formats.ErrorAt(path, "", 0, "no tokenizer: starts with %q, which is neither GGUF nor a package", magic)
}

func dirTokenizer(dir string) (*tokenizer.Tokenizer, error) {
	templates, err := hf.TemplateFiles(dir)
	if err != nil {
		return nil, err
	}
	return tokenizerOf(dir, templates, func(name string) ([]byte, error) {
		if name == model.MetadataFile {
			return nil, fs.ErrNotExist // only packages carry it
		}
		return formats.ReadFile(filepath.Join(dir, filepath.FromSlash(name)), hf.MaxSmall(name), "such a file")
	})
}

func packageTokenizer(path string) (*tokenizer.Tokenizer, error) {
	p, err := nstf.OpenStored(path)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	var templates []string
	for _, f := range p.Files() {
		if _, ok := model.TemplateName(f.Name); ok {
			templates = append(templates, f.Name)
		}
	}
	return tokenizerOf(path, templates, p.File)
}

// tokenizerOf reads the tokenizer's files that are there, and the templates.
func tokenizerOf(path string, templates []string, read func(name string) ([]byte, error)) (*tokenizer.Tokenizer, error) {
	m := &model.Model{Path: path}
	for _, name := range append([]string{
		model.MetadataFile, "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
		"generation_config.json", "chat_template.jinja", "chat_template.json", "config.json",
	}, templates...) {
		data, err := read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		m.Files = append(m.Files, model.File{Name: name, Data: data})
	}
	return m.Tokenizer()
}
