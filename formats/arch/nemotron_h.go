package arch

import (
	"fmt"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
)

// nemotronH is Nemotron-H, Nemotron Nano 2 and Nemotron 3: blocks of one branch each, a
// state space, attention without rotation, a feed-forward layer or a mixture of squared
// relu without gates; experts may read a smaller space than the model's. Modules of
// multi-token prediction, which transformers disregards, pass through.
//
// Source: configuration_nemotron_h.py and modeling_nemotron_h.py of transformers 5.23;
// llama.cpp's conversion/nemotron.py and src/models/nemotron-h.cpp.
func nemotronH() *Architecture {
	return &Architecture{
		name: "nemotron_h", class: "NemotronHForCausalLM", types: []string{"nemotron_h"}, gguf: "nemotron_h", ggufExperts: "nemotron_h_moe",
		llama:    &llamaCPP{outputBias: optional, mambas: true, someExperts: true},
		fromHF:   func(s *settings) *decoder { return s.nemotronH() },
		fromGGUF: func(k *keys) *decoder { return k.nemotronH() },
		toHF:     configWriter.nemotronH,
		toGGUF:   (*keyWriter).nemotronH,
		hfLinks:  hfNemotronLinks(), ggufLinks: ggufNemotronLinks(),
	}
}

// A nemotronBlock says what a block is, as hybrid_override_pattern spells it.
type nemotronBlock byte

const (
	nemotronMamba  nemotronBlock = 'M'
	nemotronAttn   nemotronBlock = '*'
	nemotronDense  nemotronBlock = '-'
	nemotronExpert nemotronBlock = 'E'
)

// names are those of layers_block_type, the first of each the present one.
func (b nemotronBlock) names() []string {
	return map[nemotronBlock][]string{nemotronMamba: {"linear_attention", "mamba"}, nemotronAttn: {"full_attention", "attention"},
		nemotronDense: {"mlp"}, nemotronExpert: {"moe"}}[b]
}

var nemotronBlocks = [...]nemotronBlock{nemotronMamba, nemotronAttn, nemotronDense, nemotronExpert}

// nemotronPattern reads what each block is.
func (s *settings) nemotronPattern() []nemotronBlock {
	key := ""
	for _, k := range []string{"hybrid_override_pattern", "layers_block_type", "layer_types"} { // the last wins
		if s.has(k) {
			key = k
		}
	}
	var out []nemotronBlock
	switch key {
	case "":
		return []nemotronBlock{nemotronMamba, nemotronExpert, nemotronAttn, nemotronDense}
	case "hybrid_override_pattern":
		for _, b := range []byte(s.stringOr(key, "")) {
			if !slices.Contains(nemotronBlocks[:], nemotronBlock(b)) {
				s.refuse(key, fmt.Sprintf("%q", b))
			}
			out = append(out, nemotronBlock(b))
		}
	default:
		types, err := s.c.Strings(key)
		s.note(err)
		for _, t := range types {
			i := slices.IndexFunc(nemotronBlocks[:], func(b nemotronBlock) bool { return slices.Contains(b.names(), t) })
			if i < 0 {
				s.refuse(key, t)
				continue
			}
			out = append(out, nemotronBlocks[i])
		}
	}
	return out
}

