package random

// The shapes whose architecture is more than a llama's, by the names of the models.
const (
	qwen9B     = "qwen3.5-9b"
	qwen35BA3B = "qwen3.6-35b-a3b"
	gptOSS20B  = "gpt-oss-20b"
	gemma26BA4 = "gemma-4-26b-a4b"
	kimi48BA3B = "kimi-linear-48b-a3b"
)

// published returns the text models' config.json of Qwen3.5-9B, Qwen3.6-35B-A3B, gpt-oss-20b,
// Gemma 4 26B-A4B and Kimi-Linear-48B-A3B, as the defaults of transformers' classes or the files themselves state them,
// with s.Layers blocks; modules of multi-token prediction are left out.
func (s *Shape) published() map[string]any {
	c := map[string]any{
		"num_hidden_layers": s.Layers, "vocab_size": s.Vocab, "max_position_embeddings": s.Context,
		"tie_word_embeddings": s.Tied, "attention_bias": false, "bos_token_id": 0, "eos_token_id": 1,
		"hidden_size": s.Width, "num_attention_heads": s.Heads, "num_key_value_heads": s.KVHeads, "head_dim": s.HeadDim,
	}
	add := func(more map[string]any) {
		for k, v := range more {
			c[k] = v
		}
	}
	switch s.Published {
	case qwen9B, qwen35BA3B:
		add(map[string]any{
			"architectures": []string{"Qwen3_5ForCausalLM"}, "model_type": "qwen3_5_text", "hidden_act": "silu", "rms_norm_eps": 1e-6,
			"layer_types":            s.layerTypes("linear_attention", func(i int64) bool { return i%4 == 3 }),
			"linear_num_value_heads": s.Delta.Heads, "linear_num_key_heads": s.Delta.KeyHeads, "linear_value_head_dim": s.Delta.HeadDim,
			"linear_key_head_dim": s.Delta.HeadDim, "linear_conv_kernel_dim": convolution, "intermediate_size": s.Inner,
			"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": s.RopeTheta, "partial_rotary_factor": 0.25,
				"mrope_interleaved": true, "mrope_section": []int{11, 11, 10}},
		})
		if s.Published == qwen35BA3B {
			add(map[string]any{
				"architectures": []string{"Qwen3_5MoeForCausalLM"}, "model_type": "qwen3_5_moe_text",
				"num_experts": s.Experts, "num_experts_per_tok": s.Used, "moe_intermediate_size": s.Inner, "shared_expert_intermediate_size": s.Inner,
			})
			delete(c, "intermediate_size")
		}
	case gptOSS20B:
		add(map[string]any{
			"architectures": []string{"GptOssForCausalLM"}, "model_type": "gpt_oss", "hidden_act": "silu", "rms_norm_eps": 1e-5,
			"attention_bias": true, "intermediate_size": s.Inner, "num_local_experts": s.Experts, "num_experts_per_tok": s.Used,
			"layer_types": s.layerTypes("sliding_attention", func(i int64) bool { return i%2 == 1 }), "sliding_window": 128,
			"swiglu_alpha": 1.702, "swiglu_limit": 7.0,
			"rope_parameters": map[string]any{"rope_type": "yarn", "rope_theta": s.RopeTheta, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
				"original_max_position_embeddings": 4096, "truncate": false},
		})
	case kimi48BA3B:
		add(map[string]any{
			"architectures": []string{"KimiLinearForCausalLM"}, "model_type": "kimi_linear", "hidden_act": "silu", "rms_norm_eps": 1e-5,
			"layer_types":      s.layerTypes("linear_attention", func(i int64) bool { return i%4 == 3 || i == s.Layers-1 }),
			"linear_num_heads": s.Delta.Heads, "linear_head_dim": s.Delta.HeadDim, "linear_conv_kernel_dim": convolution, "intermediate_size": 9 * s.Inner,
			"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "num_experts": s.Experts,
			"num_experts_per_token": s.Used, "moe_intermediate_size": s.Inner, "num_shared_experts": 1, "routed_scaling_factor": 2.446,
		})
	case gemma26BA4:
		add(map[string]any{
			"architectures": []string{"Gemma4ForCausalLM"}, "model_type": "gemma4_text", "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6,
			"intermediate_size": 3 * s.Inner, "num_experts": s.Experts, "top_k_experts": s.Used, "moe_intermediate_size": s.Inner, "enable_moe_block": true,
			"layer_types":    s.layerTypes("sliding_attention", func(i int64) bool { return i%6 == 5 || i == s.Layers-1 }),
			"sliding_window": 1024, "attention_k_eq_v": true, "global_head_dim": 2 * s.HeadDim, "num_global_key_value_heads": 2,
			"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": s.Vocab, "num_kv_shared_layers": 0, "use_double_wide_mlp": false,
			"final_logit_softcapping": 30.0,
			"rope_parameters": map[string]any{
				"full_attention":    map[string]any{"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
				"sliding_attention": map[string]any{"rope_type": "default", "rope_theta": s.RopeTheta},
			},
		})
	}
	return c
}

// layerTypes returns a type for each block: full attention, or another.
func (s *Shape) layerTypes(other string, full func(int64) bool) []string {
	out := make([]string, s.Layers)
	for i := range out {
		out[i] = other
		if full(int64(i)) {
			out[i] = "full_attention"
		}
	}
	return out
}
