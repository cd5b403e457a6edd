package scheme

import (
	"math"
	"math/bits"
)

// The grids of the iq schemes, a point per word, its first value in the low
// byte; iq1's are signed bytes. Made once from the packed tables.
var (
	iq2xxsGrid = grid8(iq2xxsCodes[:], [4]uint8{8, 25, 43})
	iq2xsGrid  = grid8(iq2xsCodes[:], [4]uint8{8, 25, 43})
	iq2sGrid   = grid8(iq2sCodes[:], [4]uint8{8, 25, 43})
	iq1sGrid   = grid8(iq1sCodes[:], [4]uint8{255, 0, 1})
	iq3xxsGrid = grid4(iq3xxsCodes[:], [8]uint8{4, 12, 20, 28, 36, 44, 52, 62})
	iq3sGrid   = grid4(iq3sCodes[:], [8]uint8{1, 3, 5, 7, 9, 11, 13, 15})
)

// IQ1Grid returns the grid of iq1_s and iq1_m: points of 8 signed bytes.
func IQ1Grid() [2048]uint64 { return [2048]uint64(iq1sGrid) }

// IQ2XXSGrid returns the grid of iq2_xxs: points of 8 magnitudes.
func IQ2XXSGrid() [256]uint64 { return [256]uint64(iq2xxsGrid) }

// IQ2XSGrid returns the grid of iq2_xs: points of 8 magnitudes.
func IQ2XSGrid() [512]uint64 { return [512]uint64(iq2xsGrid) }

// IQ2SGrid returns the grid of iq2_s: points of 8 magnitudes.
func IQ2SGrid() [1024]uint64 { return [1024]uint64(iq2sGrid) }

// IQ3XXSGrid returns the grid of iq3_xxs: points of 4 magnitudes.
func IQ3XXSGrid() [256]uint32 { return [256]uint32(iq3xxsGrid) }

// IQ3SGrid returns the grid of iq3_s: points of 4 magnitudes.
func IQ3SGrid() [512]uint32 { return [512]uint32(iq3sGrid) }

// grid8 expands points of 8 values of 2 bits.
func grid8(codes []uint16, values [4]uint8) []uint64 {
	grid := make([]uint64, len(codes))
	for i, c := range codes {
		for j := range 8 {
			grid[i] |= uint64(values[c>>(2*j)&3]) << (8 * j)
		}
	}
	return grid
}

// grid4 expands points of 4 values of a nibble.
func grid4(codes []uint16, values [8]uint8) []uint32 {
	grid := make([]uint32, len(codes))
	for i, c := range codes {
		for j := range 4 {
			grid[i] |= uint32(values[c>>(4*j)&7]) << (8 * j)
		}
	}
	return grid
}

// signs8 completes 7 sign bits by one that makes their number even.
func signs8(index uint32) uint32 {
	index &= 127
	return index | uint32(bits.OnesCount32(index)&1)<<7
}

// signed8 writes d times 8 magnitudes, negative where signs has a bit.
func signed8(y *[8]float32, d float32, grid uint64, signs uint32) {
	for j := range y {
		y[j] = flip(d*float32(uint8(grid>>(8*j))), signs>>j)
	}
}

// flip negates x where the low bit of sign is set.
func flip(x float32, sign uint32) float32 {
	return math.Float32frombits(math.Float32bits(x) ^ sign<<31)
}
