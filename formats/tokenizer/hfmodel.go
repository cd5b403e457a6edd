package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

type modelJSON struct {
	Type                    string
	Dropout                 *float64
	UnkToken                *string
	ContinuingSubwordPrefix *string
	EndOfWordSuffix         *string
	FuseUnk                 *bool
	ByteFallback            *bool
	IgnoreMerges            *bool
	Vocab                   rawJSON
	Merges                  rawJSON
	UnkID                   *int32
	MaxInputCharsPerWord    rawJSON
}

// protoModel is a model before its stages are known.
type protoModel struct {
	modelJSON
	pieces []string // by id, "" for holes
	ids    map[string]int32
	scores []float64   // Unigram
	pairs  [][2]string // BPE
	types  []int32     // nil for tokenizer.json
	unk    int32
	rules  unigramRules

	user    *trie // user-defined pieces that the model itself recognises
	userIDs map[string]int32
}

func readModel(raw []byte) (*protoModel, error) {
	if isNull(raw) {
		return nil, fmt.Errorf("there is no model")
	}
	m := &protoModel{unk: -1}
	if err := strict(snake(raw), &m.modelJSON); err != nil {
		return nil, err
	}
	if m.Type == "" { // old files
		m.Type = "BPE"
		if bytes.HasPrefix(bytes.TrimSpace(m.Vocab), []byte("[")) {
			m.Type = "Unigram"
		}
	}
	switch m.Type {
	case "BPE":
		return m, m.readBPE()
	case "Unigram":
		return m, m.readUnigram()
	}
	return nil, unsupported("model %q", m.Type)
}

func (m *protoModel) readBPE() error {
	if m.Dropout != nil && *m.Dropout != 0 {
		return unsupported("dropout %v: encoding would be random", *m.Dropout)
	}
	if isNull(m.Vocab) || isNull(m.Merges) {
		return fmt.Errorf("vocab or merges are missing")
	}
	if err := json.Unmarshal(m.Vocab, &m.ids); err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	most := int32(-1)
	for p, id := range m.ids {
		if id < 0 || int(id) > 4*len(m.ids)+holes {
			return fmt.Errorf("vocab: %q has id %d among %d pieces", p, id, len(m.ids))
		}
		most = max(most, id)
	}
	m.pieces = make([]string, most+1)
	for p, id := range m.ids {
		if m.pieces[id] != "" {
			return fmt.Errorf("vocab: %q and %q share id %d", p, m.pieces[id], id)
		}
		m.pieces[id] = p
	}
	var err error
	m.pairs, err = readMerges(m.Merges)
	m.Vocab, m.Merges = nil, nil
	return err
}

// holes is how far ids may lie beyond the number of pieces.
const holes = 1 << 16

// readMerges reads both spellings: "a b" and ["a", "b"].
func readMerges(raw []byte) ([][2]string, error) {
	var lines []string
	if json.Unmarshal(raw, &lines) == nil {
		pairs := make([][2]string, 0, len(lines))
		for i, l := range lines {
			if strings.HasPrefix(l, "#version") {
				continue
			}
			a, b, ok := strings.Cut(l, " ")
			if !ok || strings.Contains(b, " ") {
				return nil, fmt.Errorf("merge %d is %q, not two pieces", i, l)
			}
			pairs = append(pairs, [2]string{a, b})
		}
		return pairs, nil
	}
	var lists [][]string
	if err := json.Unmarshal(raw, &lists); err != nil {
		return nil, fmt.Errorf("merges: %w", err)
	}
	pairs := make([][2]string, len(lists))
	for i, l := range lists {
		if len(l) != 2 {
			return nil, fmt.Errorf("merge %d has %d pieces", i, len(l))
		}
		pairs[i] = [2]string{l[0], l[1]}
	}
	return pairs, nil
}

func (m *protoModel) readUnigram() error {
	var rows [][2]any
	if err := json.Unmarshal(m.Vocab, &rows); err != nil {
		return fmt.Errorf("vocab: %w", err)
	}
	m.Vocab = nil
	m.ids = make(map[string]int32, len(rows))
	for i, r := range rows {
		p, ok := r[0].(string)
		s, ok2 := r[1].(float64)
		if !ok || !ok2 {
			return fmt.Errorf("vocab: entry %d is not [piece, score]", i)
		}
		m.pieces = append(m.pieces, p)
		m.scores = append(m.scores, s)
		m.ids[p] = int32(i)
	}
	if len(rows) == 0 {
		return fmt.Errorf("vocab is empty")
	}
	m.rules = unigramRules{byPiece: true}
	if m.UnkID != nil {
		if *m.UnkID < 0 || int(*m.UnkID) >= len(m.pieces) {
			return fmt.Errorf("unk_id %d of %d pieces", *m.UnkID, len(m.pieces))
		}
		m.unk = *m.UnkID
	}
	return nil
}

func flag(b *bool) bool { return b != nil && *b }

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (m *protoModel) build(special map[int32]bool) (model, error) {
	switch m.Type {
	case "SPM":
		scores := make([]float32, len(m.scores))
		for i, s := range m.scores {
			scores[i] = float32(s)
		}
		s, err := newSPM(m.pieces, scores, m.types, m.unk)
		if err == nil && m.user != nil {
			s.freeze(m.user, m.userIDs)
		}
		return s, err
	case "Unigram":
		return newUnigram(m.pieces, m.scores, m.types, m.unk, flag(m.ByteFallback), special, m.rules)
	}
	o := bpeOptions{text(m.ContinuingSubwordPrefix), text(m.EndOfWordSuffix), flag(m.FuseUnk), flag(m.ByteFallback)}
	b, err := newBPE(m.pieces, m.ids, m.pairs, text(m.UnkToken), o, flag(m.IgnoreMerges))
	if err != nil {
		return nil, err
	}
	b.blocked = special
	m.pairs = nil
	return b, nil
}
