//go:build !noasm

package cpu

// readerFor returns a level's reading loop and the bytes that it takes at once.
func readerFor(l Level) (read func(p []byte) uint64, step int) {
	if l == LevelGeneric {
		return readWordsGeneric, genericReadStep
	}
	return readWordsNEON, 128
}

// peaksFor lists a level's multiplications.
func peaksFor(l Level) []Peak {
	f32 := Peak{PeakF32, 64, 1, false, peakF32NEON}
	switch l {
	case LevelNEON:
		return []Peak{f32}
	case LevelDotProd:
		return []Peak{f32, {PeakInt8, 64, 4, true, peakSDOTNEON}}
	}
	return genericPeaks()
}
