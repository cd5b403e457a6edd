package grammar

import (
	"bytes"
	"fmt"
	"math"
	"slices"
)

// A Vocabulary is the tokens of a model as bytes, in the order in which the engine
// looks at them, and what is known of them for all grammars. It is safe for concurrent
// use.
type Vocabulary struct {
	tokens [][]byte
	ends   []int32
	isEnd  map[int32]bool
	short  trie // tokens of keyDepth bytes at most: their legality follows from a stateKey
	long   trie
	local  lru[stateKey, *localMask]
	masks  lru[*config, *tokenSet] // of places of all grammars
}

// maxTokenBytes bounds one token; longer ones are never legal.
const maxTokenBytes = 1 << 10

// What a Vocabulary keeps, in bytes: of states of rules, and of places in grammars.
const (
	localBytes = 128 << 20
	maskBytes  = 64 << 20
)

// NewVocabulary returns the vocabulary of a model: tokens by id, each with the bytes
// that it stands for in the middle of a text, nil for those that stand for none (special
// tokens, padding): they are never legal. ends are the ids that end a text; they are
// legal where the grammar may end, and nowhere else. Both are the engine's from then on.
func NewVocabulary(tokens [][]byte, ends []int32) (*Vocabulary, error) {
	if len(tokens) > math.MaxInt32/2 {
		return nil, fmt.Errorf("a vocabulary of %d tokens", len(tokens))
	}
	v := &Vocabulary{tokens: tokens, ends: slices.Clone(ends), isEnd: map[int32]bool{}}
	v.local.limit, v.masks.limit = localBytes, maskBytes
	for _, id := range ends {
		if id < 0 || int(id) >= len(tokens) {
			return nil, fmt.Errorf("token %d ends a text, and the vocabulary has %d", id, len(tokens))
		}
		v.isEnd[id] = true
	}
	var short, long []int32
	for i, t := range tokens {
		switch id := int32(i); {
		case len(t) == 0 || len(t) > maxTokenBytes || v.isEnd[id]:
		case len(t) <= keyDepth:
			short = append(short, id)
		default:
			long = append(long, id)
		}
	}
	v.short.build(tokens, short)
	v.long.build(tokens, long)
	return v, nil
}

// Len returns the number of tokens.
func (v *Vocabulary) Len() int { return len(v.tokens) }

// Words returns the length of a mask.
func (v *Vocabulary) Words() int { return (len(v.tokens) + 31) / 32 }

// A trie holds tokens by their bytes, its nodes in the order in which a walk meets them.
// Node 0 is the empty text.
type trie struct {
	bytes []byte
	end   []int32 // node behind the last below it
	first []int32 // its tokens begin here in ids, those below it follow
	ids   []int32
	under []int32 // index into sets, -1 for nodes of few tokens
	sets  [][4]uint64
}

// crowd is how many nodes lie below a node at least for the bytes below it to be kept.
const crowd = 16

func (t *trie) build(tokens [][]byte, ids []int32) {
	slices.SortStableFunc(ids, func(a, b int32) int { return bytes.Compare(tokens[a], tokens[b]) })
	t.ids = ids
	t.bytes, t.end, t.first = []byte{0}, []int32{0}, []int32{0}
	var path []int32 // nodes of the last token
	var last []byte
	closeTo := func(depth int) {
		for len(path) > depth {
			t.end[path[len(path)-1]] = int32(len(t.bytes))
			path = path[:len(path)-1]
		}
	}
	for i, id := range ids {
		b := tokens[id]
		common := 0
		for common < len(b) && common < len(last) && b[common] == last[common] {
			common++
		}
		closeTo(common)
		for _, c := range b[common:] {
			path = append(path, int32(len(t.bytes)))
			t.bytes, t.end, t.first = append(t.bytes, c), append(t.end, 0), append(t.first, int32(i))
		}
		last = b
	}
	closeTo(0)
	t.end[0] = int32(len(t.bytes))
	t.first = append(t.first, int32(len(ids)))
	t.collect()
}

// collect finds the bytes below the nodes with many others below them.
func (t *trie) collect() {
	t.under = make([]int32, len(t.bytes))
	for i := len(t.bytes) - 1; i >= 0; i-- {
		t.under[i] = -1
		if int(t.end[i])-i <= crowd {
			continue
		}
		var set [4]uint64
		for c := int32(i) + 1; c < t.end[i]; c = t.end[c] {
			b := t.bytes[c]
			set[b>>6] |= 1 << (b & 63)
			if k := t.under[c]; k >= 0 {
				for w := range set {
					set[w] |= t.sets[k][w]
				}
				continue
			}
			for d := c + 1; d < t.end[c]; d++ {
				set[t.bytes[d]>>6] |= 1 << (t.bytes[d] & 63)
			}
		}
		t.under[i] = int32(len(t.sets))
		t.sets = append(t.sets, set)
	}
}

// own returns the tokens of a node.
func (t *trie) own(n int32) []int32 { return t.ids[t.first[n]:t.first[n+1]] }

// below returns the tokens of a node and of all below it.
func (t *trie) below(n int32) []int32 { return t.ids[t.first[n]:t.first[t.end[n]]] }
