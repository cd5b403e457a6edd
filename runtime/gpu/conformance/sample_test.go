package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/sample"
)

// A sampleRow is one row's logits with the options and tokens of its sequence.
type sampleRow struct {
	logits  []float32
	options sample.Options
	history []int32
	mask    []uint32 // nil: none
}

// device picks a token for each row, turns times over with seeds that grow by one.
func (m *machine) sample(t *testing.T, rows []sampleRow, turns int) [][]int32 {
	t.Helper()
	vocab, stride := len(rows[0].logits), 0
	for _, r := range rows {
		stride = max(stride, len(r.history))
	}
	var logits []float32
	var position, owner []int32
	options, seeds, history := []byte(nil), []uint64(nil), make([]int32, len(rows)*stride)
	masks, masked := make([]uint32, len(rows)*hip.MaskWords(vocab)), false
	for i := range rows {
		r := &rows[len(rows)-1-i] // sequences lie the other way round
		o := r.options
		options = hip.SampleOptions{Temperature: o.Temperature, TopK: o.TopK, TopP: o.TopP, MinP: o.MinP,
			RepetitionPenalty: o.RepetitionPenalty, RepetitionWindow: o.RepetitionWindow}.Append(options)
		seeds = append(seeds, o.Seed)
		copy(history[i*stride:], r.history)
		if r.mask != nil {
			masks[i*hip.MaskWords(vocab)], masked = 1, true
			copy(masks[i*hip.MaskWords(vocab)+1:], r.mask)
		}
		logits = append(logits, rows[i].logits...)
		position, owner = append(position, int32(len(rows[i].history)-1)), append(owner, int32(len(rows)-1-i))
	}
	token := m.put(t, slices.Repeat([]int32{-7}, len(rows)))
	at, keys := m.put(t, position), m.put(t, seeds)
	dl := m.put(t, logits)
	op := hip.Sample{
		Rows:  hip.Rows{T: len(rows), Position: at.address(), Owner: m.put(t, owner).address()},
		Vocab: vocab, Logits: dl.address(), Token: token.address(), Options: m.put(t, options).address(), Seeds: keys.address(),
		History: m.put(t, history).address(), Stride: stride,
	}
	if masked {
		op.Masks = m.put(t, masks).address()
	}
	scratch := make([]byte, op.ScratchBytes())
	for i := hip.CounterBytes; i < len(scratch); i++ {
		scratch[i] = 0xcd
	}
	op.Scratch = m.put(t, scratch).address()
	var all [][]int32
	for turn := range turns {
		dl.set(t, logits)
		for i := range seeds {
			seeds[i] += uint64(min(turn, 1))
		}
		keys.set(t, seeds)
		m.run(t, op.Calls(m.target))
		got := make([]int32, len(rows))
		token.get(t, got)
		all = append(all, got)
	}
	return all
}

// logitsOf are numbers like a model's: some stand out.
func logitsOf(r *rand.Rand, n int, spread float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(spread * r.NormFloat64())
		if r.IntN(50) == 0 {
			x[i] += float32(4 * spread * r.Float64())
		}
		if r.IntN(4) == 0 {
			x[i] = float32(math.Round(float64(x[i]))) // equal ones
		}
	}
	return x
}

func TestSample(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(11, 12))
	for _, c := range []struct {
		vocab, turns int
		spread       float64
		options      []sample.Options
	}{
		{300, 12, 2, []sample.Options{
			{Temperature: 1}, {Temperature: 0.7, TopK: 40}, {Temperature: 0.8, TopP: 0.95}, {Temperature: 1.2, MinP: 0.05}, {},
			{Temperature: 1, TopK: 20, TopP: 0.5, MinP: 0.2, RepetitionPenalty: 1.3}, {RepetitionPenalty: 2, RepetitionWindow: 3},
		}},
		{9001, 6, 1, []sample.Options{
			{Temperature: 1}, {Temperature: 2, TopP: 0.9}, {Temperature: 1, TopK: 3000}, {Temperature: 0.6, TopK: 64, TopP: 0.95, RepetitionPenalty: 1.1},
			{Temperature: 5, TopK: 8000, TopP: 0.99, MinP: 0.01}, {Temperature: 0.01, TopP: 0.9}, {Temperature: 1, TopK: 1}, {Temperature: 100, TopP: 1e-9},
		}},
		{1, 2, 1, []sample.Options{{Temperature: 1}, {Temperature: 1, TopK: 5, TopP: 0.3}}},
		{33000, 3, 3, []sample.Options{{Temperature: 1, MinP: 0.1}, {Temperature: 0.9}, {}, {Temperature: 0.9, TopP: 0.999}}},
	} {
		if !sampled(t) {
			continue
		}
		t.Run(fmt.Sprint(c.vocab), func(t *testing.T) {
			var rows []sampleRow
			for i, o := range c.options {
				o.Seed = uint64(100*c.vocab + i)
				history := make([]int32, 1+r.IntN(40))
				for j := range history {
					history[j] = int32(r.IntN(min(c.vocab, 60)))
				}
				rows = append(rows, sampleRow{logits: logitsOf(r, c.vocab, c.spread), options: o, history: history})
			}
			got := m.sample(t, rows, c.turns)
			for i, row := range rows {
				for turn := range c.turns {
					s := samplerOf(t, row.options, turn)
					if want := s.Next(row.logits, row.history, int64(len(row.history))); got[turn][i] != want {
						t.Fatalf("%+v, turn %d: token %d, want %d", row.options, turn, got[turn][i], want)
					}
				}
			}
		})
	}
}

