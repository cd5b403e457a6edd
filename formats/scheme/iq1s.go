package scheme

// iq1Delta shifts the grid of iq1_s and iq1_m up or down.
const iq1Delta = 0.125

// decodeIQ1S decodes iq1_s: 50 bytes per 256 weights, an f16 scale, 32 low
// bytes of grid indices, and for each 32 weights 16 bits: three high index
// bits for each 8 weights, a 3-bit scale s, and the sign of the shift on top.
//
//	w = (d*(2s+1)) * (grid ± 0.125)
func decodeIQ1S(dst []float32, src []byte) {
	for len(dst) >= 256 && len(src) >= 50 {
		d := half(src)
		for g := range 8 {
			high := le.Uint16(src[34+2*g:])
			dl := d * float32(high>>12&7*2+1)
			delta := flip(iq1Delta, uint32(high>>15))
			for l := range 4 {
				at := int(src[2+4*g+l]) | int(high>>(3*l)&7)<<8
				shifted8((*[8]float32)(dst[32*g+8*l:]), dl, iq1sGrid[at], delta)
			}
		}
		dst, src = dst[256:], src[50:]
	}
}

// shifted8 writes d times 8 signed values moved by delta.
func shifted8(y *[8]float32, d float32, grid uint64, delta float32) {
	for j := range y {
		y[j] = d * (float32(int8(grid>>(8*j))) + delta)
	}
}
