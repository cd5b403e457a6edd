package arch

import (
	"fmt"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
)

// apertus is llama with norms of query and key and a feed-forward layer without a gate,
// whose activation has numbers of its own in each layer.
//
// Sources: configuration_apertus.py and modeling_apertus.py of transformers,
// src/models/apertus.cpp of llama.cpp.
func apertus() *Architecture {
	return &Architecture{
		name: "apertus", class: "ApertusForCausalLM", types: []string{"apertus"}, gguf: "apertus",
		llama: &llamaCPP{outputBias: optional, wholeRope: true, factors: true, copyHead: true},
		fromHF: func(s *settings) *decoder {
			d := s.common("apertus", nil)
			d.eps = float32(s.floatOr("rms_norm_eps", 1e-5))
			d.qkNorm, d.gated = true, false
			if !s.has("hidden_act") {
				d.act = graph.ActXIELU
			}
			b := s.boolOr("attention_bias", false)
			d.bias = biases{qkv: b, o: b}
			if s.ropeObject() == nil { // the class's own
				r := s.rotation(d, nil, 12e6, s.floatOr("partial_rotary_factor", 1))
				r.Scaling = graph.RopeScaling{Kind: graph.ScaleLlama3, Factor: 8, Original: 8192, LowFreq: 1, HighFreq: 4}
				d.ropes = []graph.Rope{s.whole(d, r)}
			} else {
				d.ropes = []graph.Rope{s.rope(d, 12e6)}
			}
			d.xielus()
			return d
		},
		fromGGUF: func(k *keys) *decoder {
			d := k.common("apertus")
			d.qkNorm, d.gated, d.act = true, false, graph.ActXIELU
			d.ropes = []graph.Rope{k.rope(d, graph.RopeHalf)}
			var numbers [4][]float32
			for i, key := range xieluKeys {
				numbers[i] = k.floatByLayer("xielu."+key, d.layers)
			}
			d.each = func(layer int, b *graph.Block) {
				b.FFN.XIELU = &graph.XIELU{AlphaP: numbers[0][layer], AlphaN: numbers[1][layer], Beta: numbers[2][layer], Eps: numbers[3][layer]}
			}
			return d
		},
		toHF: func(c configWriter, g *graph.Graph) {
			c.common(g)
			if g.Ropes[0].Scaling.Kind == graph.ScaleNone { // which the class scales where nothing is said
				c["rope_parameters"] = map[string]any{"rope_type": "default", "rope_theta": g.Ropes[0].Theta}
				delete(c, "rope_theta")
			}
		},
		toGGUF: func(w *keyWriter, g *graph.Graph) {
			for i, key := range xieluKeys {
				list := make([]float32, len(g.Blocks))
				for j := range g.Blocks {
					if x := g.Blocks[j].FFN.XIELU; x != nil {
						list[j] = *xieluNumbers(x)[i]
					}
				}
				w.raw("xielu."+key, list)
			}
		},
		hfLinks: append([]Link{
			one("model.layers.#.attention_layernorm", "blocks.#.attn_norm"),
			one("model.layers.#.feedforward_layernorm", "blocks.#.ffn_norm"),
		}, hfDecoderLinks()...),
		ggufLinks: ggufDecoderLinks(),
		numbers: func(g *graph.Graph) (out []Number) {
			for i := range g.Blocks {
				x := g.Blocks[i].FFN.XIELU
				if x == nil {
					continue
				}
				for j, key := range xieluKeys {
					n := Number{Tensor: fmt.Sprintf("model.layers.%d.mlp.act_fn.%s", i, key), Value: xieluNumbers(x)[j]}
					if j < 2 {
						n.Shape = []int64{1}
					}
					out = append(out, n)
				}
			}
			return out
		},
	}
}

// xieluKeys are the names of the activation's numbers in both worlds; GGUF has them
// without the architecture before them.
var xieluKeys = [4]string{"alpha_p", "alpha_n", "beta", "eps"}

func xieluNumbers(x *graph.XIELU) [4]*float32 {
	return [4]*float32{&x.AlphaP, &x.AlphaN, &x.Beta, &x.Eps}
}

// xielus gives layers room for the activation's numbers, which the checkpoint has.
func (d *decoder) xielus() {
	if d.act == graph.ActXIELU {
		d.each = func(_ int, b *graph.Block) { b.FFN.XIELU = &graph.XIELU{} }
	}
}

// floatByLayer reads a number of each layer, which may be one for all.
func (k *keys) floatByLayer(key string, layers int) []float32 {
	list, err := k.f.Floats(key)
	if err != nil {
		one, err := k.f.Float(key)
		k.note(err)
		list = []float32{float32(one)}
		for len(list) < layers {
			list = append(list, list[0])
		}
	}
	if len(list) < layers {
		k.note(formats.Errorf(k.f.Name(), key, "%d layers of %d", len(list), layers))
		return make([]float32, layers)
	}
	return list
}
