//go:build !noasm

package cpu

// useDecode gives a set the decoders of blocks and of trellis codes.
func useDecode(s *Set) {
	s.decoding = decodeKernels{
		floats16:    [2]floatsKernel{floats16AVX2, floats16MinsAVX2},
		floats32:    [2]floatsKernel{floats32AVX2, floats32MinsAVX2},
		codewords:   tcqCodewordsAVX2,
		butterflies: [4]func(x []float32, step int){nil, butterflies8AVX2, butterflies4AVX2, butterflies2AVX2},
		turn:        turnTilesAVX2,
		scaleRows:   scaleRowsAVX2,
		joinRows:    joinRowsAVX2,
	}
}

// useWideDecode replaces what longer vectors make faster: the ends of blocks outrun
// memory as they are.
func useWideDecode(s *Set) {
	d := &s.decoding
	d.codewords, d.turn, d.scaleRows, d.joinRows = tcqCodewordsAVX512, turnTilesAVX512, scaleRowsAVX512, joinRowsAVX512
	d.codewords8, d.turn16 = tcqCodewords8AVX512, turnTiles16AVX512
	d.butterflies = [4]func(x []float32, step int){butterflies16AVX512, butterflies8AVX512, butterflies4AVX512, butterflies2AVX512}
}
