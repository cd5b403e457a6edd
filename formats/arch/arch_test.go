package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/hf"
)

func TestArchitectureTableIsComplete(t *testing.T) {
	types := map[string]int{}
	configs, err := filepath.Glob("../../testdata/micro/*/config.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range configs {
		p, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var c struct {
			Type string `json:"model_type"`
		}
		if err := json.Unmarshal(p, &c); err != nil {
			t.Fatal(err)
		}
		types[c.Type]++
	}
	seen := map[string]string{}
	for _, a := range architectures() {
		if _, err := os.Stat(a.name + ".go"); err != nil {
			t.Errorf("%s has no file of its own: %v", a.name, err)
		}
		if a.class == "" || a.fromHF == nil || a.toHF == nil || len(a.hfLinks) == 0 || len(a.ggufLinks) == 0 {
			t.Errorf("%s lacks a class, a reader or links", a.name)
		}
		if (a.gguf == "") != (a.fromGGUF == nil) {
			t.Errorf("%s has a GGUF name or a reader for it, not both", a.name)
		}
		for _, typ := range a.types {
			if types[typ] == 0 {
				t.Errorf("%s: no micro checkpoint of model_type %q", a.name, typ)
			}
			if other, ok := seen[typ]; ok {
				t.Errorf("%q is both %s and %s", typ, a.name, other)
			}
			seen[typ] = a.name
		}
	}
	page, err := os.ReadFile("../../docs/models.md")
	if err != nil {
		t.Fatal(err)
	}
	for typ := range seen {
		if !strings.Contains(string(page), "`"+typ+"`") {
			t.Errorf("docs/models.md lacks %q", typ)
		}
	}
	if count := fmt.Sprintf("\n%d model types", len(seen)); !strings.Contains(string(page), count) || len(seen) < 40 {
		t.Errorf("docs/models.md does not begin a line with %q", count[1:])
	}
	if !slices.IsSorted(Names()) {
		t.Errorf("architectures: %v", Names())
	}
}

