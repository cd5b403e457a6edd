package model

import (
	"sort"
	"strings"

	"github.com/nstf/nstf/formats"
)

// An architecture says how one family of checkpoints is read: which
// configuration keys mean what, and under which names its tensors lie in
// either world. It is a row of the table below and a file of its own.
type architecture struct {
	name string
	// class is the causal model of transformers, for a config.json of our own.
	class string
	// types are the values of config.json's model_type that it answers to.
	types []string
	// gguf is the value of general.architecture, "" where GGUF has none.
	gguf string
	// llama says what llama.cpp expects of gguf files of this architecture,
	// nil where it does not execute them.
	llama *llamaCPP
	// offset is what its checkpoints leave out of their norms' weights.
	offset float32

	fromHF   func(s *settings) *decoder
	fromGGUF func(k *keys) *decoder
	// toHF writes config.json's keys for a graph that came from elsewhere.
	toHF func(c configWriter, g *Graph)

	hfLinks   []link
	ggufLinks []link
}

// llamaCPP is what llama.cpp's loader expects of an architecture beyond the
// keys and tensors that follow from the graph. Source: src/llama-model.cpp
// there, and the files of src/models in newer versions.
type llamaCPP struct {
	outputBias presence // of a bias on attention's output
	copyHead   bool     // output.weight, where the head is tied too
	parallel   bool     // the key use_parallel_residual
	window     presence // of the key attention.sliding_window
	// windowUnused says that llama.cpp wants the key and attends to everything:
	// so it does with phi3 since May 2025.
	windowUnused bool
}

// A presence says whether something may, must or must not be there.
type presence uint8

const (
	forbidden presence = iota
	optional
	required
)

// architectures returns the table, sorted by name. A test holds it complete:
// every row has a file of its name and micro checkpoints.
func architectures() []*architecture {
	return []*architecture{
		gemma2(), gemma3(), gpt2(), gptj(), gptNeoX(), llama(), mistral(), mixtral(),
		phi3(), qwen2(), qwen3(), qwen3MoE(),
	}
}

// Architectures returns the names of the known architectures, sorted.
func Architectures() []string {
	var names []string
	for _, a := range architectures() {
		names = append(names, a.name)
	}
	sort.Strings(names)
	return names
}

func byHFType(file, modelType string) (*architecture, error) {
	for _, a := range architectures() {
		for _, t := range a.types {
			if t == modelType {
				return a, nil
			}
		}
	}
	return nil, unknownArchitecture(file, modelType)
}

func byGGUF(file, name string) (*architecture, error) {
	for _, a := range architectures() {
		if a.gguf != "" && a.gguf == name {
			return a, nil
		}
	}
	return nil, unknownArchitecture(file, name)
}

func byName(name string) (*architecture, bool) {
	for _, a := range architectures() {
		if a.name == name {
			return a, true
		}
	}
	return nil, false
}

func unknownArchitecture(file, name string) error {
	e := formats.Unsupportedf(file, "", "architecture %q", name)
	e.Hint = "known architectures: " + strings.Join(Architectures(), ", ")
	return e
}
