package tokenizer

import (
	"encoding/json"
	"slices"
)

// splitsOf flattens a pre-tokenizer of tokenizer.json into the patterns that
// it splits by, in the terms of preTable. It reports false for one that is
// not byte-level BPE's.
func splitsOf(raw rawJSON) ([]string, bool) {
	list, level, ok := flatten(raw, nil, false)
	return list, ok && level
}

func flatten(raw rawJSON, list []string, level bool) ([]string, bool, bool) {
	var c struct {
		Type             string
		Pretokenizers    []rawJSON
		Pattern          patternJSON
		Behavior         string
		Invert           bool
		IndividualDigits bool
		AddPrefixSpace   bool
		UseRegex         *bool
	}
	if json.Unmarshal(snake(raw), &c) != nil {
		return nil, false, false
	}
	switch c.Type {
	case "Sequence":
		ok := true
		for _, p := range c.Pretokenizers {
			if list, level, ok = flatten(p, list, level); !ok {
				return nil, false, false
			}
		}
		return list, level, true
	case "ByteLevel":
		if c.UseRegex == nil || *c.UseRegex {
			list = append(list, gpt2Pattern)
		}
		return list, true, !c.AddPrefixSpace
	case "Digits":
		if c.IndividualDigits {
			return append(list, `\p{N}`), level, true
		}
		return append(list, `\p{N}+`), level, true
	case "Punctuation":
		return append(list, punctuationRun), level, c.Behavior == "Contiguous"
	case "Split":
		if c.Pattern.Regex == nil || c.Invert && c.Behavior != "Removed" || !c.Invert && c.Behavior != "Isolated" {
			return nil, false, false
		}
		return append(list, *c.Pattern.Regex), level, true
	}
	return nil, false, false
}

// preName finds the name that GGUF has for a list of patterns. exact is false
// when llama.cpp knows the split only with the other ignore_merges.
func preName(list []string, ignoreMerges bool) (name string, exact bool) {
	for _, e := range preTable {
		fits := slices.Equal(e.patterns, list)
		for _, a := range e.also {
			fits = fits || slices.Equal(a, list)
		}
		if fits && e.ignoreMerges == ignoreMerges {
			return e.names[0], true
		}
		if fits && name == "" {
			name = e.names[0]
		}
	}
	return name, false
}
