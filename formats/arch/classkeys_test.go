package arch

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/hf"
	"github.com/nstf/nstf/testdata/packed"
)

// withoutMeaning are keys of transformers' configuration classes that change
// no logit: what training, generation, other heads and Python's callers read.
// runtime/exec's TestConfigs holds that to transformers' logits.
var withoutMeaning = []string{
	"architectures", "dtype", "return_dict", "output_hidden_states", "transformers_version", "use_cache",
	"chunk_size_feed_forward", "is_encoder_decoder", "is_decoder", "pretraining_tp", "reorder_and_upcast_attn",
	"id2label", "label2id", "problem_type",
	"summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
	"attention_dropout", "attn_pdrop", "classifier_dropout", "residual_dropout", "embedding_dropout", "embd_pdrop", "hidden_dropout", "resid_pdrop", "initializer_range",
	"output_router_logits", "router_aux_loss_coef", "router_jitter_noise",
	"bos_token_id", "eos_token_id", "eod_token_id", "pad_token_id", "sep_token_id",
	"chunk_size", "mamba_chunk_size", "mamba_ssm_cache_dtype", "use_mamba_kernels", "num_logits_to_keep", "residual_in_fp32", // how, not what
	"time_step_max", "time_step_floor", "rescale_prenorm_residual", // where training begins
	"expand", "mamba_proj_bias", "n_shared_experts", "moe_shared_expert_overlap", "num_nextn_predict_layers", "mtp_layers_block_type", // disregarded
}

// Every key of a known architecture's configuration class is read, or is known
// to mean nothing here; testdata/configs has a case that moves it.
func TestEveryClassKeyIsKnown(t *testing.T) {
	var cs struct {
		Keys  map[string][]string       `json:"keys"`
		Bases map[string]map[string]any `json:"bases"`
		Cases []struct {
			Type string         `json:"type"`
			Set  map[string]any `json:"set"`
		} `json:"cases"`
	}
	later, err := filepath.Glob("../../testdata/configs/*/cases.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	all := cs
	all.Keys, all.Bases = map[string][]string{}, map[string]map[string]any{}
	for _, path := range append(later, "../../testdata/configs/cases.json.gz") {
		if err := json.Unmarshal(packed.Read(t, strings.TrimSuffix(path, ".gz")), &cs); err != nil {
			t.Fatal(err)
		}
		maps.Copy(all.Keys, cs.Keys)
		maps.Copy(all.Bases, cs.Bases)
		all.Cases = append(all.Cases, cs.Cases...)
		cs.Keys, cs.Bases, cs.Cases = nil, nil, nil
	}
	cs = all
	read, moved, known := map[string]map[string]bool{}, map[string]map[string]bool{}, map[string]bool{}
	for _, c := range cs.Cases {
		if read[c.Type] == nil {
			read[c.Type], moved[c.Type] = map[string]bool{}, map[string]bool{}
		}
		config := maps.Clone(cs.Bases[c.Type])
		maps.Copy(config, c.Set)
		maps.Copy(read[c.Type], keysRead(t, config))
		for key := range c.Set {
			moved[c.Type][key] = true
		}
	}
	for _, a := range architectures() {
		typ := a.types[0]
		if len(cs.Keys[typ]) < 20 {
			t.Errorf("%s: %d keys of its class are recorded", typ, len(cs.Keys[typ]))
		}
		for _, key := range cs.Keys[typ] {
			inert := slices.Contains(withoutMeaning, key)
			known[key] = known[key] || inert
			if !inert && !read[typ][key] && key != "attn_logit_softcapping" { // whose value gemma3's code disregards
				t.Errorf("%s: %s is neither read nor known to mean nothing", typ, key)
			}
			if !moved[typ][key] {
				t.Errorf("%s: no case moves %s", typ, key)
			}
		}
	}
	for _, key := range withoutMeaning {
		if !known[key] {
			t.Errorf("no class has %s", key)
		}
	}
}

// keysRead returns the keys that a configuration's architecture asks for.
func keysRead(t *testing.T, config map[string]any) map[string]bool {
	t.Helper()
	p, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := hf.ParseConfig("config.json", p)
	if err != nil {
		t.Fatal(err)
	}
	a, err := byHFType("config.json", config["model_type"].(string))
	if err != nil {
		t.Fatal(err)
	}
	s := newSettings(c)
	d := a.fromHF(s)
	s.everyClass(d.layers)
	return s.read
}