// config returns a valid llama configuration with changes; null removes a key.
func config(t *testing.T, changes string) *hf.Config {
	t.Helper()
	c := map[string]any{
		"model_type": "llama", "vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
		"intermediate_size": 24, "max_position_embeddings": 64,
	}
	var more map[string]any
	if err := json.Unmarshal([]byte(changes), &more); err != nil {
		t.Fatal(err)
	}
	for k, v := range more {
		c[k] = v
		if v == nil {
			delete(c, k)
		}
	}
	p, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := hf.ParseConfig("config.json", p)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, changes, says string
		unsupported         bool
	}{
		{"unknown architecture", `{"model_type":"mamba"}`, `architecture "mamba"`, true},
		{"no type", `{"model_type":null}`, "model_type", false},
		{"missing size", `{"hidden_size":null}`, "hidden_size", false},
		{"size of a wrong type", `{"hidden_size":"16"}`, "hidden_size", false},
		{"no layers", `{"num_hidden_layers":0}`, "num_hidden_layers", false},
		{"layers beyond reason", `{"num_hidden_layers":1000000000}`, "num_hidden_layers", false},
		{"negative heads", `{"num_attention_heads":-4}`, "head", false},
		{"heads that do not group", `{"num_key_value_heads":3}`, "multiple", false},
		{"no heads", `{"num_attention_heads":0}`, "head", false},
		{"vocabulary beyond reason", `{"vocab_size":4611686018427387904}`, "vocabulary", false},
		{"epsilon of zero", `{"rms_norm_eps":0}`, "epsilon", false},
		{"activation", `{"hidden_act":"swiglu_oai"}`, `swiglu_oai`, true},
		{"scaling of an unknown kind", `{"rope_scaling":{"rope_type":"mrope","factor":2}}`, "mrope", true},
		{"linear scaling without a factor", `{"rope_scaling":{"rope_type":"linear"}}`, "factor", false},
		{"scaling that shrinks", `{"rope_scaling":{"rope_type":"linear","factor":0.5}}`, "factor", false},
		{"longrope factors of another size", `{"model_type":"phi3","rope_scaling":{"type":"longrope","short_factor":[1],"long_factor":[1]}}`, "factors", false},
		{"layer types of another number", `{"model_type":"gemma2","layer_types":["full_attention"]}`, "layer_types", false},
		{"layer type", `{"model_type":"gemma2","head_dim":4,"layer_types":["full_attention","chunked_attention"]}`, "chunked_attention", true},
		{"bidirectional", `{"model_type":"gemma3_text","use_bidirectional_attention":true}`, "bidirectional", true},
		{"more experts used than there are", `{"model_type":"mixtral","num_key_value_heads":2,"num_local_experts":2,"num_experts_per_tok":3}`, "experts", false},
		{"sparse step of zero", `{"model_type":"qwen3_moe","decoder_sparse_step":0}`, "decoder_sparse_step", false},
		{"odd rotary dimension", `{"model_type":"gpt_neox","rotary_pct":0.75,"layer_norm_eps":1e-5}`, "rotary dimension", false},
		{"scaling that is no object", `{"rope_scaling":"linear"}`, "rope_scaling", false},
		{"rotary embeddings per layer type where there is one", `{"rope_parameters":{"full_attention":{"rope_theta":1e4}}}`, "per layer type", true},
		{"both styles of a nested rotary embedding", `{"model_type":"gemma3_text","rope_parameters":{"full_attention":{"rope_theta":1e4}},"rope_scaling":{"type":"linear","factor":2}}`, "beside", true},
		{"two attention factors", `{"model_type":"phi3","rope_scaling":{"type":"longrope","short_mscale":1.2,"long_mscale":1.3,"short_factor":[1,1],"long_factor":[1,1]}}`, "short_mscale", true},
		{"turns below zero", `{"rope_scaling":{"type":"yarn","factor":2,"beta_fast":-1}}`, "turns", false},
		{"a base of one", `{"rope_theta":1,"rope_scaling":{"type":"yarn","factor":2}}`, "base", false},
		{"frequencies that cross", `{"rope_scaling":{"rope_type":"llama3","factor":2,"low_freq_factor":4,"high_freq_factor":4}}`, "frequencies", false},
		{"an original context of zero", `{"rope_scaling":{"rope_type":"yarn","factor":2,"original_max_position_embeddings":0}}`, "context of 0", false},
		{"a model within a model", `{"text_config":{"vocab_size":8}}`, "text_config", true},
		{"an attention factor below zero", `{"rope_scaling":{"rope_type":"yarn","factor":2,"attention_factor":-1}}`, "attention factor", false},
		{"a base of zero", `{"rope_theta":0}`, "base", false},
		{"latents that are rotated", `{"model_type":"kimi_linear","num_key_value_heads":4,"mla_use_nope":false}`, "mla_use_nope", true},
		{"a layer that is of both kinds", `{"model_type":"kimi_linear","num_key_value_heads":4,"linear_attn_config":{"full_attn_layers":[1],"kda_layers":[1,2]}}`, "full_attn_layers", false},
		{"a layer that is of none", `{"model_type":"kimi_linear","num_key_value_heads":4,"linear_attn_config":{"full_attn_layers":[1],"kda_layers":[]}}`, "full_attn_layers", false},
		{"a router of other scores", `{"model_type":"kimi_linear","num_key_value_heads":4,"moe_router_activation_func":"softmax"}`, "moe_router_activation_func", true},
		{"modules that nobody knows", `{"model_type":"kimi_linear","num_key_value_heads":4,"num_nextn_predict_layers":1}`, "num_nextn_predict_layers", true},
		{"another activation of convolutions", `{"model_type":"kimi_linear","num_key_value_heads":4,"hidden_act":"gelu"}`, "hidden_act", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := OfConfig("dir", config(t, c.changes))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("error %v does not say %q", err, c.says)
			}
			var u *formats.UnsupportedError
			var f *formats.FormatError
			if c.unsupported && !errors.As(err, &u) || !c.unsupported && !errors.As(err, &f) {
				t.Errorf("%T is of the wrong family: %v", err, err)
			}
		})
	}
	if _, _, err := OfConfig("dir", config(t, `{}`)); err != nil {
		t.Errorf("the configuration that the cases change is refused itself: %v", err)
	}
}

func TestUnknownArchitectureListsTheKnown(t *testing.T) {
	_, _, err := OfConfig("dir", config(t, `{"model_type":"mamba"}`))
	var u *formats.UnsupportedError
	if !errors.As(err, &u) {
		t.Fatalf("%T: %v", err, err)
	}
	for _, name := range Names() {
		if !strings.Contains(u.Hint, name) {
			t.Errorf("hint %q does not list %s", u.Hint, name)
		}
	}
}

