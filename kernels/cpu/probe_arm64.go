//go:build !noasm

package cpu

// readWordsNEON computes
//
//	for ; len(p) > 0; p = p[8:] {
//		x ^= binary.LittleEndian.Uint64(p)
//	}
//	return x
//
// where len(p) is a multiple of 128.
//
//go:noescape
func readWordsNEON(p []byte) uint64

// peakF32NEON computes
//
//	for range rounds {
//		for i := range dst {
//			dst[i] += 1 * 1, in float32
//		}
//	}
//
// on registers alone, from zero, for len(dst) = 64.
//
//go:noescape
func peakF32NEON(dst []float32, rounds int)

// peakSDOTNEON is peakF32NEON where four products of signed bytes are added,
// to int32 sums that are stored as their bits. It needs FEAT_DotProd.
//
//go:noescape
func peakSDOTNEON(dst []float32, rounds int)
