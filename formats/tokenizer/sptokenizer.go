package tokenizer

import "github.com/nstf/nstf/formats"

// fromSentencePiece builds a tokenizer from tokenizer.model alone. Control and
// unknown pieces are special tokens, user-defined pieces added ones. Like
// transformers, it puts BOS first unless the configuration says otherwise
// (add_bos_token) and, unless it says legacy: false, the dummy space behind
// every special token.
func fromSentencePiece(name string, raw []byte, c *hfConfig) (*Tokenizer, error) {
	part := "tokenizer.model"
	sp, err := parseSPModel(raw)
	if err != nil {
		return nil, located(name, part, err)
	}
	if sp.hasDenorm {
		return nil, formats.Unsupportedf(name, part, "denormalizer_spec")
	}
	m := &protoModel{pieces: sp.pieces, types: sp.types, unk: -1, rules: unigramRules{single: true}}
	m.ByteFallback = &sp.byteFallback
	switch sp.kind {
	case 1:
		m.Type = "Unigram"
	case 2:
		m.Type = "SPM"
	default:
		return nil, formats.Unsupportedf(name, part, "model_type %d (1 is Unigram, 2 is BPE)", sp.kind)
	}
	if sp.unk >= 0 && int(sp.unk) < len(sp.pieces) {
		m.unk = sp.unk
	}
	m.ids = make(map[string]int32, len(sp.pieces))
	for i, p := range sp.pieces {
		if _, dup := m.ids[p]; dup {
			return nil, formats.Errorf(name, part, "piece %q occurs twice", p)
		}
		m.ids[p] = int32(i)
		m.scores = append(m.scores, float64(sp.scores[i]))
	}
	sp.dummyPrefix = sp.dummyPrefix && !c.gemma()
	t := &Tokenizer{name: name, sp: sp}
	if err := t.spStages(sp, c); err != nil {
		return nil, located(name, part, err)
	}
	// User-defined pieces belong to the normalizer and the model here, which
	// see the spaces around them.
	added, user := []addedToken{}, map[string]int32{}
	for _, a := range typedTokens(sp.pieces, sp.types) {
		if a.Special {
			added = append(added, a)
		} else {
			user[a.Content] = a.ID
		}
	}
	if len(user) > 0 {
		m.user, m.userIDs = newTrie(user), user
		if n, ok := t.norm.(*spNormalizer); ok {
			n.user = m.user
		}
	}
	if t, err = t.assemble(m, c.extend(added, m)); err != nil {
		return nil, err
	}
	t.bos, t.eos, t.pad = t.exists(sp.bos), t.exists(sp.eos), t.exists(sp.pad)
	t.useConfig(c)
	var p postProcessor
	if (c.AddBOS == nil || *c.AddBOS) && t.bos >= 0 && sp.kind == 2 || flag(c.AddBOS) && t.bos >= 0 {
		p.prefix = []int32{t.bos}
	}
	if (flag(c.AddEOS) || c.AddEOS == nil && sp.kind == 1) && t.eos >= 0 {
		p.suffix = []int32{t.eos}
	}
	t.post, t.spec.PostProcessor = p, templatePost(t, p)
	return t, nil
}

func (t *Tokenizer) exists(id int32) int32 {
	if _, ok := t.Piece(id); ok {
		return id
	}
	return -1
}

// typedTokens are the added tokens that types of pieces imply.
func typedTokens(pieces []string, types []int32) []addedToken {
	var out []addedToken
	for i, typ := range types {
		switch typ {
		case TypeControl, TypeUnknown:
			out = append(out, addedToken{ID: int32(i), Content: pieces[i], Special: true})
		case TypeUserDefined:
			out = append(out, addedToken{ID: int32(i), Content: pieces[i]})
		}
	}
	return out
}

// spStages sets the stages around a SentencePiece model. Where tokenizer.json
// can say the same, the stages are those; else t.norm is SentencePiece's own
// normalizer and the JSON is the nearest that Hugging Face's converters write.
func (t *Tokenizer) spStages(sp *spModel, c *hfConfig) error {
	chars, err := newCharsmap(sp.charsmap)
	if err != nil {
		return err
	}
	onlyStart := c.Legacy != nil && !*c.Legacy
	t.spec = metaStages(sp.dummyPrefix && !sp.asSuffix, onlyStart)
	// Metaspace puts no space before one; SentencePiece does.
	if chars == nil && !sp.squeeze && !sp.asSuffix && sp.escape && !(onlyStart && sp.dummyPrefix) {
		return nil
	}
	n := &spNormalizer{chars: chars, dummyPrefix: sp.dummyPrefix, onlyStart: onlyStart,
		asSuffix: sp.asSuffix, squeeze: sp.squeeze, escape: sp.escape}
	t.useSPNormalizer(n, sp.charsmap)
	return nil
}

// useSPNormalizer puts n in the place of the stages before the model, and
// into the spec what comes nearest.
func (t *Tokenizer) useSPNormalizer(n *spNormalizer, blob []byte) {
	t.norm = n
	t.spec.Normalizer, t.spec.PreTokenizer = nil, nil
	scheme := "never"
	if n.dummyPrefix && !n.asSuffix {
		if scheme = "always"; n.onlyStart {
			scheme = "first"
		}
	}
	var seq []any
	if len(blob) > 0 {
		seq = append(seq, map[string]any{"type": "Precompiled", "precompiled_charsmap": blob})
	}
	if n.squeeze {
		seq = append(seq, map[string]any{"type": "Replace", "pattern": map[string]any{"Regex": outerSpaces}, "content": ""},
			map[string]any{"type": "Replace", "pattern": map[string]any{"Regex": " {2,}"}, "content": " "})
	}
	t.nearest = &spec{Decoder: t.spec.Decoder}
	if seq != nil {
		t.nearest.Normalizer = mustJSON(map[string]any{"type": "Sequence", "normalizers": seq})
	}
	t.nearest.PreTokenizer = mustJSON(map[string]any{"type": "Metaspace", "replacement": metaSpace, "prepend_scheme": scheme, "split": false})
}

// outerSpaces are the spaces that SentencePiece takes off a text; unlike those
// of Strip they are no other white space.
const outerSpaces = `\A +| +\z`

// metaStages are the stages of a SentencePiece vocabulary without charsmap:
// spaces become U+2581, with one in front when prefix is set.
func metaStages(prefix, onlyStart bool) spec {
	replace := map[string]any{"type": "Replace", "pattern": map[string]any{"String": " "}, "content": metaSpace}
	decoders := []any{
		map[string]any{"type": "Replace", "pattern": map[string]any{"String": metaSpace}, "content": " "},
		map[string]any{"type": "ByteFallback"}, map[string]any{"type": "Fuse"},
	}
	s := spec{Normalizer: mustJSON(replace)}
	if prefix {
		decoders = append(decoders, map[string]any{"type": "Strip", "content": " ", "start": 1, "stop": 0})
		if onlyStart {
			s.Normalizer = nil
			s.PreTokenizer = mustJSON(map[string]any{"type": "Metaspace", "replacement": metaSpace, "prepend_scheme": "first", "split": false})
		} else {
			s.Normalizer = mustJSON(map[string]any{"type": "Sequence", "normalizers": []any{map[string]any{"type": "Prepend", "prepend": metaSpace}, replace}})
		}
	}
	s.Decoder = mustJSON(map[string]any{"type": "Sequence", "decoders": decoders})
	return s
}
