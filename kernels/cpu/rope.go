package cpu

// RopeHalf rotates the first 2*len(cos) elements of one head in place, pairing
// element i with element i + len(cos) (Llama, NeoX): the angle of pair i is
// given by cos[i] and sin[i]. The elements behind are left alone.
func (s *Set) RopeHalf(x, cos, sin []float32) {
	h := len(cos)
	want(len(sin) == h && 2*h <= len(x), "RopeHalf", len(x), h, len(sin))
	s.norm.ropeHalf(x, cos, sin)
}

// RopeInterleaved is RopeHalf with element 2i paired with element 2i+1 (GPT-J).
func (s *Set) RopeInterleaved(x, cos, sin []float32) {
	h := len(cos)
	want(len(sin) == h && 2*h <= len(x), "RopeInterleaved", len(x), h, len(sin))
	s.norm.ropeInterleaved(x, cos, sin)
}

func ropeHalfGeneric(x, cos, sin []float32) {
	h := len(cos)
	lo, hi := x[:h], x[h:2*h]
	for i, c := range cos {
		a, b := lo[i], hi[i]
		lo[i] = float32(a*c) - float32(b*sin[i])
		hi[i] = float32(b*c) + float32(a*sin[i])
	}
}

func ropeInterleavedGeneric(x, cos, sin []float32) {
	for i, c := range cos {
		a, b := x[2*i], x[2*i+1]
		x[2*i] = float32(a*c) - float32(b*sin[i])
		x[2*i+1] = float32(b*c) + float32(a*sin[i])
	}
}
