package fit

// fitQ50 packs a block of q5_0; the layout is that of docs/schemes/q50.md.
func fitQ50(dst []byte, x, w []float32) {
	d := refine(x, w, searchScale(x, w, -16, 15, ends32), -16, 15, 2)
	h, d := storeHalf(x, w, d, -16, 15, extreme(x)/-16)
	le.PutUint16(dst, h)
	inv := inverse(d)
	var high uint32
	q := dst[6:22]
	for j := range q {
		a := uint8(clamp(round(x[j]*inv), -16, 15) + 16)
		b := uint8(clamp(round(x[j+16]*inv), -16, 15) + 16)
		q[j] = a&15 | b<<4
		high |= uint32(a>>4)<<j | uint32(b>>4)<<(j+16)
	}
	le.PutUint32(dst[2:], high)
}
