package arch

import (
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/hf"
)

// OfConfig builds the graph that a config.json describes. A multimodal
// configuration holds the language model's under text_config. Errors name path
// or the configuration's file.
func OfConfig(path string, c *hf.Config) (*graph.Graph, *Architecture, error) {
	kind, err := c.String("model_type")
	if err != nil {
		return nil, nil, err
	}
	text, nested := c.Sub("text_config")
	var outer, whole *settings
	if nested && kind == "mistral3" { // which may hold either of two
		outer = newSettings(c)
		if kind, err = text.StringOr("model_type", "mistral"); err != nil {
			return nil, nil, err
		}
		if kind != "mistral" && kind != "ministral3" {
			return nil, nil, formats.Unsupportedf(c.File(), "text_config.model_type", "%q in a model of type %q", kind, "mistral3")
		}
	}
	a, err := byHFType(path, kind)
	if err != nil {
		return nil, nil, err
	}
	if nested {
		if outer == nil && !a.within {
			return nil, nil, formats.Unsupportedf(c.File(), "text_config", "a model within a model of type %q", kind)
		}
		if strings.Contains(kind, "_vl") {
			whole = newSettings(c)
		}
		c = text
	}
	s := newSettings(c)
	s.kind = kind
	d := a.fromHF(s)
	if outer != nil { // whose head it is
		d.tied = outer.boolOr("tie_word_embeddings", true)
		s.note(outer.err)
	} else if whole != nil { // either may say it, and the tensors decide
		d.tied = whole.boolOr("tie_word_embeddings", d.tied)
		s.note(whole.err)
	}
	s.everyClass(d.layers)
	if s.err != nil {
		return nil, nil, s.err
	}
	g, err := d.graph()
	if err != nil {
		return nil, nil, formats.Errorf(c.File(), kind, "%v", err)
	}
	return g, a, nil
}

// OfGGUF builds the graph that a GGUF's metadata describes; some of it, a
// missing head or biases, its tensors say. The architecture is that of the
// graph, where llama.cpp runs several under one name.
func OfGGUF(path string, f *gguf.File, tensors []formats.Tensor) (*graph.Graph, *Architecture, error) {
	name, err := f.String("general.architecture")
	if err != nil {
		return nil, nil, err
	}
	a, err := byGGUF(path, name)
	if err != nil {
		return nil, nil, err
	}
	if len(tensors) == 0 {
		return nil, nil, formats.Errorf(path, "", "no tensors: a vocabulary alone is no model")
	}
	k := newKeys(f, name, tensors)
	d := a.fromGGUF(k)
	if k.err != nil {
		return nil, nil, k.err
	}
	g, err := d.graph()
	if err != nil {
		return nil, nil, formats.Errorf(path, name, "%v", err)
	}
	a, _ = ByName(g.Arch) // GGUF's llama may have been a mixtral
	return g, a, nil
}

// RopeFactors are tensors of GGUF that hold numbers of the graph.
var RopeFactors = []string{"rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"}
