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
	// state * 0xCE5C43: a 24-bit multiplication.
	TCQBytes4 TCQCodebook = 1
	// TCQBytes2 is the sum of the two signed bytes of the low 16 bits of
	// state * 0xD59B + 0x469D: two states fit a packed multiplication.
	TCQBytes2 TCQCodebook = 2
)

// Code returns the codeword of a state.
func (c TCQCodebook) Code(state uint16) int16 {
	switch c {
	case TCQBytes4:
		y := uint32(state) * 0xCE5C43
		return int16(int8(y)) + int16(int8(y>>8)) + int16(int8(y>>16)) + int16(int8(y>>24))
	case TCQBytes2:
		y := state*0xD59B + 0x469D
		return int16(int8(y)) + int16(int8(y>>8))
	}
	panic("scheme: unknown codebook")
}

// Table returns the codewords of all states. It must not be written to.
func (c TCQCodebook) Table() *[1 << TCQState]int16 { return tcqCodebooks[c-1]() }

// tcqCodebooks makes each codebook's table when it is first asked for.
var tcqCodebooks = [...]func() *[1 << TCQState]int16{
	sync.OnceValue(TCQBytes4.fill),
	sync.OnceValue(TCQBytes2.fill),
}

func (c TCQCodebook) fill() *[1 << TCQState]int16 {
	t := new([1 << TCQState]int16)
	for i := range t {
		t[i] = c.Code(uint16(i))
	}
	return t
}
