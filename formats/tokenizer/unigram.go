package tokenizer

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// unkPenalty is what an unknown character costs beyond the least likely
// piece. Source: kUnkPenalty of sentencepiece's unigram_model.
const unkPenalty = 10

// unigram picks the most likely segmentation by the Viterbi algorithm. Scores
// are log probabilities; of equally likely segmentations the one found first,
// with the earlier last piece, wins.
type unigram struct {
	pieces   []string
	ids      map[string]int32
	scores   []float64
	types    []int32 // nil when the source has none
	trie     *trie
	unk      int32 // or -1
	unkScore float64
	fallback bool       // bytes instead of the unknown token
	bytes    [256]int32 // or -1
	rules    unigramRules
}

// unigramRules are the points in which the three sources differ.
type unigramRules struct {
	single   bool // sums are float32, as in sentencepiece
	byPiece  bool // a run of unknown characters that spells a piece is it (Hugging Face)
	userZero bool // user-defined pieces score 0 (llama.cpp), not length*max-0.1
}

// A bestPath is the best segmentation up to a byte of the text.
type bestPath struct {
	score float64
	id    int32
	from  int32 // where its last piece starts, or -1: none yet
}

// maxScore bounds a piece's score, so that sums over a text stay finite.
const maxScore = 1e30

// newUnigram builds the model. With types, only normal, user-defined and
// unused pieces can match, and unused ones never do. skip lists ids that
// plain text never becomes, unless they are a single character.
func newUnigram(pieces []string, scores []float64, types []int32, unk int32, fallback bool, skip map[int32]bool, r unigramRules) (*unigram, error) {
	m := &unigram{pieces: pieces, scores: scores, types: types, unk: unk, fallback: fallback, rules: r,
		ids: make(map[string]int32, len(pieces))}
	for b := range m.bytes {
		m.bytes[b] = -1
	}
	least, most := math.Inf(1), math.Inf(-1)
	for i, s := range scores {
		if !(math.Abs(s) <= maxScore) {
			return nil, fmt.Errorf("score of piece %d (%q) is %v, not a logarithm of a probability", i, pieces[i], s)
		}
		if types == nil || types[i] == TypeNormal {
			least, most = min(least, s), max(most, s)
		}
	}
	m.unkScore = least - unkPenalty
	match := make(map[string]int32, len(pieces))
	for i, p := range pieces {
		m.ids[p] = int32(i)
		if b, ok := byteToken(p); ok {
			m.bytes[b] = int32(i)
		}
		if p != "" && !(skip[int32(i)] && utf8.RuneCountInString(p) > 1) && (types == nil || types[i] == TypeNormal || types[i] == TypeUserDefined) {
			match[p] = int32(i)
		}
	}
	m.trie = newTrie(match)
	m.scores = adjusted(scores, pieces, types, most, r)
	return m, nil
}

// adjusted gives user-defined pieces the score that makes them win.
func adjusted(scores []float64, pieces []string, types []int32, most float64, r unigramRules) []float64 {
	if types == nil {
		return scores
	}
	out := append([]float64(nil), scores...)
	for i, t := range types {
		if t != TypeUserDefined {
			continue
		}
		out[i] = 0
		if !r.userZero && !math.IsInf(most, 0) {
			out[i] = float64(float32(float64(float32(len(pieces[i]))*float32(most)) - 0.1))
		}
	}
	return out
}

func (m *unigram) vocab() []string { return m.pieces }
func (m *unigram) kind() string    { return "Unigram" }
func (m *unigram) id(s string) (int32, bool) {
	id, ok := m.ids[s]
	return id, ok
}

func (m *unigram) encode(dst []int32, word string, sc *scratch) ([]int32, error) {
	if len(word) >= math.MaxInt32 {
		return nil, fmt.Errorf("a text of %d bytes without a place to split is too long", len(word))
	}
	if cap(sc.best) <= len(word) {
		sc.best = make([]bestPath, len(word)+1)
	}
	best := sc.best[:len(word)+1]
	for i := range best {
		best[i].from = -1
	}
	best[0].score = 0
	for at := 0; at < len(word); {
		_, n := utf8.DecodeRuneInString(word[at:])
		if !m.extend(best, word, at, n) {
			if m.unk < 0 {
				return nil, fmt.Errorf("the vocabulary has neither %q nor an unknown token", word[at:at+n])
			}
			m.offer(best, at, at+n, m.unk, m.unkScore)
		}
		at += n
	}
	return m.trace(dst, word, best, sc), nil
}

// extend offers every piece that begins at byte at; it reports whether one of
// them is the single character there.
func (m *unigram) extend(best []bestPath, word string, at, char int) (single bool) {
	node := int32(0)
	for i := at; i < len(word); i++ {
		if node = m.trie.step(node, word[i]); node == 0 {
			break
		}
		if id := m.trie.nodes[node].id; id >= 0 {
			m.offer(best, at, i+1, id, m.scores[id])
			single = single || i+1-at == char
		}
	}
	return single
}

func (m *unigram) offer(best []bestPath, from, to int, id int32, score float64) {
	s := best[from].score + score
	if m.rules.single {
		s = float64(float32(s))
	}
	if b := &best[to]; b.from < 0 || s > b.score {
		*b = bestPath{s, id, int32(from)}
	}
}

// trace walks back from the end; runs of unknown characters become one.
func (m *unigram) trace(dst []int32, word string, best []bestPath, sc *scratch) []int32 {
	out := sc.out[:0] // backwards
	for end := len(word); end > 0; {
		b := best[end]
		from := int(b.from)
		if b.id != m.unk {
			out = append(out, b.id)
			end = from
			continue
		}
		for from > 0 && best[from].id == m.unk {
			from = int(best[from].from)
		}
		out = m.unknown(out, word[from:end])
		end = from
	}
	for i := len(out) - 1; i >= 0; i-- {
		dst = append(dst, out[i])
	}
	sc.out = out
	return dst
}

// unknown appends the ids of a run of unknown characters, backwards.
func (m *unigram) unknown(out []int32, run string) []int32 {
	if m.rules.byPiece {
		if id, ok := m.ids[run]; ok {
			return append(out, id)
		}
	}
	if m.fallback {
		n := len(out)
		for i := len(run) - 1; i >= 0; i-- {
			b := m.bytes[run[i]]
			if b < 0 {
				return append(out[:n], m.unk)
			}
			out = append(out, b)
		}
		return out
	}
	return append(out, m.unk)
}
