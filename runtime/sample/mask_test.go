package sample

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A token of a mask is what is picked where the others have no logits, and what was given
// is not changed.
func TestNextOf(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 31, 32, 33, 100} {
		logits, kept := make([]float32, n), make([]float32, n)
		for i := range logits {
			logits[i] = float32(r.NormFloat64())
		}
		copy(kept, logits)
		mask, alone := make([]uint32, (n+31)/32), make([]float32, n)
		for i := range alone {
			alone[i] = float32(math.Inf(-1))
			if i == n/2 || r.IntN(3) == 0 {
				mask[i/32] |= 1 << (i % 32)
				alone[i] = logits[i]
			}
		}
		mask[len(mask)-1] |= uint32(^uint64(0) << ((n-1)%32 + 1)) // tokens without logits
		for _, o := range []Options{{}, {Temperature: 1, Seed: 3}, {Temperature: 2, TopK: 4, TopP: 0.9, Seed: 4}, {RepetitionPenalty: 1.5, Temperature: 1}} {
			a, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := New(o)
			for at := range int64(50) {
				history := []int32{int32(at) % int32(n)}
				if got, want := a.NextOf(mask, logits, history, at), b.Next(alone, history, at); got != want {
					t.Fatalf("%d logits, %+v: token %d, want %d", n, o, got, want)
				}
			}
		}
		for i := range kept {
			if logits[i] != kept[i] {
				t.Fatal("the logits were changed")
			}
		}
	}
	s, err := New(Options{Temperature: 1})
	if err != nil {
		t.Fatal(err)
	}
	inf := float32(math.Inf(-1))
	if got := s.NextOf([]uint32{0b1100}, []float32{3, 2, inf, inf}, nil, 0); got != 2 {
		t.Errorf("token %d where the legal ones have no logits", got)
	}
	if got := s.NextOf([]uint32{0b1000}, []float32{3, 2, inf, float32(math.NaN())}, nil, 0); got != 3 {
		t.Errorf("token %d where the legal one is no number", got)
	}
}
