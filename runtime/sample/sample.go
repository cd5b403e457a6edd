// Package sample turns logits into the next token, and finds stop strings in
// the text that comes of it.
//
// Logits [Vocab] and the tokens so far go in; a token id comes out. The chain
// is fixed, in the order of transformers' generation: repetition penalty,
// temperature, top-k, top-p, min-p, draw. Each filter sees the probabilities
// of what the one before it left, divided by their sum.
//
// Invariants: logits are not changed. The same options, logits and history
// give the same tokens on every machine: probabilities are float64 sums in a
// fixed order, and the random number of a token follows from Options.Seed and the
// token's position alone ([Random]): it does not matter who else was served, or
// how far ahead a device has run. A NaN among the logits counts as minus
// infinity. A Sampler is used by one goroutine; after the first call it allocates
// nothing.
//
// Compatibility: a seed's tokens may change between releases, with a note.
package sample

import (
	"fmt"
	"math"
	"slices"
)

// Options are the settings of a [Sampler]. The zero value is greedy.
type Options struct {
	Temperature float64 // divides the logits; 0: greedy, filters do nothing
	TopK        int     // keep the K most probable; 0: all
	TopP        float64 // keep the most probable until their sum reaches P, in (0, 1]; 0: all
	MinP        float64 // keep what is at least P times as probable as the best, in [0, 1]
	// RepetitionPenalty divides positive and multiplies negative logits of
	// tokens in the history; 0 or 1: none.
	RepetitionPenalty float64
	RepetitionWindow  int // tokens of the history, from its end, that are penalised; 0: all
	Seed              uint64
}

// check refuses settings outside their range.
func (o Options) check() error {
	for _, c := range []struct {
		name string
		v    float64
		ok   bool
	}{
		{"temperature", o.Temperature, o.Temperature >= 0},
		{"top-k", float64(o.TopK), o.TopK >= 0},
		{"top-p", o.TopP, o.TopP >= 0 && o.TopP <= 1},
		{"min-p", o.MinP, o.MinP >= 0 && o.MinP <= 1},
		{"repetition penalty", o.RepetitionPenalty, o.RepetitionPenalty >= 0},
		{"repetition window", float64(o.RepetitionWindow), o.RepetitionWindow >= 0},
	} {
		if !c.ok || math.IsInf(c.v, 0) {
			return fmt.Errorf("%s of %v makes no sense", c.name, c.v)
		}
	}
	return nil
}

// A Sampler picks tokens.
type Sampler struct {
	o      Options
	masked []float32   // with minus infinity for what a mask forbids
	logits []float32   // with the penalty applied
	seen   []bool      // of each token, while the penalty is applied
	heap   []candidate // most probable first
	keep   []candidate
}

// A candidate is a token with its weight exp((logit-max)/temperature).
type candidate struct {
	id     int32
	weight float64
}

// New returns a sampler, or an error that names the setting out of range.
func New(o Options) (*Sampler, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return &Sampler{o: o}, nil
}

// Options returns the sampler's settings.
func (s *Sampler) Options() Options { return s.o }

// Greedy returns the most probable token, the lowest id among equals.
func Greedy(logits []float32) int32 {
	best, top := 0, float32(math.Inf(-1))
	for i, v := range logits {
		if v > top {
			best, top = i, v
		}
	}
	return int32(best)
}

// Next picks the token at a position of its sequence, given its logits and the
// history that a penalty looks at. It panics on empty logits.
func (s *Sampler) Next(logits []float32, history []int32, position int64) int32 {
	if len(logits) == 0 {
		panic("sample: no logits")
	}
	logits = s.penalize(logits, history)
	if s.o.Temperature == 0 {
		return Greedy(logits)
	}
	s.weigh(logits)
	s.filter()
	return s.draw(position)
}

// penalize returns a copy of the logits with the repetition penalty, or the
// logits themselves where there is none.
func (s *Sampler) penalize(logits []float32, history []int32) []float32 {
	p := float32(s.o.RepetitionPenalty)
	if p == 0 || p == 1 {
		return logits
	}
	if w := s.o.RepetitionWindow; w > 0 && len(history) > w {
		history = history[len(history)-w:]
	}
	s.logits = append(s.logits[:0], logits...)
	if len(s.seen) != len(logits) {
		s.seen = make([]bool, len(logits))
	}
	for _, id := range history {
		if id < 0 || int(id) >= len(logits) || s.seen[id] {
			continue
		}
		s.seen[id] = true
		if s.logits[id] < 0 {
			s.logits[id] *= p
		} else {
			s.logits[id] /= p
		}
	}
	for _, id := range history {
		if id >= 0 && int(id) < len(logits) {
			s.seen[id] = false
		}
	}
	return s.logits
}

// weigh fills the candidates in the order of their ids, those of weight 0
// left out, except for one where nothing else is left.
func (s *Sampler) weigh(logits []float32) {
	best := Greedy(logits)
	top := float64(logits[best])
	s.heap = s.heap[:0]
	for i, v := range logits {
		if w := math.Exp((float64(v) - top) / s.o.Temperature); w > 0 {
			s.heap = append(s.heap, candidate{int32(i), w})
		}
	}
	if len(s.heap) == 0 || math.IsInf(top, 0) {
		s.heap = append(s.heap[:0], candidate{best, 1})
	}
}

// filter leaves in keep what top-k, top-p and min-p let through, in the order
// of ids.
func (s *Sampler) filter() {
	k, p := s.o.TopK, s.o.TopP
	if k == 0 || k > len(s.heap) {
		k = len(s.heap)
	}
	if k == len(s.heap) && (p == 0 || p == 1) {
		s.keep, s.heap = s.heap, s.keep // already in the order of ids
		s.minP()
		return
	}
	s.order()
	s.keep = s.keep[:0]
	switch {
	case p == 0 || p == 1:
		for range k {
			s.keep = append(s.keep, s.pop())
		}
	case k == len(s.heap):
		var total float64
		for _, c := range s.heap {
			total += c.weight
		}
		for sum := 0.0; sum < p*total && len(s.heap) > 0; {
			s.keep = append(s.keep, s.pop())
			sum += s.keep[len(s.keep)-1].weight
		}
	default:
		s.topKP(k, p)
	}
	slices.SortFunc(s.keep, func(a, b candidate) int { return int(a.id) - int(b.id) })
	s.minP()
}

// topKP takes the k most probable, then of those the most probable until
// their share reaches p.
func (s *Sampler) topKP(k int, p float64) {
	var total float64
	for range k {
		s.keep = append(s.keep, s.pop())
		total += s.keep[len(s.keep)-1].weight
	}
	var sum float64
	for i, c := range s.keep {
		sum += c.weight
		if sum >= p*total {
			s.keep = s.keep[:i+1]
			return
		}
	}
}

// minP drops what is less than MinP times as probable as the best, whose
// weight is 1.
func (s *Sampler) minP() {
	if s.o.MinP > 0 {
		s.keep = slices.DeleteFunc(s.keep, func(c candidate) bool { return c.weight < s.o.MinP })
	}
}

// draw picks one of keep by its weight: the first, in the order of ids, at
// which the sum of weights exceeds a random share of the whole.
func (s *Sampler) draw(position int64) int32 {
	var total float64
	for _, c := range s.keep {
		total += c.weight
	}
	share := float64(Random(s.o.Seed, uint64(position))>>11) / (1 << 53) * total
	var sum float64
	for _, c := range s.keep {
		sum += c.weight
		if sum > share {
			return c.id
		}
	}
	return s.keep[len(s.keep)-1].id // rounding: share was just below total
}
