package sample

import "math/bits"

// Random returns the 64 random bits of a counter under a key: the first two of
// the four words that Philox4x32-10 makes of the counter's two words, with 0
// behind them, the first word being the high one.
//
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
func Random(key, counter uint64) uint64 {
	x := philox([4]uint32{uint32(counter), uint32(counter >> 32)}, [2]uint32{uint32(key), uint32(key >> 32)})
	return uint64(x[0])<<32 | uint64(x[1])
}

func philox(x [4]uint32, key [2]uint32) [4]uint32 {
	for range 10 {
		h0, l0 := bits.Mul32(0xd2511f53, x[0])
		h1, l1 := bits.Mul32(0xcd9e8d57, x[2])
		x = [4]uint32{h1 ^ x[1] ^ key[0], l1, h0 ^ x[3] ^ key[1], l0}
		key[0] += 0x9e3779b9
		key[1] += 0xbb67ae85
	}
	return x
}
