//go:build !noasm

package cpu

import "github.com/klauspost/cpuid/v2"

// readerFor returns a level's reading loop and the bytes that it takes at once.
func readerFor(l Level) (read func(p []byte) uint64, step int) {
	switch l {
	case LevelAVX2:
		return readWordsAVX2, 256
	case LevelAVX512:
		return readWordsAVX512, 512
	}
	return readWordsGeneric, genericReadStep
}

// peaksFor lists a level's multiplications. VNNI and BF16 are beyond what
// LevelAVX512 asks for.
func peaksFor(l Level) []Peak {
	bytesAVX2 := Peak{PeakInt8, 96, 4, true, peakInt8AVX2}
	switch l {
	case LevelAVX2:
		return []Peak{{PeakF32, 96, 1, false, peakF32AVX2}, bytesAVX2}
	case LevelAVX512:
		ps := []Peak{{PeakF32, 192, 1, false, peakF32AVX512}, bytesAVX2}
		if cpuid.CPU.Supports(cpuid.AVX512VNNI) {
			ps[1] = Peak{PeakInt8, 192, 4, true, peakVNNIAVX512}
		}
		if cpuid.CPU.Supports(cpuid.AVX512BF16) {
			ps = append(ps, Peak{PeakBF16, 192, 2, false, peakBF16AVX512})
		}
		if hasTiles() {
			ps = append(ps, Peak{PeakTileInt8, 1024, 64, true, peakTileInt8AVX512}, Peak{PeakTileBF16, 1024, 32, false, peakTileBF16AVX512})
		}
		return ps
	}
	return genericPeaks()
}
