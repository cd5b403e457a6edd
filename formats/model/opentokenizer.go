package model

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/tokenizer"
)

// tokenizerNames are the files that [Model.Tokenizer] reads.
var tokenizerNames = []string{
	"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
	"generation_config.json", "chat_template.jinja", "config.json",
}

// OpenTokenizer reads a tokenizer alone, out of anything that carries one,
// whatever the architecture: a Hugging Face directory or a file in one, a
// GGUF with tensors or without, a package. Tensors are not looked at.
//
// Errors are those of the operating system, [formats.FormatError] and
// [formats.UnsupportedError].
func OpenTokenizer(path string) (*tokenizer.Tokenizer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return dirTokenizer(path)
	}
	magic, err := sniff(path)
	if err != nil {
		return nil, err
	}
	switch name := filepath.Base(path); {
	case bytes.HasPrefix(magic, []byte("GGUF")), bytes.HasPrefix(magic, []byte("FUGG")):
		f, err := gguf.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return tokenizer.FromGGUF(path, ggufMetadata{f})
	case strings.HasPrefix(nstf.Magic, string(magic)) && len(magic) > 0, strings.HasSuffix(path, ".nstf"):
		return packageTokenizer(path)
	case strings.HasSuffix(name, ".safetensors"), strings.HasSuffix(name, ".safetensors.index.json"),
		name == "tokenizer.json", name == "tokenizer.model":
		return dirTokenizer(filepath.Dir(path))
	}
	return nil, formats.ErrorAt(path, "", 0, "no tokenizer: starts with %q, which is neither GGUF nor a package", magic)
}

func dirTokenizer(dir string) (*tokenizer.Tokenizer, error) {
	m := &Model{Path: dir}
	for _, name := range tokenizerNames {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		m.Files = append(m.Files, File{name, data})
	}
	return m.Tokenizer()
}

func packageTokenizer(path string) (*tokenizer.Tokenizer, error) {
	p, err := nstf.Open(path)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	m := &Model{Path: path}
	for _, name := range append([]string{MetadataFile}, tokenizerNames...) {
		data, err := p.File(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		m.Files = append(m.Files, File{name, data})
	}
	return m.Tokenizer()
}