func (s *settings) nemotronH() *decoder {
	pattern := s.nemotronPattern()
	d := newDecoder("nemotron_h")
	d.vocab, d.width = s.intOr("vocab_size", 131072), s.intOr("hidden_size", 4096)
	d.layers = s.layers(int64(len(pattern)))
	d.heads, d.headDim = s.intOr("num_attention_heads", 32), s.intOr("head_dim", 128)
	if d.kvHeads = s.intOr("num_key_value_heads", 8); s.null("num_key_value_heads") {
		d.kvHeads = d.heads
	}
	d.inner, d.context = s.intOr("intermediate_size", 21504), s.intOr("max_position_embeddings", 4096)
	d.eps = float32(s.floatOr("layer_norm_epsilon", 1e-5))
	for _, key := range []string{"tie_word_embeddings", "attention_bias", "sliding_window"} { // which its code disregards
		s.has(key)
	}
	d.act, d.gated = s.activation("mlp_hidden_act", "relu2"), false
	d.bias.ffn = s.boolOr("mlp_bias", false)
	m := &mambaShape{heads: s.intOr("mamba_num_heads", 128), headDim: s.intOr("mamba_head_dim", 64), groups: s.intOr("mamba_n_groups", s.intOr("n_groups", 8)),
		state: s.intOr("ssm_state_size", 128), kernel: s.intOr("mamba_d_conv", s.intOr("conv_kernel", 4)),
		convBias: s.boolOr("mamba_conv_bias", s.boolOr("use_conv_bias", true)), bias: s.boolOr("use_bias", false), eps: d.eps}
	s.nemotronSteps()
	if err := m.check(); err != nil {
		s.note(formats.Errorf(s.c.File(), "mamba_num_heads", "%v", err))
		return d
	}
	if act := s.stringOr("mamba_hidden_act", "silu"); act != "silu" {
		s.refuse("mamba_hidden_act", act)
	}
	d.moe = moeParams{experts: s.intOr("num_local_experts", s.intOr("n_routed_experts", 8)), topK: s.intOr("num_experts_per_tok", 2),
		inner: s.intOr("moe_intermediate_size", 7688), shared: s.intOr("moe_shared_expert_intermediate_size", 7688), normalize: s.boolOr("norm_topk_prob", true)}
	if !slices.Contains(pattern, nemotronExpert) {
		d.moe = moeParams{}
	}
	groups, top := s.routerGroups(1, 1)
	d.nemotron(func(i int) nemotronBlock { return pattern[i] }, m, true, s.intOr("moe_latent_size", 0),
		graph.MoE{Groups: groups, TopGroups: top, Epsilon: 1e-20, Scale: s.positive("routed_scaling_factor", 1)})
	return d
}

// nemotronSteps refuses limits of steps. The code that models came with limits them by
// time_step_limit, which transformers disregards: of prompts, not of decoding, it takes
// time_step_min for the least, which the former needs to begin training alone. All that
// are known have none in time_step_limit and 0.001 in time_step_min. Steps are not limited
// here, as in the code that models came with: where a trained model has shorter ones, its
// prompts differ from transformers', which then differ from its own decoding.
func (s *settings) nemotronSteps() {
	for _, key := range []string{"time_step_limit", "mamba_dt_limit"} {
		if least, most := s.stepLimit(key); least != 0 || most != 0 {
			s.refuse(key, fmt.Sprint(least, " to ", most))
		}
	}
	for _, key := range []string{"time_step_min", "mamba_dt_min"} {
		if v := s.floatOr(key, 0.001); v > 0.001 {
			s.refuse(key, v)
		}
	}
}

// nemotron makes blocks of one branch each.
func (d *decoder) nemotron(kind func(layer int) nemotronBlock, shape *mambaShape, log bool, latent int64, router graph.MoE) {
	d.moe.sparse = func(layer int) bool { return kind(layer) == nemotronExpert }
	d.sigmoidRouter(router)
	route := d.each
	d.each = func(layer int, b *graph.Block) {
		switch kind(layer) {
		case nemotronMamba:
			b.Attn, b.Mamba = nil, d.mamba(layer, shape, log)
			fallthrough
		case nemotronAttn:
			b.FFN, b.MoE, b.FFNNorm = nil, nil, nil
			return
		}
		b.Attn, b.AttnNorm = nil, nil
		if x := b.MoE; x != nil {
			route(layer, b)
			d.latentExperts(layer, x, latent)
		}
	}
}

// latentExperts takes gates from a mixture, and has its experts read so many numbers; 0:
// as many as the model has.
func (d *decoder) latentExperts(layer int, x *graph.MoE, latent int64) {
	p := fmt.Sprintf("blocks.%d.", layer)
	x.Gate = nil
	if s := x.Shared; s != nil {
		s.Gate = nil
		if d.bias.ffn {
			s.Up.Bias, s.Down.Bias = p+"moe.shared.up.bias", p+"moe.shared.down.bias"
		}
	}
	if latent == 0 {
		return
	}
	down := d.linear(p+"moe.latent_down", graph.RoleXTo, p+"ffn.in", d.width, latent, d.bias.ffn)
	up := d.linear(p+"moe.latent_up", graph.RoleXFrom, p+"moe.out", latent, d.width, d.bias.ffn)
	x.LatentDown, x.LatentUp = &down, &up
	x.Up.In, x.Up.Input, x.Down.Out = latent, p+"moe.latent", latent
}

