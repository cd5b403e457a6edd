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
	// llamaCPP reports that llama.cpp executes gguf files of this architecture.
	llamaCPP bool

	fromHF   func(s *settings) *decoder
	fromGGUF func(k *keys) *decoder

	hfLinks   []link
	ggufLinks []link
}

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
