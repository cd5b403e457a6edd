//go:build (!amd64 && !arm64) || noasm

package cpu

func readerFor(Level) (read func(p []byte) uint64, step int) {
	return readWordsGeneric, genericReadStep
}

func peaksFor(Level) []Peak { return genericPeaks() }