// Models whose layers are all dense are written without what they lack.
func TestMixturesWithoutExperts(t *testing.T) {
	for name, dense := range map[string]map[string]any{
		"ernie4_5_moe": {"moe_layer_start_index": 1, "moe_layer_interval": 9}, "glm4_moe": {"first_k_dense_replace": 3}, "deepseek_v3": {"first_k_dense_replace": 2},
		"lfm2_moe": {"num_dense_layers": 3}, "qwen2_moe": {"mlp_only_layers": []int{0, 1}}, "qwen3_moe": {"mlp_only_layers": []int{0, 1, 2}},
		"qwen3_next": {"mlp_only_layers": []int{0, 1, 2, 3}},
	} {
		var c map[string]any
		p, err := os.ReadFile("../../testdata/micro/" + name + "/config.json")
		if err == nil {
			err = json.Unmarshal(p, &c)
		}
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(c, dense)
		if p, err = json.Marshal(c); err != nil {
			t.Fatal(err)
		}
		parsed, err := hf.ParseConfig(name, p)
		if err != nil {
			t.Fatal(err)
		}
		g, a, err := OfConfig(name, parsed)
		if err != nil {
			t.Fatal(err)
		}
		if m, _ := experts(g); m != nil {
			t.Errorf("%s has experts", name)
		}
		if a.Config(g, "float32")["hidden_size"] != g.Width || len(a.Keys(g, "", 0)) == 0 {
			t.Errorf("%s is not written", name)
		}
	}
}

// Both styles of configuration in circulation give one graph.
func TestBothStylesOfConfiguration(t *testing.T) {
	for old, modern := range map[string]string{
		`{"rope_theta":5e5}`: `{"rope_parameters":{"rope_theta":5e5,"rope_type":"default"}}`,
		`{"rope_theta":5e5,"rope_scaling":{"type":"linear","factor":4}}`: `{"rope_parameters":{"rope_theta":5e5,"rope_type":"linear","factor":4}}`,
		`{"model_type":"gemma3_text","rope_theta":7e5,"rope_local_base_freq":9e3,"rope_scaling":{"rope_type":"linear","factor":8}}`: `{"model_type":"gemma3_text","rope_parameters":{
			"full_attention":{"rope_theta":7e5,"rope_type":"linear","factor":8},"sliding_attention":{"rope_theta":9e3,"rope_type":"default"}}}`,
		`{"model_type":"gpt_neox","rotary_pct":0.5,"rotary_emb_base":2e4}`: `{"model_type":"gpt_neox","rope_parameters":{"rope_theta":2e4,"partial_rotary_factor":0.5}}`,
		`{"head_dim":null}`: `{"head_dim":4}`,
		// The defaults of transformers' classes.
		`{"model_type":"mixtral","num_key_value_heads":2}`:                                                    `{"model_type":"mixtral","num_key_value_heads":2,"rms_norm_eps":1e-5,"rope_theta":1e6}`,
		`{"model_type":"mixtral","num_attention_heads":8}`:                                                    `{"model_type":"mixtral","num_attention_heads":8,"num_key_value_heads":8}`,
		`{"model_type":"qwen3_moe","num_key_value_heads":4}`:                                                  `{"model_type":"qwen3_moe","num_key_value_heads":4,"head_dim":4}`,
		`{"model_type":"qwen3"}`:                                                                              `{"model_type":"qwen3","head_dim":128}`,
		`{"hidden_act":"gelu_python"}`:                                                                        `{"hidden_act":"gelu"}`,
		`{"hidden_act":"gelu_accurate"}`:                                                                      `{"hidden_act":"gelu_pytorch_tanh"}`,
		`{"rope_scaling":{"type":"yarn","factor":2,"beta_fast":0}}`:                                           `{"rope_scaling":{"type":"yarn","factor":2,"beta_fast":32}}`,
		`{"rope_scaling":{},"rope_parameters":{"rope_theta":3e4}}`:                                            `{"rope_theta":3e4}`,
		`{"rope_scaling":{"type":"linear","factor":4},"rope_theta":2e4,"rope_parameters":{"rope_theta":3e4}}`: `{"rope_theta":2e4,"rope_scaling":{"type":"linear","factor":4}}`,
		`{"model_type":"gemma3_text","rope_theta":7e5,"rope_local_base_freq":9e3}`: `{"model_type":"gemma3_text","rope_theta":7e5,"rope_local_base_freq":9e3,"rope_parameters":{
			"full_attention":{"rope_type":"default"},"sliding_attention":{"rope_type":"default"}}}`,
		// The class of multimodal checkpoints applies no cap to logits.
		`{"model_type":"gemma3","final_logit_softcapping":5}`: `{"model_type":"gemma3_text"}`,
		`{"model_type":"phi3","rope_scaling":{"type":"longrope","factor":4,"short_factor":[1,1],"long_factor":[2,2]}}`: `{"model_type":"phi3",
			"original_max_position_embeddings":4096,"rope_scaling":{"type":"longrope","factor":4,"short_factor":[1,1],"long_factor":[2,2]}}`,
	} {
		a, _, err := OfConfig("dir", config(t, old))
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := OfConfig("dir", config(t, modern))
		if err != nil {
			t.Fatal(err)
		}
		if what := graph.Difference(a, b); what != "" {
			t.Errorf("%s and %s differ: %s", old, modern, what)
		}
	}
}

