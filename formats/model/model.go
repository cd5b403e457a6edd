// Package model holds a model as every container gives it: a graph, its stored
// tensors under the graph's names, and what travels beside them. Package
// checkpoint reads one, package export writes one for other programs.
package model

import (
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
)

// A Kind names the container that a model was read from.
type Kind string

// The containers.
const (
	KindHF   Kind = "safetensors" // Hugging Face directory or a file in one
	KindGGUF Kind = "gguf"
	KindNSTF Kind = "nstf"
)

// A Model is a graph with its stored tensors, nothing of them read yet, and
// everything else that travels with a checkpoint. It is immutable; its
// tensors may be read from any number of goroutines until Close.
type Model struct {
	Path  string
	Kind  Kind
	Graph *graph.Graph
	// Files are the checkpoint's small files, verbatim: config.json,
	// tokenizer.json and their kind, or "metadata.gguf", a GGUF file with the
	// source's metadata and no tensors.
	Files []File
	// Passthrough are the tensors that the graph does not read, under the
	// names they had.
	Passthrough []formats.Tensor
	// Quantized describes how the checkpoint was quantized before ("gptq",
	// "q4_k"), "" where it was not.
	Quantized string
	// Remote are files of the model that are not on the disk, nil for none.
	Remote formats.Remote

	tensors map[string]formats.Tensor
	close   []io.Closer
}

// MetadataFile is the name under which a GGUF's metadata travels: a GGUF file
// of its own, without tensors.
const MetadataFile = "metadata.gguf"

// New returns a model of a graph and the tensors that it reads, by their names
// there. Closing it closes the files behind them.
func New(g *graph.Graph, tensors map[string]formats.Tensor, files ...io.Closer) *Model {
	return &Model{Graph: g, tensors: tensors, close: files}
}

// A File is an attached file, byte for byte.
type File struct {
	Name string
	Data []byte
}

// Close closes the files behind the tensors.
func (m *Model) Close() error {
	var errs []error
	for _, c := range m.close {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Tensor returns a tensor of the graph by its name, which must be one of
// [Graph.Weights].
func (m *Model) Tensor(name string) formats.Tensor {
	t, ok := m.tensors[name]
	if !ok {
		panic(fmt.Sprintf("model: no tensor %q in the graph", name))
	}
	return t
}

// Find returns a tensor of the graph by its name, false where the model has none
// of it.
func (m *Model) Find(name string) (formats.Tensor, bool) {
	t, ok := m.tensors[name]
	return t, ok
}

// Tensors returns the tensors of the graph in the order of [Graph.Weights].
func (m *Model) Tensors() []formats.Tensor {
	ws := m.Graph.Weights()
	out := make([]formats.Tensor, len(ws))
	for i, w := range ws {
		out[i] = m.Tensor(w.Name)
	}
	return out
}

// File returns an attached file by name.
func (m *Model) File(name string) ([]byte, bool) {
	for _, f := range m.Files {
		if f.Name == name {
			return f.Data, true
		}
	}
	return nil, false
}

// With returns the model with some tensors of its graph in another storage
// form, by their names. It shares everything with m, which stays the one to be
// closed. It panics where m has no such tensor.
func (m *Model) With(tensors map[string]formats.Tensor) *Model {
	out := *m
	out.close = nil
	out.tensors = maps.Clone(m.tensors)
	for name, t := range tensors {
		m.Tensor(name)
		out.tensors[name] = t
	}
	return &out
}