// nemotronH reads a model of GGUF: blocks without key and value heads and without a
// feed-forward width are state spaces.
func (k *keys) nemotronH() *decoder {
	k.varied = []string{kvHeadsKey, "feed_forward_length"}
	d := k.common("nemotron_h")
	if n := k.intOr("nextn_predict_layers", 0); n != 0 {
		k.note(formats.Unsupportedf(k.f.Name(), k.prefix+"nextn_predict_layers", "value %d", n))
	}
	kv, inner := k.kvHeads(d), k.byLayer("feed_forward_length", d.layers)
	kind, moe := make([]nemotronBlock, d.layers), k.intOr("expert_count", 0) > 0
	d.kvHeads, d.inner = max(d.kvHeads, 1), max(slices.Max(inner), 1)
	for i := range kind {
		switch {
		case inner[i] > 0 && moe:
			kind[i] = nemotronExpert
		case inner[i] > 0:
			kind[i] = nemotronDense
		case kv[i] > 0:
			kind[i] = nemotronAttn
		default:
			kind[i] = nemotronMamba
		}
		if inner[i] != 0 && inner[i] != d.inner {
			k.note(formats.Unsupportedf(k.f.Name(), k.prefix+"feed_forward_length", "layer %d of width %d, where others have %d", i, inner[i], d.inner))
		}
		d.bias.qkv = d.bias.qkv || k.hasTensor(Fill("blk.#.attn_q.bias", i, 0))
		d.bias.o = d.bias.o || k.hasTensor(Fill("blk.#.attn_output.bias", i, 0))
		d.bias.ffn = d.bias.ffn || k.hasTensor(Fill("blk.#.ffn_up.bias", i, 0))
	}
	d.act, d.gated = graph.ReLU2, false
	shape := k.mambas()
	shape.eps = d.eps
	router := graph.MoE{Epsilon: 1e-20, Scale: 1}
	if moe {
		d.moe = moeParams{experts: k.int("expert_count"), topK: k.int("expert_used_count"), inner: k.int("expert_feed_forward_length"),
			shared: k.intOr("expert_shared_feed_forward_length", 0), normalize: k.boolOr("expert_weights_norm", false)}
		router.Scale = float32(k.floatOr("expert_weights_scale", 1))
		if n := k.intOr("expert_group_count", 1); n > 1 {
			k.note(formats.Unsupportedf(k.f.Name(), k.prefix+"expert_group_count", "value %d", n))
		}
		k.sigmoidGating()
	}
	d.nemotron(func(i int) nemotronBlock { return kind[i] }, shape, false, k.intOr("moe_latent_size", 0), router)
	return d
}

// nemotronKind says what a block of a graph is.
func nemotronKind(b *graph.Block) nemotronBlock {
	switch {
	case b.Mamba != nil:
		return nemotronMamba
	case b.Attn != nil:
		return nemotronAttn
	case b.MoE != nil:
		return nemotronExpert
	}
	return nemotronDense
}

func (c configWriter) nemotronH(g *graph.Graph) {
	types := make([]string, len(g.Blocks))
	c["hidden_size"], c["max_position_embeddings"], c["layer_norm_epsilon"] = g.Width, g.Context, g.Norm.Eps
	for i := range g.Blocks {
		b := &g.Blocks[i]
		types[i] = nemotronKind(b).names()[0]
		if a := b.Attn; a != nil {
			c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], c["attention_bias"] = a.Heads, a.KVHeads, a.HeadDim, false
		}
		if n := b.Mamba; n != nil {
			c["mamba_num_heads"], c["mamba_head_dim"], c["n_groups"], c["ssm_state_size"], c["conv_kernel"] = n.Heads, n.HeadDim, n.Groups, n.State, n.Kernel
			c["use_conv_bias"], c["use_bias"] = n.ConvBias != "", n.Z.Bias != ""
		}
		if f := b.FFN; f != nil {
			c["intermediate_size"], c["mlp_hidden_act"], c["mlp_bias"] = f.Up.Out, activationName(b), f.Up.Bias != ""
		}
		if m := b.MoE; m != nil {
			c["n_routed_experts"], c["num_experts_per_tok"], c["moe_intermediate_size"] = m.Experts, m.TopK, m.Up.Out
			c["norm_topk_prob"], c["routed_scaling_factor"], c["n_group"], c["topk_group"] = m.Normalize, m.Factor(), max(m.Groups, 1), max(m.TopGroups, 1)
			c["mlp_hidden_act"], c["moe_latent_size"] = string(m.Act), nil
			if m.LatentDown != nil {
				c["moe_latent_size"] = m.LatentDown.Out
			}
			if m.Shared != nil {
				c["moe_shared_expert_intermediate_size"], c["mlp_bias"] = m.Shared.Up.Out, m.Shared.Up.Bias != ""
			}
		}
	}
	c["layers_block_type"] = types
}

