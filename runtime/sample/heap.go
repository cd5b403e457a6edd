package sample

// A heap gives the most probable candidates one by one without sorting a
// vocabulary of a hundred thousand: building it is linear, and filters rarely
// ask for more than some dozens.

// before orders candidates: the more probable first, the lower id among equals.
func before(a, b candidate) bool {
	return a.weight > b.weight || a.weight == b.weight && a.id < b.id
}

// order makes a heap of the candidates.
func (s *Sampler) order() {
	for i := len(s.heap)/2 - 1; i >= 0; i-- {
		s.sink(i)
	}
}

// pop takes the first candidate off the heap.
func (s *Sampler) pop() candidate {
	first, last := s.heap[0], len(s.heap)-1
	s.heap[0] = s.heap[last]
	s.heap = s.heap[:last]
	s.sink(0)
	return first
}

func (s *Sampler) sink(i int) {
	h := s.heap
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if r := child + 1; r < len(h) && before(h[r], h[child]) {
			child = r
		}
		if !before(h[child], h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
