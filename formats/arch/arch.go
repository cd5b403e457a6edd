// Package arch knows architectures by name: which configuration keys of a
// checkpoint mean what in a graph, under which names and in which order its
// tensors lie in either world, and what llama.cpp makes of it. Each is one file
// and one row; everything else goes by what that file says. Package checkpoint
// reads by it, package export writes by it.
package arch

import (
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
)

// An Architecture says how one family of checkpoints is read: which
// configuration keys mean what, and under which names its tensors lie in
// either world. It is a row of the table below and a file of its own.
type Architecture struct {
	name string
	// class is the causal model of transformers, for a config.json of our own.
	class string
	// types are the values of config.json's model_type that it answers to.
	types []string
	// gguf is the value of general.architecture, "" where GGUF has none.
	gguf string
	// also are names of GGUF architectures whose text model is one of this.
	also []string
	// ggufExperts is its value where some block has experts, "" where it is the same.
	ggufExperts string
	// within says that multimodal checkpoints hold the model under text_config.
	within bool
	// covered is the GGUF architecture that covers it, where it has none of its own.
	covered string
	// llama says what llama.cpp expects of gguf files of this architecture,
	// nil where it does not execute them.
	llama *llamaCPP
	// offset is what its checkpoints leave out of their norms' weights.
	offset float32

	fromHF   func(s *settings) *decoder
	fromGGUF func(k *keys) *decoder
	// toHF writes config.json's keys for a graph that came from elsewhere.
	toHF func(c configWriter, g *graph.Graph)
	// toGGUF adds the keys of GGUF that no other architecture has, nil for none.
	toGGUF func(w *keyWriter, g *graph.Graph)

	hfLinks   []Link
	ggufLinks []Link
	// numbers lists the tensors of Hugging Face's checkpoints whose numbers the graph
	// has, nil for none. GGUF has them as keys.
	numbers func(g *graph.Graph) []Number
	// unused says which tensors of its links' names GGUF files have where the graph
	// does not use them, and llama.cpp neither; nil: none.
	unused func(g *graph.Graph, pattern string, block int) bool
}

// Unused reports whether a tensor of GGUF by the name of one of the links is left
// where the graph does not use it.
func (a *Architecture) Unused(g *graph.Graph, pattern string, block int) bool {
	return a.unused != nil && block >= 0 && a.unused(g, pattern, block)
}

// A Number is one of a graph that checkpoints keep as a tensor of one element.
type Number struct {
	Tensor string
	Shape  []int64
	Value  *float32 // in the graph
}

// Numbers lists those of a graph.
func (a *Architecture) Numbers(g *graph.Graph) []Number {
	if a.numbers == nil {
		return nil
	}
	return a.numbers(g)
}

// HF returns where the graph's tensors lie in a Hugging Face directory.
func (a *Architecture) HF() []Link { return a.hfLinks }

// HFWithin is HF for a model that lies in a multimodal one of a type, or in none: "".
// One class there knows stacks of experts alone.
func (a *Architecture) HFWithin(modelType string) []Link {
	if modelType != "qwen3_vl_moe" {
		return a.hfLinks
	}
	return slices.DeleteFunc(slices.Clone(a.hfLinks), func(l Link) bool { return strings.Contains(l.Foreign, ".experts.@.") })
}

// NameWithin returns what a multimodal model of a type calls a tensor of its text
// model.
func NameWithin(modelType, name string) string {
	if modelType == "llama4" {
		return "language_model." + name
	}
	if rest, ok := strings.CutPrefix(name, "model."); ok {
		return "model.language_model." + rest
	}
	return name
}

// GGUF returns where they lie in a GGUF file.
func (a *Architecture) GGUF() []Link { return a.ggufLinks }

// Name returns the name that graphs bear.
func (a *Architecture) Name() string { return a.name }

// Offset returns what its checkpoints leave out of their norms' weights.
func (a *Architecture) Offset() float32 { return a.offset }

// architectures returns the table, sorted by name, which is made once: it takes half a millisecond and
// nobody changes it. A test holds it complete: every row has a file of its name and micro checkpoints.
var architectures = sync.OnceValue(func() []*Architecture {
	return []*Architecture{
		apertus(), cohere(), cohere2(), deepSeekV2(), deepSeekV3(), ernie45(), ernie45MoE(), exaone4(), falcon(), gemma2(), gemma3(), gemma4(), gemma4Unified(), gpt2(), gptj(), gptNeoX(), gptOSS(), glm4MoE(), glm4MoELite(), granite(), hunYuanDense(), hunYuanMoE(),
		graniteMoEHybrid(), kimiLinear(), lfm2(), lfm2MoE(), nemotronH(),
		llama(), llama4(),
		miniMaxM2(), ministral3(), mistral(), mixtral(), olmo2(), olmo3(), phi3(), qwen2(), qwen2MoE(), qwen3(), qwen35(), qwen35MoE(), qwen3MoE(), qwen3Next(), seedOSS(), smolLM3(), stableLM(), starCoder2(),
	}
})

// Names returns the names of the known architectures, sorted.
func Names() []string {
	var names []string
	for _, a := range architectures() {
		names = append(names, a.name)
	}
	sort.Strings(names)
	return names
}

func byHFType(file, modelType string) (*Architecture, error) {
	for _, a := range architectures() {
		for _, t := range a.types {
			if t == modelType {
				return a, nil
			}
		}
	}
	return nil, Unknown(file, modelType)
}

func byGGUF(file, name string) (*Architecture, error) {
	for _, a := range architectures() {
		if name != "" && (a.gguf == name || a.ggufExperts == name) || slices.Contains(a.also, name) {
			return a, nil
		}
	}
	return nil, Unknown(file, name)
}

// ByName returns the architecture that graphs call so.
func ByName(name string) (*Architecture, bool) {
	for _, a := range architectures() {
		if a.name == name {
			return a, true
		}
	}
	return nil, false
}

// Unknown is the error of an architecture that has no row.
func Unknown(file, name string) error {
	e := formats.Unsupportedf(file, "", "architecture %q", name)
	e.Hint = "known architectures: " + strings.Join(Names(), ", ")
	return e
}
