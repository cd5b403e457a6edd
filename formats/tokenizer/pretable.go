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
	deepseekLatin  = `\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+`
	deepseekPunct  = `\s?[!-/:-~！-／：-～‘-‟　-。]+`

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
