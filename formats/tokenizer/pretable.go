package tokenizer

// The table of pre-tokenizers that GGUF's tokenizer.ggml.pre names. Source of
// names and flags: llama.cpp's llama-vocab.cpp; the patterns are those of the
// models' tokenizer.json where llama.cpp quotes them beside its adapted ones.

const (
	contractions  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	contractions2 = `(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])`
	spaceTail     = `|\s*[\r\n]+|\s+(?!\S)|\s+`

	llama3Tail = `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*` + spaceTail
	qwen2Tail  = `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*` + spaceTail
	qwen35Tail = `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*` + spaceTail
	jais2Tail  = `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}`
	seedTail   = `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+` + spaceTail
	exaoneTail = `|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+`

	llama3Pattern = contractions + llama3Tail
	qwen2Pattern  = contractions + qwen2Tail
	qwen35Pattern = contractions + qwen35Tail

	upperLower = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	upperRest  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`

	tekkenPattern = upperLower + `|` + upperRest + `|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*` + spaceTail
	gpt4oPattern  = upperLower + contractions + `?|` + upperRest + contractions + `?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*` + spaceTail
	youtuPattern  = upperLower + contractions + `?|` + upperRest + contractions + `?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*` + spaceTail

	deepseek3CJK   = `[一-龥぀-ゟ゠-ヿ]+`
	deepseek3Words = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" + spaceTail
	deepseekCJK    = `[一-龥ࠀ-一가-퟿]+`
	// Escaped, for some of these are not their own normal form.
	deepseekLatin = "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+"
	deepseekPunct = `\s?[!-/:-~！-／：-～‘-‟　-。]+`

	bloomPattern   = ` ?[^(\s|.,!?…。，、।۔،)]+`
	bailingPattern = `'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`
	youtuCJK       = `[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+`
	tinyAyaDigits  = `\d{1,3}(?=(?:\d{3})*\b)`
)

// A preEntry is a pre-tokenizer and the names that mean it. A vocabulary that
// is exported gets the first name.
type preEntry struct {
	names        []string
	patterns     []string
	ignoreMerges bool
	addBOS       bool
	// also lists other spellings of the same split, as tokenizer.json files
	// have them.
	also [][]string
}

// preTable is ordered: the first entry that fits a tokenizer names it.
var preTable = []preEntry{
	{names: []string{"gpt-2", "mpt", "olmo", "jais", "phi-2", "jina-es", "jina-de", "jina-v1-en", "jina-v2-es", "jina-v2-de", "jina-v2-code",
		"roberta-bpe", "gigachat", "a.x-4.0", "mellum", "modern-bert", "exaone4", "trillion", "granite-docling"},
		patterns: []string{gpt2Pattern}},
	{names: []string{"starcoder", "refact", "command-r", "cohere2_moe", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"},
		patterns: []string{`\p{N}`, gpt2Pattern}},
	{names: []string{"llama-bpe", "llama3", "llama-v3", "laguna", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
		patterns: []string{llama3Pattern}, ignoreMerges: true, addBOS: true, also: [][]string{{contractions2 + llama3Tail}}},
	{names: []string{"smaug-bpe", "dbrx", "chatglm-bpe", "glm4"},
		patterns: []string{llama3Pattern}, also: [][]string{{contractions2 + llama3Tail}}},
	{names: []string{"qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "kormo", "openpangu", "f2llmv2", "solar-open", "grok-2"},
		patterns: []string{qwen2Pattern}, also: [][]string{{contractions2 + qwen2Tail}}},
	{names: []string{"qwen35"}, patterns: []string{qwen35Pattern}, also: [][]string{{contractions2 + qwen35Tail}}},
	{names: []string{"jais-2"}, patterns: []string{contractions + jais2Tail}, also: [][]string{{contractions2 + jais2Tail}}},
	{names: []string{"seed-coder"}, patterns: []string{contractions + seedTail}, also: [][]string{{contractions2 + seedTail}}},
	{names: []string{"exaone-moe"}, patterns: []string{contractions + exaoneTail}, also: [][]string{{contractions2 + exaoneTail}}},
	{names: []string{"deepseek-llm"}, patterns: []string{`[\r\n]`, deepseekLatin, deepseekPunct, `\s+$`, deepseekCJK, `\p{N}+`},
		also: [][]string{{`[\r\n]`, deepseekLatin, deepseekPunct, `\s+$`, deepseekCJK, `\p{N}`}}},
	{names: []string{"deepseek-coder"}, patterns: []string{`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, deepseekCJK, `\p{N}`}},
	{names: []string{"deepseek-v3", "hunyuan-dense", "joyai-llm"}, patterns: []string{`\p{N}{1,3}`, deepseek3CJK, deepseek3Words}},
	{names: []string{"youtu"}, patterns: []string{youtuCJK, youtuPattern}, ignoreMerges: true},
	{names: []string{"falcon"}, patterns: []string{"[\\p{P}\\$\\+<=>\\^~\\|`]+", gpt2Pattern, `[0-9][0-9][0-9]`},
		also: [][]string{{punctuationRun, gpt2Pattern, `\p{N}+`, `[0-9][0-9][0-9]`}, {punctuationRun, gpt2Pattern, `[0-9][0-9][0-9]`}}},
	{names: []string{"poro-chat", "bloom", "gpt3-finnish"}, patterns: []string{bloomPattern}, also: [][]string{{` ?[^(\s|[.,!?…。，、।۔،])]+`}}},
	{names: []string{"viking"}, patterns: []string{bloomPattern, `\p{N}`}, also: [][]string{{` ?[^(\s|[.,!?…。，、।۔،])]+`, `\p{N}`}}},
	{names: []string{"tekken"}, patterns: []string{tekkenPattern}, ignoreMerges: true, addBOS: true},
	{names: []string{"gpt-4o", "llama4", "kanana2", "minimax-m2"}, patterns: []string{gpt4oPattern}},
	{names: []string{"tiny_aya"}, patterns: []string{tinyAyaDigits, gpt4oPattern}},
	{names: []string{"superbpe"}, patterns: []string{`\p{N}+`, `(?=(\d{3})+(?!\d))`}},
	{names: []string{"bailingmoe", "bailingmoe2", "llada-moe"}, patterns: []string{bailingPattern},
		also: [][]string{{`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`}}},
	{names: []string{"chameleon"}, patterns: []string{`<sentinel:[0-9]+>`, `(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z`, `([\t\n]|    |  )`, `\p{N}`,
		"[\\p{P}!-/:-@\\[-`{-~]", gpt2Pattern}, addBOS: true},
	// llama.cpp's behaviour where a file names no pre-tokenizer.
	{names: []string{"default"}, patterns: []string{`[\p{P}\$\+<=>\^~\|]+`, gpt2Pattern, `\p{N}+`, `[0-9][0-9][0-9]`}},
}

// punctuationRun stands for Punctuation with behavior Contiguous.
const punctuationRun = "<punctuation>+"

// preByName finds an entry of preTable.
func preByName(name string) (preEntry, bool) {
	for _, e := range preTable {
		for _, n := range e.names {
			if n == name {
				return e, true
			}
		}
	}
	return preEntry{}, false
}

// knownPattern reports whether a pattern is one of the table, whose running
// time is known to be harmless.
func knownPattern(p string) bool {
	for _, e := range preTable {
		for _, list := range append([][]string{e.patterns}, e.also...) {
			for _, x := range list {
				if x == p {
					return true
				}
			}
		}
	}
	return false
}
