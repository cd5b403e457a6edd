package tokenizer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
)

// Metadata are the key-values of a GGUF file. Get returns false for a key
// that is not there, and else one of: string, bool, any integer type, float32,
// float64, []string, []float32, or a slice of any integer type.
type Metadata interface {
	Get(key string) (any, bool)
}

// Vocabulary is a tokenizer as the tokenizer.ggml.* keys of GGUF say it.
// Ids that do not exist are -1.
type Vocabulary struct {
	Model  string    // tokenizer.ggml.model: gpt2, llama, t5 or gemma4
	Pre    string    // tokenizer.ggml.pre; only gpt2 has one that matters
	Tokens []string  // by id
	Scores []float32 // by id; nil for gpt2
	Types  []int32   // by id, the Type constants
	Merges []string  // "left right" by rank; gpt2 and gemma4 only

	BOS, EOS, UNK, SEP, PAD int32
	AddBOS, AddEOS          bool
	AddSpacePrefix          bool
	RemoveExtraWhitespaces  bool
	TreatWhitespaceAsSuffix bool
	PrecompiledCharsmap     []byte
	Templates               map[string]string // chat templates by name, "default" among them
	// Approximate says why llama.cpp may give other ids on some texts, or "".
	Approximate string
}

// Pad appends unused tokens until there are n, for models whose embedding has
// more rows than the tokenizer has ids.
func (v *Vocabulary) Pad(n int) {
	for i := len(v.Tokens); i < n; i++ {
		v.Tokens = append(v.Tokens, fmt.Sprintf("[PAD%d]", i))
		v.Types = append(v.Types, TypeUnused)
		if v.Scores != nil {
			v.Scores = append(v.Scores, -1e4)
		}
	}
}

const ggml = "tokenizer.ggml."

// FromGGUF reads the vocabulary of a GGUF file; name stands for it in errors.
// The semantics are llama.cpp's: "gpt2" vocabularies split by the patterns
// that tokenizer.ggml.pre names (an unknown name is refused; a missing one is
// llama.cpp's default), "llama" ones are SentencePiece BPE, "t5" ones Unigram,
// "gemma4" ones merge characters by a list, with bytes for what is no piece.
// add_bos_token and add_eos_token default to the model's habit: llama adds
// BOS, t5 EOS, gpt2 neither unless its pre does; gemma4 adds BOS whatever is said.
func FromGGUF(name string, kv Metadata) (*Tokenizer, error) {
	r := kvReader{name: name, kv: kv}
	v := &Vocabulary{Model: r.str("model", ""), BOS: -1, EOS: -1, UNK: -1, SEP: -1, PAD: -1}
	v.Tokens = r.strings("tokens")
	switch {
	case r.err != nil:
		return nil, r.err
	case v.Model == "":
		return nil, formats.Errorf(name, ggml+"model", "the key is missing: the file has no tokenizer")
	case len(v.Tokens) == 0:
		return nil, formats.Errorf(name, ggml+"tokens", "the key is missing or empty")
	}
	r.common(v)
	if r.err != nil {
		return nil, r.err
	}
	t := &Tokenizer{name: name, gguf: v}
	var m *protoModel
	var err error
	switch v.Model {
	case "gpt2":
		m, err = t.ggufBPE(&r, v)
	case "llama":
		m, err = t.ggufSPM(&r, v)
	case "t5":
		m, err = t.ggufUnigram(&r, v)
	case "gemma4":
		m, err = t.ggufGemma(&r, v)
	default:
		return nil, formats.Unsupportedf(name, ggml+"model", "tokenizer model %q (known: gpt2, llama, t5, gemma4)", v.Model)
	}
	if err == nil {
		err = r.err
	}
	if err != nil {
		return nil, located(name, ggml+"tokens", err)
	}
	if v.Types == nil {
		v.Types = slices.Repeat([]int32{TypeNormal}, len(v.Tokens))
	}
	return t.finishGGUF(&r, v, m)
}

