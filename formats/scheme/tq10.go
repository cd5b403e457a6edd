package scheme

// decodeTQ10 decodes tq1_0: 54 bytes per 256 weights: 52 bytes of ternary
// codes, five to a byte in the first 48 and four in the last 4, and an f16
// scale.
//
// A byte c is a fraction c/256 whose base-3 digits are the codes: the low
// byte of c*3^n leaves digit n on top, and three times that, shifted right by
// 8, is the digit. Digit n of byte j is weight 32n+j for j < 32, weight
// 160+16n+j-32 for the next 16, and weight 240+4n+j-48 for the last 4.
//
//	w = d * (q - 1)
func decodeTQ10(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 54 {
		d := half(src[52:])
		values := [3]float32{d * -1, d * 0, d * 1}
		trits(dst[0:160], src[0:32], &values)
		trits(dst[160:240], src[32:48], &values)
		trits(dst[240:256], src[48:52], &values)
		dst, src = dst[256:], src[54:]
	}
}

// trits writes digit n of every byte of q to y[n*len(q):].
func trits(y []float32, q []byte, values *[3]float32) {
	power := uint8(1)
	for len(y) >= len(q) && len(q) > 0 {
		for j, c := range q {
			y[j] = values[uint16(c*power)*3>>8]
		}
		y = y[len(q):]
		power *= 3
	}
}
