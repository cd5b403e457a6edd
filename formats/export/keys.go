package export

import (
	"path/filepath"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/arch"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
)

// ggufKeys fills in the metadata of an export: for a model that came from
// GGUF its own, with what describes the tensors brought up to date; otherwise
// the graph's constants under llama.cpp's keys and the tokenizer's.
func ggufKeys(m *model.Model, a *arch.Architecture, x *Model) error {
	tensors := x.Tensors
	if meta, ok := m.File(model.MetadataFile); ok {
		f, err := gguf.Parse(m.Path, meta)
		if err != nil {
			return err
		}
		kvs := f.KVs()
		for i := range kvs {
			if kvs[i].Key == "general.file_type" {
				kvs[i].Value = fileType(tensors)
			}
		}
		x.Keys = dropSplit(kvs)
		return nil
	}
	tok, err := m.Tokenizer()
	if err != nil {
		return err
	}
	vocabulary, doubt, err := vocabularyKeys(tok, m.Graph.Vocab)
	if err != nil {
		return err
	}
	if doubt != "" {
		x.Warnings = append(x.Warnings, doubt)
	}
	x.Keys = append(a.Keys(m.Graph, base(m.Path), fileType(tensors)), vocabulary...)
	return nil
}

// dropSplit removes the keys that say a file is one of several.
func dropSplit(kvs []gguf.KV) []gguf.KV {
	var out []gguf.KV
	for _, kv := range kvs {
		if !strings.HasPrefix(kv.Key, "split.") {
			out = append(out, kv)
		}
	}
	return out
}

// fileType is what llama.cpp calls a file whose weights are mostly of the scheme
// that holds most of these.
func fileType(tensors []formats.Tensor) uint32 {
	size := map[string]int64{}
	best := ""
	for _, t := range tensors {
		if len(t.Shape) < 2 {
			continue
		}
		size[t.Scheme] += t.Elements()
		if best == "" || size[t.Scheme] > size[best] {
			best = t.Scheme
		}
	}
	if s, ok := scheme.ByName(best); ok {
		return s.GGUFFileType()
	}
	return scheme.GuessedFileType
}

// base returns a path's last element without the suffixes of model files.
func base(path string) string {
	b := filepath.Base(path)
	for _, s := range []string{".gguf", ".nstf", ".safetensors"} {
		b = strings.TrimSuffix(b, s)
	}
	return b
}
