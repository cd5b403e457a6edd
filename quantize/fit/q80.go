package fit

// fitQ80 packs a block of q8_0; the layout is that of docs/schemes/q80.md. The
// code -128 is not used, so that kernels may negate codes.
func fitQ80(dst []byte, x, w []float32) {
	top := extreme(x) / 127
	d := refine(x, w, top, -127, 127, 1)
	h, d := storeHalf(x, w, d, -127, 127, top, top*(127/126.75), top*(127/127.25))
	le.PutUint16(dst, h)
	inv := inverse(d)
	for j, v := range x {
		dst[2+j] = uint8(int8(clamp(round(v*inv), -127, 127)))
	}
}