func (t *Tokenizer) finishGGUF(r *kvReader, v *Vocabulary, m *protoModel) (*Tokenizer, error) {
	added := typedTokens(v.Tokens, v.Types)
	stripPhi3(added, r.generalName())
	t, err := t.assemble(m, slices.DeleteFunc(added, func(a addedToken) bool { return a.Content == "" }))
	if err != nil {
		return nil, err
	}
	if t.bos, t.eos, t.unk, t.sep, t.pad = v.BOS, v.EOS, v.UNK, v.SEP, v.PAD; v.AddBOS && t.bos < 0 || v.AddEOS && t.eos < 0 {
		return nil, formats.Errorf(t.name, ggml+"bos_token_id", "add_bos_token %v, add_eos_token %v with bos %d and eos %d", v.AddBOS, v.AddEOS, v.BOS, v.EOS)
	}
	if v.AddBOS {
		t.post.prefix = []int32{t.bos}
	}
	if v.AddEOS {
		t.post.suffix = []int32{t.eos}
	}
	t.spec.PostProcessor = templatePost(t, t.post)
	t.addStops(t.eos)
	for _, k := range []string{"eot_token_id", "eom_token_id"} {
		t.addStops(r.id(k, -1))
	}
	for _, s := range endOfTurn {
		if id, ok := t.ID(s); ok && (t.IsSpecial(id) || v.Model == "gemma4") { // which shows some
			t.addStops(id)
		}
	}
	t.templates = r.templates()
	v.Templates = t.templates
	return t, r.err
}

// endOfTurn are spellings that end a generation wherever they are control
// tokens. Source: the list of llama.cpp's llama-vocab.cpp.
var endOfTurn = []string{"<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>",
	"<|endoftext|>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "<|end_of_text|>", "<end_of_utterance>",
	"<｜end▁of▁sentence｜>", "<turn|>", "<|tool_response>"}

// stripPhi3 gives Phi-3's control tokens the rstrip that its tokenizer.json
// has and GGUF cannot say. Source: llama.cpp, which goes by the name as well.
func stripPhi3(tokens []addedToken, general string) {
	if g := strings.ToLower(general); !strings.Contains(g, "phi-3") && !strings.Contains(g, "phi3") {
		return
	}
	for i := range tokens {
		switch t := &tokens[i]; t.Content {
		case "<unk>", "<s>", "<|endoftext|>":
		default:
			t.RStrip = true
		}
	}
}

func (t *Tokenizer) ggufProto(v *Vocabulary, typ string) (*protoModel, error) {
	m := &protoModel{pieces: v.Tokens, types: v.Types, unk: v.UNK, ids: make(map[string]int32, len(v.Tokens))}
	m.Type = typ
	for i, p := range v.Tokens {
		if p == "" {
			continue
		}
		if j, dup := m.ids[p]; dup && typ == "BPE" {
			return nil, fmt.Errorf("token %q has the ids %d and %d", p, j, i)
		}
		m.ids[p] = int32(i)
	}
	return m, nil
}

func (t *Tokenizer) ggufBPE(r *kvReader, v *Vocabulary) (*protoModel, error) {
	v.Pre = r.str("pre", "default")
	p, ok := preByName(v.Pre)
	if !ok {
		return nil, formats.Unsupportedf(t.name, ggml+"pre", "pre-tokenizer %q", v.Pre)
	}
	v.AddBOS = r.bool("add_bos_token", p.addBOS)
	v.AddEOS = r.bool("add_eos_token", false)
	v.AddSpacePrefix = r.bool("add_space_prefix", false)
	if v.AddSpacePrefix {
		return nil, formats.Unsupportedf(t.name, ggml+"add_space_prefix", "add_space_prefix true with a gpt2 vocabulary")
	}
	m, err := t.ggufProto(v, "BPE")
	if err != nil {
		return nil, err
	}
	m.unk = -1
	m.IgnoreMerges = &p.ignoreMerges
	t.spec = byteLevelStages(p.patterns)
	return m, t.ggufMerges(r, v, m)
}

