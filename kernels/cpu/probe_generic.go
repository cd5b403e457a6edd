package cpu

import "encoding/binary"

const genericReadStep = 64

// readWordsGeneric takes a multiple of genericReadStep bytes.
func readWordsGeneric(p []byte) uint64 {
	var a, b, c, d uint64
	for ; len(p) >= genericReadStep; p = p[genericReadStep:] {
		q := p[:genericReadStep]
		a ^= binary.LittleEndian.Uint64(q) ^ binary.LittleEndian.Uint64(q[32:])
		b ^= binary.LittleEndian.Uint64(q[8:]) ^ binary.LittleEndian.Uint64(q[40:])
		c ^= binary.LittleEndian.Uint64(q[16:]) ^ binary.LittleEndian.Uint64(q[48:])
		d ^= binary.LittleEndian.Uint64(q[24:]) ^ binary.LittleEndian.Uint64(q[56:])
	}
	return a ^ b ^ c ^ d
}

// peakF32Generic multiplies as plain Go does: one product at a time, rounded
// before it is added.
func peakF32Generic(dst []float32, rounds int) {
	var a, b, c, d float32
	// Factors that the compiler cannot know, or it would multiply nothing.
	x, y := float32(min(len(dst), 1)), float32(min(cap(dst), 1))
	for range rounds {
		a += float32(x * y)
		b += float32(x * y)
		c += float32(x * y)
		d += float32(x * y)
	}
	dst[0], dst[1], dst[2], dst[3] = a, b, c, d
}

func genericPeaks() []Peak {
	return []Peak{{kind: PeakF32, sums: 4, products: 1, run: peakF32Generic}}
}
