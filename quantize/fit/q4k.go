package fit

// ends4K are the distances from 15 to which the largest weight of a group is
// sent, when the smallest is at 0.
var ends4K = []float32{-1.5, -1, -0.7, -0.4, -0.2, 0, 0.2, 0.4, 0.7, 1, 1.5, 2}

// fitQ4K packs a block of q4_k; the layout is that of docs/schemes/q4k.md.
func fitQ4K(dst []byte, x, w []float32) {
	b := fitOffset(x, w, 15, ends4K)
	b.header(dst)
	var low, high [32]uint8
	for p := range 4 {
		b.codes(&low, x, 2*p)
		b.codes(&high, x, 2*p+1)
		q := dst[16+32*p : 48+32*p]
		for j := range q {
			q[j] = low[j] | high[j]<<4
		}
	}
}