func (t *Tokenizer) ggufMerges(r *kvReader, v *Vocabulary, m *protoModel) error {
	v.Merges = r.strings("merges")
	for i, s := range v.Merges {
		// The first piece may begin with a space.
		j := -1
		if s != "" {
			j = strings.IndexByte(s[1:], ' ')
		}
		if j < 0 {
			return formats.Errorf(t.name, ggml+"merges", "merge %d is %q, not two pieces", i, s)
		}
		m.pairs = append(m.pairs, [2]string{s[:j+1], s[j+2:]})
	}
	return nil
}

// ggufGemma reads what llama.cpp keeps of Gemma 4's tokenizer.json. It merges between
// line breaks alone there, which the published merges do too.
func (t *Tokenizer) ggufGemma(r *kvReader, v *Vocabulary) (*protoModel, error) {
	v.Pre = r.str("pre", "gemma4")
	v.AddBOS, v.AddEOS = true, r.bool("add_eos_token", false)
	if v.AddSpacePrefix = r.bool("add_space_prefix", false); v.AddSpacePrefix {
		return nil, formats.Unsupportedf(t.name, ggml+"add_space_prefix", "add_space_prefix true with a gemma4 vocabulary")
	}
	m, err := t.ggufProto(v, "BPE")
	if err != nil {
		return nil, err
	}
	fallback := true
	m.ByteFallback = &fallback
	t.spec = metaStages(false, false)
	return m, t.ggufMerges(r, v, m)
}

// byteLevelStages are the stages of byte-level BPE that splits by patterns,
// each applied to what the one before left.
func byteLevelStages(patterns []string) spec {
	seq := []any{}
	for _, p := range patterns {
		seq = append(seq, map[string]any{"type": "Split", "pattern": map[string]any{"Regex": p}, "behavior": "Isolated", "invert": false})
	}
	level := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	return spec{
		PreTokenizer: mustJSON(map[string]any{"type": "Sequence", "pretokenizers": append(seq, level)}),
		Decoder:      mustJSON(map[string]any{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
	}
}

func (t *Tokenizer) ggufSPM(r *kvReader, v *Vocabulary) (*protoModel, error) {
	r.defaults(v, 1, 2, 0)
	v.AddBOS = r.bool("add_bos_token", true)
	v.AddEOS = r.bool("add_eos_token", false)
	v.AddSpacePrefix = r.bool("add_space_prefix", true)
	if err := r.needScores(v); err != nil {
		return nil, err
	}
	m, err := t.ggufProto(v, "SPM")
	if err != nil {
		return nil, err
	}
	m.scores = widen(v.Scores)
	t.spec = metaStages(v.AddSpacePrefix, false)
	return m, nil
}

func (t *Tokenizer) ggufUnigram(r *kvReader, v *Vocabulary) (*protoModel, error) {
	r.defaults(v, -1, 1, 2)
	v.AddBOS = r.bool("add_bos_token", false)
	v.AddEOS = r.bool("add_eos_token", true)
	v.AddSpacePrefix = r.bool("add_space_prefix", false)
	v.RemoveExtraWhitespaces = r.bool("remove_extra_whitespaces", false)
	v.TreatWhitespaceAsSuffix = r.bool("treat_whitespace_as_suffix", false)
	v.PrecompiledCharsmap = r.bytes("precompiled_charsmap")
	if err := r.needScores(v); err != nil {
		return nil, err
	}
	m, err := t.ggufProto(v, "Unigram")
	if err != nil {
		return nil, err
	}
	m.scores = widen(v.Scores)
	m.rules = unigramRules{userZero: true}
	chars, err := newCharsmap(v.PrecompiledCharsmap)
	if err != nil {
		return nil, formats.Errorf(t.name, ggml+"precompiled_charsmap", "%v", err)
	}
	t.spec = metaStages(v.AddSpacePrefix, false)
	t.useSPNormalizer(&spNormalizer{chars: chars, dummyPrefix: v.AddSpacePrefix, asSuffix: v.TreatWhitespaceAsSuffix,
		squeeze: v.RemoveExtraWhitespaces, escape: true}, v.PrecompiledCharsmap)
	return m, nil
}

func widen(in []float32) []float64 {
	out := make([]float64, len(in))
	for i, f := range in {
		out[i] = float64(f)
	}
	return out
}
