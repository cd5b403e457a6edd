package sample

import (
	"math"
	"math/bits"
)

// NextOf is [Sampler.Next] among the tokens of a mask alone: token i may be picked
// where bit i%32 of mask[i/32] is set. Where none of them has a logit above minus
// infinity it is the lowest of them. It panics on empty logits and on an empty mask.
func (s *Sampler) NextOf(mask []uint32, logits []float32, history []int32, position int64) int32 {
	lowest := int32(-1)
	s.masked = append(s.masked[:0], logits...)
	for w := 0; w < len(logits); w += 32 {
		word := uint32(0)
		if w/32 < len(mask) {
			word = mask[w/32]
		}
		if n := len(logits) - w; n < 32 {
			word &= 1<<n - 1
		}
		if word != 0 && lowest < 0 {
			lowest = int32(w + bits.TrailingZeros32(word))
		}
		for i := w; i < min(w+32, len(logits)); i++ {
			if word>>(i-w)&1 == 0 {
				s.masked[i] = float32(math.Inf(-1))
			}
		}
	}
	if lowest < 0 {
		panic("sample: an empty mask")
	}
	id := s.Next(s.masked, history, position)
	if int(id)/32 >= len(mask) || mask[id/32]>>(id%32)&1 == 0 {
		return lowest
	}
	return id
}
