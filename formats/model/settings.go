package model

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/hf"
)

// settings reads config.json and remembers the first error, so that an
// architecture's file lists keys and nothing else. A key without a default is
// required.
type settings struct {
	c   *hf.Config
	err error
}

func (s *settings) note(err error) {
	if s.err == nil {
		s.err = err
	}
}

func (s *settings) has(key string) bool { return s.c.Has(key) }

func (s *settings) int(key string) int64 {
	v, err := s.c.Int(key)
	s.note(err)
	return v
}

func (s *settings) intOr(key string, def int64) int64 {
	v, err := s.c.IntOr(key, def)
	s.note(err)
	return v
}

func (s *settings) float(key string) float64 {
	v, err := s.c.Float(key)
	s.note(err)
	return v
}

func (s *settings) floatOr(key string, def float64) float64 {
	v, err := s.c.FloatOr(key, def)
	s.note(err)
	return v
}

func (s *settings) boolOr(key string, def bool) bool {
	v, err := s.c.BoolOr(key, def)
	s.note(err)
	return v
}

func (s *settings) stringOr(key, def string) string {
	v, err := s.c.StringOr(key, def)
	s.note(err)
	return v
}

// refuse notes that a key has a value that is valid and not implemented.
func (s *settings) refuse(key string, value any) {
	s.note(formats.Unsupportedf(s.c.File(), key, "value %v", value))
}

// bad notes that a key has an impossible value.
func (s *settings) bad(key string, value any) {
	s.note(formats.Errorf(s.c.File(), key, "value %v makes no sense", value))
}

// activation reads an activation function by the names that transformers
// gives them (its table ACT2FN).
func (s *settings) activation(key, def string) Activation {
	name := s.stringOr(key, def)
	switch name {
	case "silu", "swish":
		return SiLU
	case "gelu", "gelu_python":
		return GELU
	case "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_python_tanh", "gelu_accurate":
		return GELUTanh
	case "quick_gelu":
		return GELUQuick
	case "relu":
		return ReLU
	}
	s.refuse(key, name)
	return SiLU
}

// common reads the keys that the llama family spells alike. A size that has
// no entry in defaults is required.
func (s *settings) common(arch string, defaults map[string]int64) *decoder {
	size := func(key string) int64 {
		if def, ok := defaults[key]; ok {
			return s.intOr(key, def)
		}
		return s.int(key)
	}
	d := newDecoder(arch)
	d.vocab = size("vocab_size")
	d.width = size("hidden_size")
	d.layers = s.layers(size("num_hidden_layers"))
	d.heads = size("num_attention_heads")
	d.kvHeads = s.intOr("num_key_value_heads", d.heads)
	if def, ok := defaults["num_key_value_heads"]; ok && !s.c.HasKey("num_key_value_heads") {
		d.kvHeads = def
	}
	d.inner = size("intermediate_size")
	d.context = size("max_position_embeddings")
	d.eps = float32(s.floatOr("rms_norm_eps", 1e-6))
	d.act = s.activation("hidden_act", "silu")
	d.tied = s.boolOr("tie_word_embeddings", false)
	d.headDim = s.intOr("head_dim", 0)
	if d.headDim == 0 && d.heads > 0 {
		d.headDim = d.width / d.heads
	}
	return d
}

// layers checks a layer count, which sizes what follows.
func (s *settings) layers(n int64) int {
	if n < 1 || n > maxLayers {
		if s.err == nil {
			s.bad("num_hidden_layers", n)
		}
		return 1
	}
	return int(n)
}

// slidingLayers returns the window of each layer: by layer_types where the
// configuration has them, else by the rule given.
func (s *settings) slidingLayers(window int64, layers int, sliding func(layer int) bool) func(int) int64 {
	if !s.has("layer_types") {
		return func(layer int) int64 {
			if window > 0 && sliding(layer) {
				return window
			}
			return 0
		}
	}
	types, err := s.c.Strings("layer_types")
	s.note(err)
	if s.err == nil && len(types) < layers {
		s.bad("layer_types", types)
	}
	if s.err != nil {
		return nil
	}
	for _, t := range types[:layers] {
		switch {
		case t != "sliding_attention" && t != "full_attention":
			s.refuse("layer_types", t)
		case t == "sliding_attention" && window <= 0:
			s.bad("sliding_window", window)
		}
	}
	return func(layer int) int64 {
		if types[layer] == "sliding_attention" {
			return window
		}
		return 0
	}
}

// everyLayer gives all layers one window; 0 is none.
func everyLayer(window int64) func(int) int64 {
	return func(int) int64 { return window }
}
