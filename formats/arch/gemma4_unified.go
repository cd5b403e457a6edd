package arch

// gemma4Unified is gemma4 in a class of its own, for a model whose images and sounds
// go through no towers: without experts or per-layer embeddings, and with other
// defaults. Its graphs are gemma4's.
//
// Source: modular_gemma4_unified.py of transformers.
func gemma4Unified() *Architecture {
	return &Architecture{
		name: "gemma4_unified", class: "Gemma4UnifiedForCausalLM", types: []string{"gemma4_unified_text", "gemma4_unified"},
		within:  true,
		fromHF:  func(s *settings) *decoder { return s.gemma4(262144, 1024, 0) },
		toHF:    configWriter.gemma4,
		hfLinks: hfGemma4Links(), ggufLinks: gemma4().ggufLinks,
	}
}
