//go:build !noasm

package cpu

func fixedNEON() fixedKernel {
	return fixedKernel{least: 1, mr: 8, nr: 8, fix: fixGeneric, tile: fixedTileNEON}
}

// fixedTileNEON is fixedTileGeneric: sums are whole numbers.
func fixedTileNEON(m int, a, w []uint32, pairs int, c []float32, ldc int, units, scales []float32) {
	var sums [64]int32
	fixedSumsNEON(sums[:], a, w, pairs)
	for i := range m {
		row := c[i*ldc : i*ldc+8]
		for j, v := range sums[8*i : 8*i+8] {
			row[j] += float32(float32(float32(v)*scales[j]) * units[i])
		}
	}
}

// fixedSumsNEON computes
//
//	sums[i*8+j] = sum over k < 2*pairs of a[i][k] * w[k][j]
//
// for i < 8, j < 8 and pairs a multiple of 4; rows of a are FixedBlock features
// apart.
//
//go:noescape
func fixedSumsNEON(sums []int32, a, w []uint32, pairs int)
