package tokenizer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// A charsmap is SentencePiece's precompiled_charsmap: a double-array trie
// from character sequences to their replacements.
//
// Layout (source: sentencepiece's normalizer.cc and darts-clone): a uint32
// little-endian size of the array in bytes, the array of uint32 units, then
// the replacements, each ended by a zero byte. A unit holds its label in bits
// 0 to 7 (with bit 31 clear), a leaf flag in bit 8, the offset's shift in bit
// 9 and the offset from bit 10; a leaf's value is the low 31 bits of the unit
// at the offset: where its replacement starts.
type charsmap struct {
	units []uint32
	text  []byte
	blob  []byte // as read
}

// newCharsmap checks and opens a blob; an empty one is nil: the identity.
func newCharsmap(blob []byte) (*charsmap, error) {
	if len(blob) == 0 {
		return nil, nil
	}
	if len(blob) < 4 {
		return nil, fmt.Errorf("precompiled_charsmap has %d bytes, too few for its header", len(blob))
	}
	n := binary.LittleEndian.Uint32(blob)
	if n%4 != 0 || n == 0 || uint64(n) > uint64(len(blob)-4) {
		return nil, fmt.Errorf("precompiled_charsmap says its trie has %d bytes, of %d", n, len(blob)-4)
	}
	c := &charsmap{units: make([]uint32, n/4), text: blob[4+n:], blob: blob}
	for i := range c.units {
		c.units[i] = binary.LittleEndian.Uint32(blob[4+4*i:])
	}
	for _, t := range bytes.Split(c.text, []byte{0}) {
		if len(t) > maxInserted {
			return nil, fmt.Errorf("precompiled_charsmap has a replacement of %d bytes, more than %d", len(t), maxInserted)
		}
	}
	return c, nil
}

func unitOffset(u uint32) uint32 { return u >> 10 << (u & (1 << 9) >> 6) }

// lookup returns the replacements of the shortest and of the longest prefix
// of s that the trie holds, and the latter's length; 0 when there is none.
func (c *charsmap) lookup(s string) (short, long uint32, n int) {
	pos := unitOffset(c.units[0])
	for i := 0; i < len(s) && s[i] != 0; i++ {
		pos ^= uint32(s[i])
		if int64(pos) >= int64(len(c.units)) {
			break
		}
		u := c.units[pos]
		if u&(1<<31|0xff) != uint32(s[i]) {
			break
		}
		pos ^= unitOffset(u)
		if int64(pos) >= int64(len(c.units)) {
			break
		}
		if u>>8&1 == 1 {
			long = c.units[pos] & (1<<31 - 1)
			if n == 0 {
				short = long
			}
			n = i + 1
		}
	}
	return short, long, n
}

// replacement returns the text at an offset, up to its zero byte.
func (c *charsmap) replacement(at uint32) string {
	if int64(at) >= int64(len(c.text)) {
		return ""
	}
	t := c.text[at:]
	if i := bytes.IndexByte(t, 0); i >= 0 {
		t = t[:i]
	}
	return strings.ToValidUTF8(string(t), "\ufffd")
}

// graphemes normalizes s the way tokenizer.json's Precompiled does: by
// grapheme clusters of under 6 bytes, else by characters, each replaced as a
// whole when any prefix of it is in the trie, by the shortest prefix's
// replacement. The behaviour is Hugging Face's, kept as it is.
//
// It stops behind most bytes.
func (c *charsmap) graphemes(s string, most int) string {
	var b strings.Builder
	b.Grow(len(s))
	state := -1
	for s != "" && b.Len() <= most {
		var g string
		g, s, _, state = uniseg.FirstGraphemeClusterInString(s, state)
		if len(g) < 6 {
			if short, _, n := c.lookup(g); n > 0 {
				b.WriteString(c.replacement(short))
				continue
			}
		}
		for _, r := range g {
			var buf [utf8.UTFMax]byte
			ch := string(buf[:utf8.EncodeRune(buf[:], r)])
			if short, _, n := c.lookup(ch); n > 0 {
				b.WriteString(c.replacement(short))
			} else {
				b.WriteString(ch)
			}
		}
	}
	return b.String()
}
