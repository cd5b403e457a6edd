package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// bpe is the merge-list BPE of tokenizer.json and of GGUF's "gpt2"
// vocabularies. Pre-tokens arrive in the vocabulary's alphabet.
type bpe struct {
	pieces  []string // by id
	ids     map[string]int32
	merges  map[uint64]mergeTo // by left<<32 | right
	bytes   [256]int32         // ids of <0x00> to <0xFF>, or -1
	unk     int32              // or -1
	opt     bpeOptions
	direct  bool           // ignore_merges: a whole word that is a piece is that piece
	blocked map[int32]bool // special tokens: plain words never are one of them
	cache   *wordCache
	cutMeta bool // no merge crosses a place where U+2581 follows another character
}

type bpeOptions struct {
	prefix, suffix string // continuing_subword_prefix, end_of_word_suffix
	fuseUnk        bool
	byteFallback   bool
}

type mergeTo struct {
	rank uint32
	id   int32
}

// newBPE builds the merge table. pairs are in rank order; all their parts and
// results must be pieces.
func newBPE(pieces []string, ids map[string]int32, pairs [][2]string, unk string, o bpeOptions, direct bool) (*bpe, error) {
	m := &bpe{pieces: pieces, ids: ids, opt: o, direct: direct, unk: -1, cache: newWordCache()}
	if unk != "" {
		id, ok := ids[unk]
		if !ok {
			return nil, fmt.Errorf("unk_token %q is not in the vocabulary", unk)
		}
		m.unk = id
	}
	for b := range m.bytes {
		m.bytes[b] = -1
		if id, ok := ids[fmt.Sprintf("<0x%02X>", b)]; ok {
			m.bytes[b] = id
		}
	}
	m.merges = make(map[uint64]mergeTo, len(pairs))
	_, m.cutMeta = ids[metaSpace]
	m.cutMeta = m.cutMeta && o.prefix == "" && o.suffix == ""
	for rank, p := range pairs {
		l, lok := ids[p[0]]
		r, rok := ids[p[1]]
		if !lok || !rok || len(p[1]) < len(o.prefix) {
			return nil, fmt.Errorf("merge %d: %q or %q is not in the vocabulary", rank, p[0], p[1])
		}
		id, ok := ids[p[0]+p[1][len(o.prefix):]]
		if !ok {
			return nil, fmt.Errorf("merge %d: %q is not in the vocabulary", rank, p[0]+p[1][len(o.prefix):])
		}
		m.merges[pairKey(l, r)] = mergeTo{uint32(rank), id}
		m.cutMeta = m.cutMeta && !crossesMeta(pieces[id])
	}
	return m, nil
}

func pairKey(l, r int32) uint64 { return uint64(uint32(l))<<32 | uint64(uint32(r)) }

func (m *bpe) vocab() []string { return m.pieces }
func (m *bpe) kind() string    { return "BPE" }
func (m *bpe) id(s string) (int32, bool) {
	id, ok := m.ids[s]
	return id, ok
}

func (m *bpe) encode(dst []int32, word string, sc *scratch) ([]int32, error) {
	if m.direct {
		if id, ok := m.ids[word]; ok && !m.blocked[id] {
			return append(dst, id), nil
		}
	}
	for m.cutMeta && word != "" {
		n := metaWord(word)
		if n == len(word) {
			break
		}
		dst = m.word(dst, word[:n], sc)
		word = word[n:]
	}
	return m.word(dst, word, sc), nil
}

func (m *bpe) word(dst []int32, word string, sc *scratch) []int32 {
	if ids, ok := m.cache.get(word); ok {
		return append(dst, ids...)
	}
	m.symbols(word, sc)
	sc.merge(func(l, r *symbol) (uint32, int32, bool) {
		to, ok := m.merges[pairKey(l.id, r.id)]
		return to.rank, to.id, ok
	})
	n := len(dst)
	for i := range sc.syms {
		if !sc.syms[i].gone {
			dst = append(dst, sc.syms[i].id)
		}
	}
	m.cache.put(word, dst[n:])
	return dst
}

// symbols fills sc.syms with the characters of word. A character outside the
// vocabulary becomes its bytes, the unknown token or, having neither, nothing.
func (m *bpe) symbols(word string, sc *scratch) {
	sc.syms = sc.syms[:0]
	at := int32(0)
	add := func(id int32) {
		sc.syms = append(sc.syms, symbol{id: id, start: at, end: at + 1})
		at++
	}
	unk := false // an unknown token is pending, to fuse with the next
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		c := word[i : i+n]
		if m.opt.prefix != "" && i > 0 {
			c = m.opt.prefix + c
		}
		if m.opt.suffix != "" && i+n == len(word) {
			c += m.opt.suffix
		}
		i += n
		if id, ok := m.ids[c]; ok {
			if unk {
				add(m.unk)
				unk = false
			}
			add(id)
			continue
		}
		// A pending unknown token stays pending across bytes, as in
		// Hugging Face's library.
		if m.opt.byteFallback && m.hasBytes(c) {
			for j := range len(c) {
				add(m.bytes[c[j]])
			}
			continue
		}
		if m.unk >= 0 {
			if unk && !m.opt.fuseUnk {
				add(m.unk)
			}
			unk = true
		}
	}
	if unk {
		add(m.unk)
	}
	sc.link()
}

func (m *bpe) hasBytes(c string) bool {
	for i := range len(c) {
		if m.bytes[c[i]] < 0 {
			return false
		}
	}
	return true
}
