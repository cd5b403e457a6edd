package cpu

func gemmGeneric() gemmKernel {
	return gemmKernel{least: 1, mr: 2, nr: 8, tile: gemmTileGeneric, pack: packGeneric}
}

func packGeneric(dst []float32, nr int, src []float32, k0 int) {
	packRest(dst, nr, src, k0, 0)
}

// packRest packs the features from first on.
func packRest(dst []float32, nr int, src []float32, k0, first int) {
	for k := first; k < k0; k++ {
		d := dst[k*nr : k*nr+rowGroup]
		for j := range d {
			d[j] = src[j*k0+k]
		}
	}
}

// gemmTileGeneric multiplies one or two rows by four columns at a time, which
// is what fits the registers of plain Go.
func gemmTileGeneric(m int, a []float32, lda int, w []float32, kc int, c []float32, ldc int, add bool) {
	for j := 0; j < 8; j += 4 {
		if m == 2 {
			r0, r1 := dot2x4(a[:kc], a[lda:lda+kc], w[j:])
			put(c[j:j+4], r0[:], add)
			put(c[ldc+j:ldc+j+4], r1[:], add)
		} else {
			r0 := dot1x4(a[:kc], w[j:])
			put(c[j:j+4], r0[:], add)
		}
	}
}

func dot2x4(a0, a1, w []float32) (r0, r1 [4]float32) {
	var s0, s1, s2, s3, t0, t1, t2, t3 float32
	for k, x := range a0 {
		y, v := a1[k], w[k*8:k*8+4]
		s0 += float32(x * v[0])
		s1 += float32(x * v[1])
		s2 += float32(x * v[2])
		s3 += float32(x * v[3])
		t0 += float32(y * v[0])
		t1 += float32(y * v[1])
		t2 += float32(y * v[2])
		t3 += float32(y * v[3])
	}
	return [4]float32{s0, s1, s2, s3}, [4]float32{t0, t1, t2, t3}
}

func dot1x4(a, w []float32) (r [4]float32) {
	for k, x := range a {
		v := w[k*8 : k*8+4]
		r[0] += float32(x * v[0])
		r[1] += float32(x * v[1])
		r[2] += float32(x * v[2])
		r[3] += float32(x * v[3])
	}
	return r
}
