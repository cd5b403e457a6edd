package arch

import (
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/hf"
)

// settings reads config.json and remembers the first error, so that an
// architecture's file lists keys and nothing else. A key without a default is
// required.
type settings struct {
	c    *hf.Config
	kind string // the model_type by which the architecture was found
	err  error
	read map[string]bool // keys that were asked for
}

func newSettings(c *hf.Config) *settings { return &settings{c: c, read: map[string]bool{}} }

func (s *settings) note(err error) {
	if s.err == nil {
		s.err = err
	}
}

func (s *settings) has(key string) bool {
	s.read[key] = true
	return s.c.Has(key)
}

// null reports whether the key is there without a value: some mean something
// else than their absence.
func (s *settings) null(key string) bool {
	s.read[key] = true
	return s.c.HasKey(key) && !s.c.Has(key)
}

// value reads a key that is required.
func value[T any](s *settings, key string, read func(string) (T, error)) T {
	s.read[key] = true
	v, err := read(key)
	s.note(err)
	return v
}

// valueOr reads a key that has a default.
func valueOr[T any](s *settings, key string, def T, read func(string, T) (T, error)) T {
	return value(s, key, func(key string) (T, error) { return read(key, def) })
}

func (s *settings) int(key string) int64 { return value(s, key, s.c.Int) }

func (s *settings) intOr(key string, def int64) int64 { return valueOr(s, key, def, s.c.IntOr) }

func (s *settings) float(key string) float64 { return value(s, key, s.c.Float) }

func (s *settings) floatOr(key string, def float64) float64 { return valueOr(s, key, def, s.c.FloatOr) }

func (s *settings) boolOr(key string, def bool) bool { return valueOr(s, key, def, s.c.BoolOr) }

func (s *settings) stringOr(key, def string) string { return valueOr(s, key, def, s.c.StringOr) }

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
func (s *settings) activation(key, def string) graph.Activation {
	name := s.stringOr(key, def)
	switch name {
	case "silu", "swish":
		return graph.SiLU
	case "gelu", "gelu_python":
		return graph.GELU
	case "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_python_tanh", "gelu_accurate":
		return graph.GELUTanh
	case "quick_gelu":
		return graph.GELUQuick
	case "relu":
		return graph.ReLU
	case "relu2":
		return graph.ReLU2
	case "xielu":
		if s.kind == "apertus" { // whose layers say how its numbers are named
			return graph.ActXIELU
		}
	}
	s.refuse(key, name)
	return graph.SiLU
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
	if def, ok := defaults["num_key_value_heads"]; ok && !s.has("num_key_value_heads") && !s.null("num_key_value_heads") {
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

// headSize reads head_dim where its absence means def, and null an equal share of
// the width.
func (s *settings) headSize(d *decoder, def int64) {
	if !s.has("head_dim") && !s.null("head_dim") {
		d.headDim = def
	}
}

// layers checks a layer count, which sizes what follows.
func (s *settings) layers(n int64) int {
	if n < 1 || n > graph.MaxBlocks {
		if s.err == nil {
			s.bad("num_hidden_layers", n)
		}
		return 1
	}
	return int(n)
}

// window reads a sliding window: the default where the key is absent, 0 (none)
// where it is null. A window of no tokens is refused.
func (s *settings) window(def int64) int64 {
	if s.null("sliding_window") {
		return 0
	}
	n := s.intOr("sliding_window", def)
	if s.has("sliding_window") && n < 1 && s.err == nil {
		s.bad("sliding_window", n)
	}
	return n
}

// windowOf reads the window of a class that always has one.
func (s *settings) windowOf(def int64) int64 {
	if s.null("sliding_window") {
		s.bad("sliding_window", "null")
	}
	return s.window(def)
}

// slidingLayers returns the window of each layer: by layer_types where the
// configuration has them, else by the rule given.
func (s *settings) slidingLayers(window int64, layers int, sliding func(layer int) bool) func(int) int64 {
	if s.has("layer_types") {
		types, err := s.c.Strings("layer_types")
		s.note(err)
		if s.err != nil {
			return nil
		}
		if len(types) != layers {
			s.bad("layer_types", types)
			return nil
		}
		for _, t := range types {
			if t != "sliding_attention" && t != "full_attention" && t != "attention" { // the last is full's older name
				s.refuse("layer_types", t)
			}
		}
		sliding = func(layer int) bool { return types[layer] == "sliding_attention" }
	}
	for i := range layers {
		if sliding(i) && window < 1 && s.err == nil {
			s.bad("sliding_window", "null")
		}
	}
	return func(layer int) int64 {
		if sliding(layer) {
			return window
		}
		return 0
	}
}

// everyClass reads the keys that transformers looks at whatever the class, and
// refuses them where they mean something.
func (s *settings) everyClass(layers int) {
	if !s.boolOr("is_causal", true) {
		s.refuse("is_causal", false)
	}
	if !s.read["per_layer_config"] { // by the architecture
		if p := s.object("per_layer_config"); p != nil && len(p.c.Keys()) > 0 {
			s.refuse("per_layer_config", strings.Join(p.c.Keys(), ", "))
		}
	}
	if s.has("layer_types") {
		types, err := s.c.Strings("layer_types")
		s.note(err)
		if err == nil && s.err == nil && len(types) != layers {
			s.bad("layer_types", types)
		}
	}
}

// everyLayer gives all layers one window; 0 is none.
func everyLayer(window int64) func(int) int64 {
	return func(int) int64 { return window }
}