// A null window is none, also where another key says that there is one.
func TestNullWindow(t *testing.T) {
	for _, typ := range []string{"qwen2", "qwen3", "qwen3_moe"} {
		c, err := hf.ParseConfig("config.json", fmt.Appendf(nil, `{"model_type":%q,"use_sliding_window":true,"sliding_window":null,"max_window_layers":0,
			"vocab_size":32,"hidden_size":16,"num_hidden_layers":1,"num_attention_heads":4,"intermediate_size":24,"max_position_embeddings":64}`, typ))
		if err != nil {
			t.Fatal(err)
		}
		g, _, err := OfConfig("dir", c)
		if err != nil || g.Blocks[0].Attn.Window != 0 {
			t.Errorf("%s: %v, %v", typ, g, err)
		}
	}
}

// GPT-J rotates 64 numbers where the key is absent; null is no number.
func TestRotaryDimOfGPTJ(t *testing.T) {
	const rest = `"model_type":"gptj","vocab_size":32,"n_embd":256,"n_head":2,"n_layer":1,"n_positions":64`
	for text, want := range map[string]int64{`{` + rest + `}`: 64, `{"rotary_dim":32,` + rest + `}`: 32, `{"rotary_dim":null,` + rest + `}`: 0} {
		c, err := hf.ParseConfig("config.json", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		g, _, err := OfConfig("dir", c)
		if (err != nil) != (want == 0) || err == nil && g.Ropes[0].Dim != want {
			t.Errorf("%s: %v, %v", text, g, err)
		}
	}
}

// The windows of old files of Phi-3, which have no key for it.
func TestOldPhi3Window(t *testing.T) {
	for _, c := range []struct {
		layers  int
		context int64
		want    int64
	}{{32, 4096, 2047}, {40, 4096, 2047}, {32, 131072, 0}, {40, 16384, 0}} {
		if got := oldPhi3Window(&decoder{layers: c.layers, context: c.context}); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// A mistral without the key has transformers' default window, one with null
// has none.
func TestMistralWindow(t *testing.T) {
	for changes, window := range map[string]int64{
		`{"model_type":"mistral","num_key_value_heads":2}`:                     4096,
		`{"model_type":"mistral","num_key_value_heads":2,"sliding_window":16}`: 16,
	} {
		g, _, err := OfConfig("dir", config(t, changes))
		if err != nil {
			t.Fatal(err)
		}
		if got := g.Blocks[1].Attn.Window; got != window {
			t.Errorf("%s: window %d, want %d", changes, got, window)
		}
	}
	c, err := hf.ParseConfig("config.json", []byte(`{"model_type":"mistral","sliding_window":null,"num_key_value_heads":null,"vocab_size":32,"hidden_size":16,
		"num_hidden_layers":1,"num_attention_heads":4,"intermediate_size":24,"max_position_embeddings":64}`))
	if err != nil {
		t.Fatal(err)
	}
	g, _, err := OfConfig("dir", c)
	if err != nil || g.Blocks[0].Attn.Window != 0 {
		t.Errorf("null gives window %v, %v", g, err)
	}
}

// Any configuration gives a graph that passes its own check, or an error.
func FuzzConfig(f *testing.F) {
	configs, err := filepath.Glob("../../testdata/micro/*/config.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range configs {
		p, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := hf.ParseConfig("config.json", data)
		if err != nil {
			return
		}
		g, _, err := OfConfig("dir", c)
		if err != nil {
			return
		}
		if err := g.Check(); err != nil {
			t.Fatalf("accepted and then refused: %v", err)
		}
	})
}
