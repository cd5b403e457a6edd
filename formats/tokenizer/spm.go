package tokenizer

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// Types of pieces, as GGUF's tokenizer.ggml.token_type and SentencePiece's
// ModelProto number them.
const (
	TypeNormal      int32 = 1
	TypeUnknown     int32 = 2
	TypeControl     int32 = 3
	TypeUserDefined int32 = 4
	TypeUnused      int32 = 5
	TypeByte        int32 = 6
)

// spm is SentencePiece's BPE: any two neighbours whose concatenation is a
// piece may merge, the piece with the highest score first. There is no merge
// list. Source: the behaviour of sentencepiece's bpe_model and of llama.cpp's
// "llama" vocabularies, which agree up to control pieces; as in the former,
// control, unknown and byte pieces never come out of a merge.
type spm struct {
	pieces  []string
	ids     map[string]int32 // every piece
	merge   map[string]ranked
	bytes   [256]int32 // or -1
	unk     int32      // or -1
	scores  []float32
	types   []int32
	cutMeta bool  // see bpe.cutMeta
	user    *trie // user-defined pieces when no stage before splits them off
	longest int   // bytes of the longest piece that a merge can make
	cache   *wordCache
}

type ranked struct {
	id   int32
	rank uint32
}

// descending maps scores so that the highest becomes the least rank.
func descending(f float32) uint32 {
	b := math.Float32bits(f)
	if b>>31 == 0 {
		b |= 1 << 31
	} else {
		b = ^b
	}
	return ^b
}

// newSPM builds the model; the three slices are by id and equally long.
func newSPM(pieces []string, scores []float32, types []int32, unk int32) (*spm, error) {
	m := &spm{pieces: pieces, scores: scores, types: types, unk: unk,
		ids: make(map[string]int32, len(pieces)), merge: make(map[string]ranked, len(pieces)), cache: newWordCache()}
	for b := range m.bytes {
		m.bytes[b] = -1
	}
	for i, p := range pieces {
		id := int32(i)
		if p == "" {
			continue
		}
		if _, dup := m.ids[p]; !dup {
			m.ids[p] = id
		}
		switch types[i] {
		case TypeNormal, TypeUserDefined, TypeUnused:
			if scores[i] != scores[i] {
				return nil, fmt.Errorf("score of piece %d (%q) is not a number", i, p)
			}
			if _, dup := m.merge[p]; !dup {
				m.merge[p] = ranked{id, descending(scores[i])}
				m.longest = max(m.longest, len(p))
			}
		case TypeByte:
			if b, ok := byteToken(p); ok {
				m.bytes[b] = id
			}
		}
	}
	_, m.cutMeta = m.merge[metaSpace]
	for p := range m.merge {
		m.cutMeta = m.cutMeta && !crossesMeta(p)
	}
	return m, nil
}

// crossesMeta reports whether U+2581 follows another character within s.
func crossesMeta(s string) bool {
	s = strings.TrimLeft(s, metaSpace)
	return strings.Contains(s, metaSpace)
}

// metaWord returns the length of the first word of s: up to where U+2581
// follows another character. SentencePiece texts are one long pre-token;
// where no piece crosses such a place the words can be merged, and
// remembered, one by one.
func metaWord(s string) int {
	i := len(s) - len(strings.TrimLeft(s, metaSpace))
	if j := strings.Index(s[i:], metaSpace); j >= 0 {
		return i + j
	}
	return len(s)
}

// byteToken reads <0xAB>.
func byteToken(p string) (byte, bool) {
	if len(p) != 6 || p[:3] != "<0x" || p[5] != '>' {
		return 0, false
	}
	hi, lo := unhex(p[3]), unhex(p[4])
	if hi < 0 || lo < 0 {
		return 0, false
	}
	return byte(hi<<4 | lo), true
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

func (m *spm) vocab() []string { return m.pieces }
func (m *spm) kind() string    { return "SPM" }
func (m *spm) id(s string) (int32, bool) {
	id, ok := m.ids[s]
	return id, ok
}

func (m *spm) encode(dst []int32, word string, sc *scratch) ([]int32, error) {
	if len(word) >= math.MaxInt32 {
		return nil, fmt.Errorf("a text of %d bytes without a place to split is too long", len(word))
	}
	var err error
	for m.cutMeta && word != "" {
		n := metaWord(word)
		if n == len(word) {
			break
		}
		if dst, err = m.word(dst, word[:n], sc); err != nil {
			return nil, err
		}
		word = word[n:]
	}
	return m.word(dst, word, sc)
}

func (m *spm) word(dst []int32, word string, sc *scratch) ([]int32, error) {
	if ids, ok := m.cache.get(word); ok {
		return append(dst, ids...), nil
	}
	sc.syms = sc.syms[:0]
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		if m.user != nil {
			n = max(n, m.user.longest(word[i:]))
		}
		id := int32(-1)
		if r, ok := m.merge[word[i:i+n]]; ok {
			id = r.id
		}
		sc.syms = append(sc.syms, symbol{id: id, start: int32(i), end: int32(i + n)})
		i += n
	}
	sc.link()
	sc.merge(func(l, r *symbol) (uint32, int32, bool) {
		if int(r.end-l.start) > m.longest || m.frozen(l.id) || m.frozen(r.id) {
			return 0, 0, false
		}
		to, ok := m.merge[word[l.start:r.end]]
		return to.rank, to.id, ok
	})
	n := len(dst)
	var err error
	fused := false // the last id is an unknown token: a run of them is one
	for i := range sc.syms {
		if s := &sc.syms[i]; !s.gone {
			if dst, fused, err = m.emit(dst, s, word, fused); err != nil {
				return nil, err
			}
		}
	}
	m.cache.put(word, dst[n:])
	return dst, nil
}

// frozen reports whether a symbol is a user-defined piece, which never merges.
func (m *spm) frozen(id int32) bool {
	return m.user != nil && id >= 0 && m.types[id] == TypeUserDefined
}

// freeze makes the model itself recognise user-defined pieces.
func (m *spm) freeze(user *trie, pieces map[string]int32) {
	m.user = user
	for p := range pieces {
		m.cutMeta = m.cutMeta && !strings.Contains(p, metaSpace) && !strings.Contains(p, " ")
	}
}

// emit appends a symbol: its piece, else its bytes, else the unknown token.
func (m *spm) emit(dst []int32, s *symbol, word string, fused bool) ([]int32, bool, error) {
	if s.id >= 0 {
		return append(dst, s.id), false, nil
	}
	n := len(dst)
	for _, b := range []byte(word[s.start:s.end]) {
		if m.bytes[b] >= 0 {
			dst = append(dst, m.bytes[b])
			continue
		}
		if m.unk < 0 {
			return nil, false, fmt.Errorf("the vocabulary has neither %q nor its bytes nor an unknown token", word[s.start:s.end])
		}
		if fused {
			return dst[:n], true, nil
		}
		return append(dst[:n], m.unk), true, nil
	}
	return dst, false, nil
}
