package cpu

import "math"

func gemmFusedGeneric() gemmKernel {
	return gemmKernel{least: 1, mr: 2, nr: 8, tile: gemmTileFused, pack: packGeneric}
}

// gemmTileFused is what the tiles in assembly compute, bit for bit.
func gemmTileFused(m int, a []float32, lda int, w []float32, kc int, c []float32, ldc int, add bool) {
	for i := range m {
		var sum [8]float32
		for k, x := range a[i*lda : i*lda+kc] {
			for j, v := range w[8*k : 8*k+8] {
				sum[j] = fused(x, v, sum[j])
			}
		}
		put(c[i*ldc:i*ldc+8], sum[:], add)
	}
}

// fused is a*b + c rounded once, for results of at least 2^-126. The product is
// exact in float64; where their sum, rounded to float64, lies halfway between
// two float32, what that rounding dropped says which is nearer.
func fused(a, b, c float32) float32 {
	p, d := float64(float64(a)*float64(b)), float64(c)
	s := p + d
	u := math.Float64bits(s)
	if u&0x1FFFFFFF != 0x10000000 || s-p == d && s-d == p {
		return float32(s)
	}
	dropped := (p - s) + d
	if math.Abs(d) > math.Abs(p) {
		dropped = (d - s) + p
	}
	if dropped > 0 == (s > 0) {
		u++
	} else {
		u--
	}
	return float32(math.Float64frombits(u))
}
