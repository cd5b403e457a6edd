package model

import (
	"encoding/json"
	"path/filepath"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/hf"
	"github.com/nstf/nstf/formats/nstf"
)

// Pack returns the model as the contents of a package: the graph's tensors
// under the graph's names in the order of execution, then the tensors that
// pass through under the names they had, the attached files as they were, and
// the files it was read from as sources. Nothing is read or copied; the
// caller adds to the provenance what it knows.
//
// A tensor that passes through under a name of the graph is refused with a
// [formats.UnsupportedError]: a package has one tensor of a name.
func (m *Model) Pack() (nstf.Meta, []nstf.Item, error) {
	var meta nstf.Meta
	graph, err := json.Marshal(m.Graph)
	if err != nil {
		return meta, nil, formats.Errorf(m.Path, "graph", "%v", err)
	}
	meta.Model = graph
	for _, f := range m.Files {
		meta.Files = append(meta.Files, nstf.File{Name: f.Name, Data: f.Data})
	}
	for _, path := range m.Sources() {
		meta.Provenance.Sources = append(meta.Provenance.Sources,
			nstf.Source{Role: "model", Name: filepath.Base(path), Path: path, Remote: m.Remote[path]})
	}
	var items []nstf.Item
	for _, t := range m.Tensors() {
		items = append(items, nstf.Item{Tensor: t})
	}
	for _, t := range m.Passthrough {
		if _, ok := m.tensors[t.Name]; ok {
			return meta, nil, formats.Unsupportedf(m.Path, t.Name, "a tensor outside the graph with the name of one inside")
		}
		items = append(items, nstf.Item{Tensor: t, Passthrough: true})
	}
	return meta, items, nil
}

// Inputs returns the paths of all files that the model was read from: those of Sources,
// and configuration, tokenizer and index beside them.
func (m *Model) Inputs() []string {
	paths := m.Sources()
	for _, c := range m.close {
		if d, ok := c.(*hf.Dir); ok {
			paths = append(paths, d.Paths()...)
		}
	}
	return paths
}

// Sources returns the paths of the files that hold the tensors.
func (m *Model) Sources() []string {
	var paths []string
	for _, c := range m.close {
		switch f := c.(type) {
		case *hf.Dir:
			paths = append(paths, f.Weights().Parts()...)
		case *gguf.File:
			paths = append(paths, f.Parts()...)
		case *nstf.Package:
			paths = append(paths, f.Path())
		}
	}
	return paths
}
