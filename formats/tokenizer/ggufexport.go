package tokenizer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
)

// GGUFVocabulary returns the tokenizer as the metadata that a GGUF export
// writes. A tokenizer that came from GGUF gives what it was read from. What
// llama.cpp has no name for is an [formats.UnsupportedError]; where it may
// differ on some texts, Approximate says so.
func (t *Tokenizer) GGUFVocabulary() (*Vocabulary, error) {
	if t.gguf != nil {
		v := *t.gguf
		v.Tokens, v.Types, v.Scores = slices.Clone(v.Tokens), slices.Clone(v.Types), slices.Clone(v.Scores)
		return &v, nil
	}
	v := &Vocabulary{BOS: t.bos, EOS: t.eos, UNK: t.unk, SEP: t.sep, PAD: t.pad,
		AddBOS: t.AddsBOS(), AddEOS: t.AddsEOS(), Templates: t.templates}
	if n := len(t.post.prefix) + len(t.post.suffix); n > 2 || n > 0 && len(t.post.prefix) > 0 && !v.AddBOS || len(t.post.suffix) > 0 && !v.AddEOS {
		return nil, formats.Unsupportedf(t.name, "post_processor", "a text gets %d and %d tokens around it, GGUF knows BOS and EOS only", len(t.post.prefix), len(t.post.suffix))
	}
	t.exportTokens(v)
	var err error
	switch m := t.model.(type) {
	case *bpe:
		if splits, ok := splitsOf(t.spec.PreTokenizer); ok {
			err = t.exportByteLevel(v, m, splits)
		} else {
			err = t.exportMerges(v, m)
		}
	case *spm:
		err = t.exportSPM(v, m.scores)
	case *unigram:
		err = t.exportUnigram(v, m)
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// modelTypes returns the types of a model's pieces, or nil.
func modelTypes(m model) []int32 {
	switch m := m.(type) {
	case *spm:
		return m.types
	case *unigram:
		return m.types
	}
	return nil
}

// exportTokens fills in tokens and types. Ids without a piece become unused
// placeholders, since GGUF has no holes.
func (t *Tokenizer) exportTokens(v *Vocabulary) {
	types := modelTypes(t.model)
	for id := range int32(t.VocabSize()) {
		s, ok := t.Piece(id)
		typ := TypeNormal
		if int(id) < len(types) {
			typ = types[id]
		} else if b, isByte := t.model.(*bpe); isByte && b.opt.byteFallback {
			if _, ok := byteToken(s); ok {
				typ = TypeByte
			}
		}
		switch a := t.added.byID[id]; {
		case !ok:
			s, typ = fmt.Sprintf("[PAD%d]", id), TypeUnused
		case a != nil && id == t.unk && typ == TypeNormal && t.model.kind() != "BPE":
			typ = TypeUnknown
		case a != nil && a.Special && typ != TypeUnknown:
			typ = TypeControl
		case a != nil && !a.Special:
			typ = TypeUserDefined
		}
		v.Tokens = append(v.Tokens, s)
		v.Types = append(v.Types, typ)
	}
}

func (t *Tokenizer) exportByteLevel(v *Vocabulary, m *bpe, splits []string) error {
	v.Model = "gpt2"
	pre, exact := preName(splits, m.direct)
	if pre == "" {
		return formats.Unsupportedf(t.name, "pre_tokenizer", "llama.cpp has no name for the split %q", strings.Join(splits, "  then  "))
	}
	v.Pre = pre
	if !exact {
		v.Approximate = fmt.Sprintf("ignore_merges %v is not llama.cpp's for %q", m.direct, pre)
	}
	switch typ, _ := typeOf(t.spec.Normalizer); typ {
	case "":
	case "NFC":
		v.Approximate = "llama.cpp does not apply the normalizer NFC"
	default:
		if seq, ok := t.norm.(normSequence); !ok || len(seq) > 0 {
			return formats.Unsupportedf(t.name, "normalizer", "normalizer %s with byte-level BPE in GGUF", clip(t.spec.Normalizer))
		}
	}
	if m.opt != (bpeOptions{}) {
		return formats.Unsupportedf(t.name, "model", "BPE with %+v in GGUF", m.opt)
	}
	v.Merges = m.mergeLines()
	return nil
}

// mergeLines returns the merges by rank as "left right".
func (m *bpe) mergeLines() []string {
	out := make([]string, 0, len(m.merges))
	for _, p := range m.mergePairs() {
		out = append(out, p[0]+" "+p[1])
	}
	return out
}

func (m *bpe) mergePairs() [][2]string {
	type row struct {
		rank uint32
		pair [2]string
	}
	rows := make([]row, 0, len(m.merges))
	for k, to := range m.merges {
		rows = append(rows, row{to.rank, [2]string{m.pieces[k>>32], m.pieces[uint32(k)]}})
	}
	slices.SortFunc(rows, func(a, b row) int { return int(a.rank) - int(b.rank) })
	out := make([][2]string, len(rows))
	for i, r := range rows {
		out[i] = r.pair
	}
	return out
}

// exportMerges writes a merge-list BPE over characters with byte fallback
// (Llama 2, Mistral, Gemma) as a SentencePiece vocabulary: its own scores
// when tokenizer.model is there, else scores that follow the merges; where those
// cannot say it all, and a text gets BOS and no space, as Gemma 4's are written.
func (t *Tokenizer) exportMerges(v *Vocabulary, m *bpe) error {
	prefix, ok := metaPrefix(t.spec)
	if !ok || !m.opt.byteFallback || m.opt.prefix != "" || m.opt.suffix != "" {
		return formats.Unsupportedf(t.name, "pre_tokenizer", "llama.cpp has no name for the split %s with normalizer %s", clip(t.spec.PreTokenizer), clip(t.spec.Normalizer))
	}
	v.AddSpacePrefix = prefix
	if t.sp != nil && t.sp.kind == 2 && len(t.sp.pieces) <= len(v.Tokens) && slices.Equal(t.sp.pieces, v.Tokens[:len(t.sp.pieces)]) {
		scores := slices.Clone(t.sp.scores)
		copy(v.Types, t.sp.types)
		for len(scores) < len(v.Tokens) {
			scores = append(scores, 0)
		}
		return t.exportSPM(v, scores)
	}
	scores := make([]float32, len(v.Tokens))
	rank := float32(0)
	pairs := m.mergePairs()
	have := make(map[[2]string]bool, len(pairs))
	for _, p := range pairs {
		have[p] = true
		if id := m.ids[p[0]+p[1]]; scores[id] == 0 {
			rank--
			scores[id] = rank
		}
	}
	for id, s := range v.Tokens {
		// Characters and pieces that no merge makes never win over one.
		if scores[id] == 0 && v.Types[id] == TypeNormal {
			scores[id] = -1e9
		}
		if v.Approximate == "" && scores[id] < 0 && scores[id] > -1e9 && missingSplit(m, s, have) {
			v.Approximate = fmt.Sprintf("llama.cpp merges any two pieces that spell a third; the merges of %q are fewer", s)
		}
	}
	if v.Approximate != "" && v.AddBOS && !prefix {
		return exportGemma(v, m)
	}
	return t.exportSPM(v, scores)
}

// exportGemma writes merges between line breaks, as llama.cpp has them of Gemma 4.
// Source: GemmaModel4.set_vocab of its conversion/gemma.py, and llama-vocab.cpp.
func exportGemma(v *Vocabulary, m *bpe) error {
	v.Model, v.Pre, v.Approximate, v.Merges = "gemma4", "gemma4", "", m.mergeLines()
	v.Scores = slices.Repeat([]float32{-1000}, len(v.Tokens)) // which nothing reads
	for _, p := range m.mergePairs() {
		if s := p[0] + p[1]; strings.Contains(s, "\n") && strings.Trim(s, "\n") != "" {
			v.Approximate = fmt.Sprintf("llama.cpp merges between line breaks alone, not %q and %q", p[0], p[1])
			break
		}
	}
	for id, s := range v.Tokens {
		if v.Types[id] == TypeControl && slices.Contains(gemmaSeen, s) {
			v.Types[id] = TypeUserDefined
		}
	}
	return nil
}

// gemmaSeen are Gemma 4's control tokens that llama.cpp shows in a text, for its
// readers of channels and tool calls go by them.
var gemmaSeen = []string{"<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", "<|\"|>"}

// missingSplit reports whether two pieces spell s without being a merge.
func missingSplit(m *bpe, s string, have map[[2]string]bool) bool {
	for i := range s {
		if i == 0 {
			continue
		}
		_, l := m.ids[s[:i]]
		_, r := m.ids[s[i:]]
		if l && r && !have[[2]string{s[:i], s[i:]}] {
			return true
		}
	}
	return false
}

// metaPrefix recognises the stages that metaStages writes, and Metaspace.
func metaPrefix(s spec) (prefix, ok bool) {
	norm, pre := string(snakeCompact(s.Normalizer)), string(snakeCompact(s.PreTokenizer))
	for _, p := range []bool{false, true} {
		for _, first := range []bool{false, true} {
			w := metaStages(p, first)
			if norm == string(snakeCompact(w.Normalizer)) && pre == string(snakeCompact(w.PreTokenizer)) {
				return p, true
			}
		}
	}
	if m, err := parseMetaspace(s.PreTokenizer); err == nil && norm == "" && !m.cut && m.char == metaSpace {
		return m.scheme != schemeNever, true
	}
	// Gemma's file also splits at spaces, of which its normalizer left none.
	if norm == string(snakeCompact(metaStages(false, false).Normalizer)) {
		var c struct {
			Type    string
			Pattern patternJSON
		}
		if looseJSON(s.PreTokenizer, &c) && c.Type == "Split" && c.Pattern.String != nil && *c.Pattern.String == " " {
			return false, true
		}
	}
	return false, false
}

func (t *Tokenizer) exportSPM(v *Vocabulary, scores []float32) error {
	v.Model, v.Pre = "llama", "default"
	if n, ok := t.norm.(*spNormalizer); ok {
		if n.chars != nil || n.squeeze || n.asSuffix || !n.escape {
			return formats.Unsupportedf(t.name, "normalizer", "llama.cpp applies no charsmap, white space removal or suffix spaces to a llama vocabulary")
		}
		v.AddSpacePrefix = n.dummyPrefix
	} else if p, ok := metaPrefix(t.spec); ok {
		v.AddSpacePrefix = p
	}
	v.Scores = append(slices.Clone(scores), make([]float32, max(0, len(v.Tokens)-len(scores)))...)
	return nil
}

func (t *Tokenizer) exportUnigram(v *Vocabulary, m *unigram) error {
	v.Model, v.Pre = "t5", "default"
	for _, s := range m.scores {
		v.Scores = append(v.Scores, float32(s))
	}
	for len(v.Scores) < len(v.Tokens) {
		v.Scores = append(v.Scores, 0)
	}
	if m.fallback {
		return formats.Unsupportedf(t.name, "model", "Unigram with byte fallback in GGUF")
	}
	if n, ok := t.norm.(*spNormalizer); ok && n.escape {
		v.AddSpacePrefix, v.RemoveExtraWhitespaces, v.TreatWhitespaceAsSuffix = n.dummyPrefix, n.squeeze, n.asSuffix
		if n.chars != nil {
			v.PrecompiledCharsmap = n.chars.blob
		}
		return nil
	}
	return t.unigramStages(v)
}

// unigramStages reads the stages that Hugging Face's converters write around
// Unigram models.
func (t *Tokenizer) unigramStages(v *Vocabulary) error {
	var n struct {
		Type                string
		Normalizers         []rawJSON
		PrecompiledCharsmap []byte
		Pattern             patternJSON
	}
	var read func(raw rawJSON) bool
	read = func(raw rawJSON) bool {
		c := n
		if isNull(raw) {
			return true
		}
		if !looseJSON(snake(raw), &c) {
			return false
		}
		switch c.Type {
		case "Sequence":
			for _, r := range c.Normalizers {
				if !read(r) {
					return false
				}
			}
			return true
		case "Precompiled":
			v.PrecompiledCharsmap = c.PrecompiledCharsmap
			return true
		case "Strip":
			return true
		case "Replace":
			squeeze := c.Pattern.Regex != nil && *c.Pattern.Regex == " {2,}"
			v.RemoveExtraWhitespaces = v.RemoveExtraWhitespaces || squeeze
			return squeeze || c.Pattern.Regex != nil && *c.Pattern.Regex == outerSpaces
		}
		return false
	}
	m, err := parseMetaspace(t.spec.PreTokenizer)
	if !read(t.spec.Normalizer) || err != nil || m.char != metaSpace {
		return formats.Unsupportedf(t.name, "normalizer", "Unigram with normalizer %s and pre-tokenizer %s in GGUF", clip(t.spec.Normalizer), clip(t.spec.PreTokenizer))
	}
	v.AddSpacePrefix = m.scheme != schemeNever
	v.Approximate = "llama.cpp normalizes by longest match, tokenizer.json by grapheme cluster"
	return nil
}