// Rows with masks among others: what is picked is what runtime/sample picks of the mask.
func TestSampleMask(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(17, 12))
	inf := float32(math.Inf(-1))
	for _, vocab := range []int{5, 300, 4099} {
		var rows []sampleRow
		for i, o := range []sample.Options{{}, {Temperature: 1}, {Temperature: 1, TopK: 4}, {Temperature: 0.8, TopP: 0.9, RepetitionPenalty: 1.4}, {Temperature: 1, MinP: 0.1}, {}, {Temperature: 1}} {
			o.Seed = uint64(10*vocab + i)
			row := sampleRow{logits: logitsOf(r, vocab, 2), options: o, history: []int32{1, 3, int32(r.IntN(vocab))}}
			if i%3 != 2 {
				row.mask = make([]uint32, (vocab+31)/32)
				for id := range vocab {
					if id == vocab-2 || r.IntN(9) == 0 {
						row.mask[id/32] |= 1 << (id % 32)
					}
					if i >= 5 && row.mask[id/32]>>(id%32)&1 != 0 { // none of them has a weight
						row.logits[id] = inf
					}
				}
			}
			rows = append(rows, row)
		}
		got := m.sample(t, rows, 4)
		for i, row := range rows {
			for turn := range 4 {
				s := samplerOf(t, row.options, turn)
				want := int32(0)
				if row.mask == nil {
					want = s.Next(row.logits, row.history, int64(len(row.history)))
				} else {
					want = s.NextOf(row.mask, row.logits, row.history, int64(len(row.history)))
				}
				if got[turn][i] != want {
					t.Errorf("vocabulary of %d, row %d, %+v, turn %d: token %d, want %d", vocab, i, row.options, turn, got[turn][i], want)
				}
			}
		}
	}
}

func TestSampleSpecials(t *testing.T) {
	m := open(t)
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, logits := range [][]float32{
		{1, nan, 3, -inf, 3}, {nan, nan, nan, nan, nan}, {-inf, -inf, -inf, -inf, -inf}, {1, inf, 2, inf, 0}, {0, 0, 0, 0, 0}, {-1e30, -2, nan, -2, -3},
		{1e6, 999999.94, 1e6, 0, 1e5},
	} {
		var rows []sampleRow
		for i, o := range []sample.Options{{}, {Temperature: 1}, {Temperature: 0.5, TopK: 2}, {Temperature: 1, TopP: 0.5}, {Temperature: 1, MinP: 1}} {
			o.Seed = uint64(i)
			rows = append(rows, sampleRow{logits: logits, options: o, history: []int32{0, 1}})
		}
		got := m.sample(t, rows, 2)
		for i, row := range rows {
			for turn := range 2 {
				s := samplerOf(t, row.options, turn)
				if want := s.Next(row.logits, row.history, int64(len(row.history))); got[turn][i] != want {
					t.Errorf("%v %+v: token %d, want %d", logits, row.options, got[turn][i], want)
				}
			}
		}
	}
}

func TestSampleGreedy(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(13, 12))
	for _, vocab := range []int{1, 4096, 4097, 50257} {
		logits := append(logitsOf(r, vocab, 1), logitsOf(r, vocab, 1)...)
		logits[vocab/2], logits[vocab-1] = 50, 50
		token := m.put(t, []int32{-7, -7, -7})
		op := hip.Sample{Rows: hip.Rows{T: 3, Position: m.put(t, []int32{0, -1, 5}).address(), Owner: m.put(t, []int32{0, 0, 0}).address()},
			Vocab: vocab, Logits: m.put(t, append(logits, logits[:vocab]...)).address(), Token: token.address(), Greedy: true}
		op.Scratch = m.put(t, make([]byte, op.ScratchBytes())).address()
		for range 3 {
			m.run(t, op.Calls(m.target))
			got := make([]int32, 3)
			token.get(t, got)
			want := []int32{sample.Greedy(logits[:vocab]), -7, sample.Greedy(logits[:vocab])}
			if !slices.Equal(got, want) {
				t.Errorf("vocabulary of %d: tokens %v, want %v", vocab, got, want)
			}
		}
	}
}

// samplerOf returns the sampler of a turn.
func samplerOf(t *testing.T, o sample.Options, turn int) *sample.Sampler {
	t.Helper()
	o.Seed += uint64(turn)
	s, err := sample.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
