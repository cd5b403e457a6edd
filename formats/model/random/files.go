package random

import (
	"encoding/json"
	"fmt"

	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/tensor"
)

// The tokenizer: two special tokens, a token per byte, and from there to the
// vocabulary's end tokens that no text contains.
const (
	bos      = "<s>"
	eos      = "</s>"
	minVocab = 2 + 256
)

// files returns the small files of the directory.
func (s *Shape) files(dtype tensor.DType) []model.File {
	return []model.File{
		{Name: "config.json", Data: encode(s.config(dtype))},
		{Name: "generation_config.json", Data: encode(map[string]any{"bos_token_id": 0, "eos_token_id": 1})},
		{Name: "tokenizer.json", Data: encode(s.tokenizer())},
		{Name: "tokenizer_config.json", Data: encode(map[string]any{
			"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": bos, "eos_token": eos,
			"clean_up_tokenization_spaces": false, "model_max_length": s.Context,
		})},
	}
}

// encode writes strings, numbers and maps of them, which cannot fail; keys
// come out sorted, so the bytes are always the same.
func encode(v any) []byte {
	p, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(err)
	}
	return append(p, '\n')
}

func (s *Shape) config(dtype tensor.DType) map[string]any {
	if s.Published != "" {
		return s.published()
	}
	torch := map[tensor.DType]string{tensor.F32: "float32", tensor.F16: "float16", tensor.BF16: "bfloat16"}
	c := map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "torch_dtype": torch[dtype],
		"num_hidden_layers": s.Layers, "hidden_size": s.Width, "intermediate_size": s.Inner,
		"num_attention_heads": s.Heads, "num_key_value_heads": s.KVHeads,
		"vocab_size": s.Vocab, "max_position_embeddings": s.Context, "rope_theta": s.RopeTheta, "rope_scaling": nil,
		"rms_norm_eps": 1e-5, "hidden_act": "silu", "attention_bias": false, "mlp_bias": false,
		"tie_word_embeddings": s.Tied, "bos_token_id": 0, "eos_token_id": 1,
	}
	if s.HeadDim > 0 {
		c["head_dim"] = s.HeadDim
	}
	if s.Experts > 0 {
		c["architectures"], c["model_type"] = []string{"MixtralForCausalLM"}, "mixtral"
		c["num_local_experts"], c["num_experts_per_tok"], c["sliding_window"] = s.Experts, s.Used, nil
		delete(c, "attention_bias")
		delete(c, "mlp_bias")
	}
	if s.Delta != (DeltaShape{}) {
		s.deltaConfig(c)
	}
	return c
}

// deltaConfig turns a llama's keys into those of qwen3_5_text.
func (s *Shape) deltaConfig(c map[string]any) {
	layers := make([]string, s.Layers)
	for i := range layers {
		layers[i] = "linear_attention"
		if s.attends(int64(i)) {
			layers[i] = "full_attention"
		}
	}
	c["architectures"], c["model_type"], c["layer_types"] = []string{"Qwen3_5ForCausalLM"}, "qwen3_5_text", layers
	c["linear_num_value_heads"], c["linear_num_key_heads"] = s.Delta.Heads, s.Delta.KeyHeads
	c["linear_value_head_dim"], c["linear_key_head_dim"], c["linear_conv_kernel_dim"] = s.Delta.HeadDim, s.Delta.HeadDim, convolution
	c["head_dim"], c["rms_norm_eps"], c["rope_parameters"] = s.headDim(), 1e-6, map[string]any{"rope_type": "default", "rope_theta": s.RopeTheta, "partial_rotary_factor": 0.25}
	for _, key := range []string{"rope_theta", "rope_scaling", "mlp_bias"} {
		delete(c, key)
	}
}

func (s *Shape) tokenizer() map[string]any {
	vocab := map[string]int64{bos: 0, eos: 1}
	for b, r := range byteAlphabet() {
		vocab[string(r)] = 2 + int64(b)
	}
	for i := int64(minVocab); i < s.Vocab; i++ {
		vocab[fmt.Sprintf("<unused %d>", i)] = i
	}
	var added []any
	for id, text := range []string{bos, eos} {
		added = append(added, map[string]any{"id": id, "content": text, "special": true,
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
	}
	byteLevel := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	first := map[string]any{"SpecialToken": map[string]any{"id": bos, "type_id": 0}}
	text := func(id string) any { return map[string]any{"Sequence": map[string]any{"id": id, "type_id": 0}} }
	return map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "normalizer": nil,
		"pre_tokenizer": byteLevel, "decoder": byteLevel,
		"post_processor": map[string]any{"type": "TemplateProcessing",
			"single":         []any{first, text("A")},
			"pair":           []any{first, text("A"), first, text("B")},
			"special_tokens": map[string]any{bos: map[string]any{"id": bos, "ids": []int{0}, "tokens": []string{bos}}},
		},
		"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}, "dropout": nil, "unk_token": nil,
			"continuing_subword_prefix": nil, "end_of_word_suffix": nil, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false},
	}
}

// byteAlphabet spells bytes as byte-level BPE does: printable Latin-1 as it
// is, the rest from U+0100 on. Source: bytes_to_unicode of GPT-2.
func byteAlphabet() (out [256]rune) {
	next := rune(256)
	for b := range out {
		out[b] = rune(b)
		if !('!' <= b && b <= '~' || 0xa1 <= b && b <= 0xac || 0xae <= b) {
			out[b] = next
			next++
		}
	}
	return out
}
