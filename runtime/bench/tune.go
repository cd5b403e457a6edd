package bench

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/kerneltest"
	"github.com/nstf/nstf/runtime/place"
)

// A Trial is what one choice of tiles reached.
type Trial struct {
	What  string     `json:"what"` // prompt or token
	Tiles cpu.Tiles  `json:"tiles"`
	Rate  place.Rate `json:"rate"` // GFLOP/s of a prompt, GB/s of a token's weights
}

// TuneOptions say how to look for tiles.
type TuneOptions struct {
	Threads int
	Repeat  int         // rounds, in which all choices take turns
	Prompt  Shape       // a product with many tokens, and
	Token   Shape       // with one
	Done    func(Trial) // is called with each choice that was timed; nil: nobody
}

// TuneShapes are layers of 4096.
func TuneShapes() (prompt, token Shape) { return Shape{512, 4096, 4096}, Shape{1, 4096, 4096} }

// tuneScheme is what most packages are in.
const tuneScheme = "q4_k"

// enough is how much better than what it starts from a choice has to be: less is noise.
const enough = 1.01

// Tune times products with other tiles than start, one size after the other, and
// returns the best ones. All choices of a size take turns, round after round, so that
// what else the machine does falls on all of them.
func Tune(ctx context.Context, set *cpu.Set, start cpu.Tiles, o TuneOptions) (cpu.Tiles, error) {
	pool := cpu.NewPool(o.Threads)
	defer pool.Close()
	best := start
	steps := []struct {
		what    string
		shape   Shape
		field   func(t *cpu.Tiles) *int
		choices []int
	}{
		{"prompt", o.Prompt, func(t *cpu.Tiles) *int { return &t.BlockTokens }, []int{128, 256, 512, 1024}},
		{"prompt", o.Prompt, func(t *cpu.Tiles) *int { return &t.PartRows }, []int{64, 128, 256}},
		{"token", o.Token, func(t *cpu.Tiles) *int { return &t.PartBytes }, []int{32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10}},
	}
	for _, s := range steps {
		trials := []Trial{{What: s.what, Tiles: best}} // what it starts from is the first
		for _, v := range s.choices {
			t := best
			if *s.field(&t) = v; t != best {
				trials = append(trials, Trial{What: s.what, Tiles: t})
			}
		}
		if err := timeTrials(ctx, set, pool, s.shape, trials, o.Repeat); err != nil {
			return best, err
		}
		top := trials[0]
		for _, t := range trials {
			if t.Rate.Median > top.Rate.Median && t.Rate.Median > enough*trials[0].Rate.Median {
				top = t
			}
			if o.Done != nil {
				o.Done(t)
			}
		}
		best = top.Tiles
	}
	return best, nil
}

// timeTrials fills in the rates.
func timeTrials(ctx context.Context, set *cpu.Set, pool *cpu.Pool, s Shape, trials []Trial, rounds int) error {
	p := newTiledProduct(set, pool, s)
	rates := make([][]float64, len(trials))
	for round := range rounds + 1 { // the first warms up
		for i := range trials {
			if err := ctx.Err(); err != nil {
				return err
			}
			runs, begin := 0, time.Now()
			for time.Since(begin) < sampleTime || runs == 0 {
				p.run(trials[i].Tiles)
				runs++
			}
			if round > 0 {
				rates[i] = append(rates[i], float64(runs)*p.work/time.Since(begin).Seconds()/1e9)
			}
		}
	}
	for i := range trials {
		trials[i].Rate = place.NewRate(slices.Clone(rates[i]))
	}
	return nil
}

// A tiledProduct multiplies one matrix as executors do.
type tiledProduct struct {
	pool    *cpu.Pool
	integer *cpu.Integer
	s       Shape
	row     int // bytes
	w       []byte
	next    int // copy of the weights
	a       cpu.Activations
	c       []float32
	scratch []cpu.IntegerScratch
	work    float64 // of a run: operations, or bytes of weights
}

func newTiledProduct(set *cpu.Set, pool *cpu.Pool, s Shape) *tiledProduct {
	sc, _ := scheme.ByName(tuneScheme)
	r := rand.New(rand.NewPCG(1, 2))
	p := &tiledProduct{pool: pool, integer: set.Integer(tuneScheme), s: s, row: s.K / sc.Block * sc.BlockBytes,
		c: make([]float32, s.T*s.N), scratch: make([]cpu.IntegerScratch, pool.Threads())}
	p.work = 2 * float64(s.T) * float64(s.N) * float64(s.K)
	copies := 1
	if s.T <= cpu.FewTokens {
		p.work = float64(s.N * p.row)
		copies = max(coldBytes/(s.N*p.row), 1)
	}
	rows := kerneltest.RandomRows(r, sc, 16, s.K)
	p.w = make([]byte, copies*s.N*p.row)
	for i := 0; i < len(p.w); i += len(rows) {
		copy(p.w[i:], rows)
	}
	x := make([]float32, s.T*s.K)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	set.Quantize(&p.a, x, s.K, s.T, s.K, p.integer.Group())
	return p
}

// run multiplies once.
func (p *tiledProduct) run(t cpu.Tiles) {
	rows := t.PartRows
	if p.s.T <= cpu.FewTokens {
		rows = max(t.PartBytes/p.row&^15, 16)
	}
	size := p.s.N * p.row
	w := p.w[p.next*size : (p.next+1)*size]
	p.next = (p.next + 1) % (len(p.w) / size)
	for i := range p.scratch {
		p.scratch[i].BlockTokens = t.BlockTokens
	}
	p.pool.RunApart((p.s.N+rows-1)/rows, func(worker, i int) {
		p.integer.MatMul(p.c, p.s.N, w, &p.a, i*rows, min((i+1)*rows, p.s.N), &p.scratch[worker])
	})
}