func (w *keyWriter) nemotronH(g *graph.Graph) {
	width := make([]uint32, len(g.Blocks))
	for i := range g.Blocks {
		switch b := &g.Blocks[i]; {
		case b.FFN != nil:
			width[i] = uint32(b.FFN.Up.Out)
		case b.MoE != nil:
			width[i] = uint32(b.MoE.Up.Out)
		}
	}
	w.kvHeads(g)
	w.replace("feed_forward_length", width)
	w.float("attention.layer_norm_epsilon", float64(g.Norm.Eps))
	if n := firstMamba(g); n != nil {
		w.mambas(n)
	}
	m, _ := experts(g)
	if m == nil {
		return
	}
	w.int("expert_shared_count", 1)
	w.int("expert_group_count", 1)
	w.int("expert_gating_func", ggufSigmoid)
	w.float("expert_weights_scale", float64(m.Factor()))
	w.raw(w.prefix+"expert_weights_norm", m.Normalize)
	if m.LatentDown != nil {
		w.int("moe_latent_size", m.LatentDown.Out)
	}
}

// hfNemotronLinks are the present names, and those of checkpoints of the hub, which
// begin otherwise.
func hfNemotronLinks() []Link {
	var out []Link
	for _, root := range []string{"backbone.", "model."} {
		const mixer = "layers.#.mixer."
		out = append(out,
			one(root+"embeddings", "embed"),
			one(root+"norm_f", "norm"),
			Link{Foreign: root + "layers.#.norm", Parts: []string{"blocks.#.attn_norm"}},
			Link{Foreign: root + "layers.#.norm", Parts: []string{"blocks.#.ffn_norm"}},
			one(root+mixer+"q_proj", "blocks.#.attn.q"), one(root+mixer+"k_proj", "blocks.#.attn.k"),
			one(root+mixer+"v_proj", "blocks.#.attn.v"), one(root+mixer+"o_proj", "blocks.#.attn.o"),
			one(root+mixer+"up_proj", "blocks.#.ffn.up"), one(root+mixer+"down_proj", "blocks.#.ffn.down"),
			one(root+mixer+"gate", "blocks.#.moe.router"), one(root+mixer+"gate.e_score_correction_bias", "blocks.#.moe.select_bias"),
			one(root+mixer+"experts.@.up_proj", "blocks.#.moe.up"), one(root+mixer+"experts.@.down_proj", "blocks.#.moe.down"),
			Link{Foreign: root + mixer + "experts.up_proj", Parts: []string{"blocks.#.moe.up"}, Bare: true},
			Link{Foreign: root + mixer + "experts.down_proj", Parts: []string{"blocks.#.moe.down"}, Bare: true},
			one(root+mixer+"shared_experts.up_proj", "blocks.#.moe.shared.up"), one(root+mixer+"shared_experts.down_proj", "blocks.#.moe.shared.down"),
			one(root+mixer+"fc1_latent_proj", "blocks.#.moe.latent_down"), one(root+mixer+"fc2_latent_proj", "blocks.#.moe.latent_up"),
		)
		out = append(out, hfMambaLinks(root+mixer)...)
	}
	return append(out, one("lm_head", "head"))
}

func ggufNemotronLinks() []Link {
	return append(append([]Link{
		one("blk.#.attn_norm", "blocks.#.attn_norm"),
		one("blk.#.attn_norm", "blocks.#.ffn_norm"), // the one norm of a block
		ggufSelectBias,
		one("blk.#.ffn_latent_down", "blocks.#.moe.latent_down"),
		one("blk.#.ffn_latent_up", "blocks.#.moe.latent_up"),
	}, ggufMambaLinks()...), ggufDecoderLinks()...)
}
