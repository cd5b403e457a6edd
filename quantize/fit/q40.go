package fit

import "encoding/binary"

var le = binary.LittleEndian

// ends32 are the distances beyond the range's ends to which the largest
// weight of a block of 4 or 5 bits is sent; negative ones leave room, positive
// ones clip.
var ends32 = []float32{-1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1, 1.5, 2}

// fitQ40 packs a block of q4_0; the layout is that of docs/schemes/q40.md.
func fitQ40(dst []byte, x, w []float32) {
	d := refine(x, w, searchScale(x, w, -8, 7, ends32), -8, 7, 2)
	h, d := storeHalf(x, w, d, -8, 7, extreme(x)/-8)
	le.PutUint16(dst, h)
	inv := inverse(d)
	q := dst[2:18]
	for j := range q {
		a := clamp(round(x[j]*inv), -8, 7) + 8
		b := clamp(round(x[j+16]*inv), -8, 7) + 8
		q[j] = uint8(a) | uint8(b)<<4
	}
}
