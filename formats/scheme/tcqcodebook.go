package scheme

import "sync"

// A TCQCodebook gives the codeword of each trellis state. Codewords are
// computed, not stored: a kernel makes one from its state in a few
// instructions and multiplies it with activations of 8 bits in one dot product
// of bytes. docs/decisions/0009-trellis-codebooks.md compares them.
type TCQCodebook int

// The codebooks. Numbers are for ever.
const (
	// TCQBytes4 is the sum of the four signed bytes of the low 32 bits of
	// state * 0xCE5C43: a 24-bit multiplication. It is the best found for 2 to
	// 4 bits.
	TCQBytes4 TCQCodebook = 1
	// TCQBytes2 is the sum of the two signed bytes of the low 16 bits of
	// state * 0xD59B + 0x469D: two states fit a packed multiplication.
	TCQBytes2 TCQCodebook = 2
	// TCQFine4 is TCQBytes4 with the factor 0x654CB9, the best found for 5 and
	// 6 bits together.
	TCQFine4 TCQCodebook = 3
)

// TCQCodebookFor returns the codebook with the least error at a number of bits.
func TCQCodebookFor(bits int) TCQCodebook {
	if bits >= 5 {
		return TCQFine4
	}
	return TCQBytes4
}

// Hash returns how codewords are made: the sum of the four signed bytes of
// state * factor mod 2^32, or, where paired, of the two signed bytes of
// (state * factor + addend) mod 2^16.
func (c TCQCodebook) Hash() (factor, addend uint32, paired bool) {
	switch c {
	case TCQBytes4:
		return 0xCE5C43, 0, false
	case TCQBytes2:
		return 0xD59B, 0x469D, true
	case TCQFine4:
		return 0x654CB9, 0, false
	}
	panic("scheme: unknown codebook")
}

// Code returns the codeword of a state.
func (c TCQCodebook) Code(state uint16) int16 {
	factor, addend, paired := c.Hash()
	y := uint32(state)*factor + addend
	sum := int16(int8(y)) + int16(int8(y>>8))
	if !paired {
		sum += int16(int8(y>>16)) + int16(int8(y>>24))
	}
	return sum
}

// Table returns the codewords of all states. It must not be written to.
func (c TCQCodebook) Table() *[1 << TCQState]int16 { return tcqCodebooks[c-1]() }

// tcqCodebooks makes each codebook's table when it is first asked for.
var tcqCodebooks = [...]func() *[1 << TCQState]int16{
	sync.OnceValue(TCQBytes4.fill),
	sync.OnceValue(TCQBytes2.fill),
	sync.OnceValue(TCQFine4.fill),
}

func (c TCQCodebook) fill() *[1 << TCQState]int16 {
	t := new([1 << TCQState]int16)
	for i := range t {
		t[i] = c.Code(uint16(i))
	}
	return t
}
