package cpu

import (
	"encoding/binary"
	"math/bits"

	"github.com/nstf/nstf/formats/scheme"
)

// The grids of the iq schemes, made once and never written again: points of 8
// codes, or of 4, the first in the low byte. Those of iq1 are eight times the
// grid's values plus 128.
var (
	iq2xxsGrid = scheme.IQ2XXSGrid()
	iq2xsGrid  = scheme.IQ2XSGrid()
	iq2sGrid   = scheme.IQ2SGrid()
	iq3xxsGrid = scheme.IQ3XXSGrid()
	iq3sGrid   = scheme.IQ3SGrid()
	iq1Grid    = iq1Codes(scheme.IQ1Grid())

	// signMasks has a byte of ones for each bit of its index.
	signMasks = masksOfSigns()
	// evenSigns completes 7 bits by one that makes their number even.
	evenSigns = parities()
)

// Words of eight bytes that are all the same.
const (
	bytesOf1   = 0x0101010101010101
	bytesOf128 = 0x8080808080808080
)

func iq1Codes(grid [2048]uint64) [2048]uint64 {
	for i, point := range grid {
		var codes uint64
		for j := range 8 {
			codes |= uint64(uint8(int8(point>>(8*j))*8)^128) << (8 * j)
		}
		grid[i] = codes
	}
	return grid
}

func masksOfSigns() (masks [256]uint64) {
	for i := range masks {
		for j := range 8 {
			masks[i] |= uint64(i>>j&1*255) << (8 * j)
		}
	}
	return masks
}

func parities() (signs [128]uint8) {
	for i := range signs {
		signs[i] = uint8(i | bits.OnesCount(uint(i))&1<<7)
	}
	return signs
}

// putSigned writes 8 magnitudes, none of them zero, as codes: 128 less or more.
func putSigned(codes []uint8, point uint64, signs uint8) {
	m := signMasks[signs]
	binary.LittleEndian.PutUint64(codes, (point^m)+m&bytesOf1^bytesOf128)
}
