package planner_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/model"
	qplan "github.com/nstf/nstf/quantize/plan"
	"github.com/nstf/nstf/quantize/plan/planner"
)

// Sizes of the synthetic model.
const (
	synWidth, synInner, synExperts, synVocab = 128, 64, 8, 256
)

const synConfig = `{"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_act": "silu", "hidden_size": %d,
"intermediate_size": %d, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2, "num_local_experts": %d,
"num_experts_per_tok": 2, "vocab_size": %d, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000,
"sliding_window": null, "tie_word_embeddings": false, "bos_token_id": 0, "eos_token_id": 1, "torch_dtype": "float32"}`

// A synthetic model is a folder in the making.
type synthetic struct {
	rng    *rand.Rand
	shapes map[string][]int
	data   map[string][]float32
}

// random adds a matrix of random weights.
func (s *synthetic) random(name string, shape ...int) {
	n := 1
	for _, d := range shape {
		n *= d
	}
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(s.rng.NormFloat64()) * 0.05
	}
	s.shapes[name], s.data[name] = shape, w
}

// product makes a matrix one of a rank.
func (s *synthetic) product(name string, rank int) {
	n, k := s.shapes[name][0], s.shapes[name][1]
	w := s.data[name]
	clear(w)
	for range rank {
		a, b := make([]float64, n), make([]float64, k)
		for i := range a {
			a[i] = 0.1 * s.rng.NormFloat64()
		}
		for j := range b {
			b[j] = 0.1 * s.rng.NormFloat64()
		}
		for i := range w {
			w[i] += float32(a[i/k] * b[i%k])
		}
	}
}

// mix makes the experts' matrices of a role mixtures of two.
func (s *synthetic) mix(pattern string) {
	first, second := s.data[fmt.Sprintf(pattern, 0)], s.data[fmt.Sprintf(pattern, 1)]
	for e := 2; e < synExperts; e++ {
		a, b := float32(s.rng.NormFloat64()), float32(s.rng.NormFloat64())
		for i := range first {
			s.data[fmt.Sprintf(pattern, e)][i] = a*first[i] + b*second[i]
		}
	}
}

// open writes the model and opens it.
func (s *synthetic) open(t *testing.T) *model.Model {
	t.Helper()
	dir := t.TempDir()
	header, body := map[string]any{}, []byte(nil)
	names := make([]string, 0, len(s.data))
	for name := range s.data {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		at := len(body)
		for _, v := range s.data[name] {
			body = binary.LittleEndian.AppendUint32(body, math.Float32bits(v))
		}
		header[name] = map[string]any{"dtype": "F32", "shape": s.shapes[name], "data_offsets": []int{at, len(body)}}
	}
	raw, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	for len(raw)%8 != 0 {
		raw = append(raw, ' ')
	}
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(raw))), append(raw, body...)...)
	config := fmt.Sprintf(synConfig, synWidth, synInner, synExperts, synVocab)
	for name, data := range map[string][]byte{"model.safetensors": file, "config.json": []byte(config)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// randomModel has random weights throughout.
func randomModel() *synthetic {
	s := &synthetic{rng: rand.New(rand.NewPCG(3, 3)), shapes: map[string][]int{}, data: map[string][]float32{}}
	s.random("lm_head.weight", synVocab, synWidth)
	s.random("model.embed_tokens.weight", synVocab, synWidth)
	s.random("model.norm.weight", synWidth)
	for l := range 2 {
		layer := fmt.Sprintf("model.layers.%d.", l)
		s.random(layer+"input_layernorm.weight", synWidth)
		s.random(layer+"post_attention_layernorm.weight", synWidth)
		for _, x := range []string{"q", "k", "v", "o"} {
			s.random(layer+"self_attn."+x+"_proj.weight", synWidth, synWidth)
		}
		s.random(layer+"block_sparse_moe.gate.weight", synExperts, synWidth)
		for e := range synExperts {
			expert := fmt.Sprintf("%sblock_sparse_moe.experts.%d.", layer, e)
			s.random(expert+"w1.weight", synInner, synWidth)
			s.random(expert+"w2.weight", synWidth, synInner)
			s.random(expert+"w3.weight", synInner, synWidth)
		}
	}
	return s
}

// TestStructure plans a model of known structure: attention's output in block 0
// is of rank 32, the experts of block 1 share two matrices, all else is random.
// The planner finds each, and leaves the rest to codes; of a model that is
// random throughout it factors nothing.
func TestStructure(t *testing.T) {
	for _, structured := range []bool{false, true} {
		s := randomModel()
		want := map[string]string{}
		if structured {
			s.product("model.layers.0.self_attn.o_proj.weight", 32)
			want["blocks.0.attn.o.weight"] = "lowrank:32:"
			for i, name := range []string{"gate", "down", "up"} {
				s.mix(fmt.Sprintf("model.layers.1.block_sparse_moe.experts.%%d.w%d.weight", i+1))
				want["blocks.1.moe."+name+".weight"] = "shared:2:"
			}
		}
		m := s.open(t)
		by := planner.New(m, planner.Options{Schemes: "tcq2,tcq3,tcq4,tcq5,tcq6,q8_0", Forms: true, Effort: 1})
		for _, bpw := range []float64{2.9, 3.5, 4.5} { // norms and routers stay as they are
			p, err := by.Plan(context.Background(), nil, qplan.Budget{BPW: bpw})
			if err != nil {
				t.Fatal(err)
			}
			found := 0
			for _, x := range p.Tensors {
				start, ok := want[x.Name]
				if ok {
					found++
				}
				if ok != strings.Contains(x.Recipe.String(), ":") || !strings.HasPrefix(x.Recipe.String(), start) {
					t.Errorf("structured: %v, at %g bits %s is %s, want %q", structured, bpw, x.Name, x.Recipe, start)
				}
			}
			if found != len(want) {
				t.Errorf("%d of %d tensors of known structure are in the plan", found, len(want))
			}
		}
	}
}
