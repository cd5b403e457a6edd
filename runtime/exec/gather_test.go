package exec

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/runtime/device"
)

// summed is what one input of one expert (-1: of all) came to, in float64.
type summed struct {
	tokens  int64
	squares []float64 // [K][K]
	most    []float64
}

func (s *summed) add(x []float64) {
	if s.squares == nil {
		s.squares, s.most = make([]float64, len(x)*len(x)), make([]float64, len(x))
	}
	s.tokens++
	for i, v := range x {
		s.most[i] = max(s.most[i], math.Abs(v))
		for j, w := range x {
			s.squares[i*len(x)+j] += v * w
		}
	}
}

// An inputOf is an input of an expert, or of all.
type inputOf struct {
	input  string
	expert int
}

// referenceSums are those of windows by the reference.
func referenceSums(c *tiny, r *reference, windows [][]int32) map[inputOf]*summed {
	out, owner := map[inputOf]*summed{}, map[string]string{} // the first reader
	known, stacks := device.Inputs(c.graph, device.Whole(c.graph)), map[string]bool{}
	for i := range c.graph.Blocks {
		for _, p := range c.graph.Blocks[i].Parts(0) {
			if p.Linear != nil {
				stacks[p.Linear.Weight] = p.Experts > 0
			}
		}
	}
	add := func(l *graph.Linear, key string, at inputOf, x []float64) {
		if owner[key] == "" {
			owner[key] = l.Weight
		}
		if owner[key] != l.Weight {
			return
		}
		if out[at] == nil {
			out[at] = &summed{}
		}
		out[at].add(x)
	}
	r.see = func(l *graph.Linear, expert int, x []float64) {
		if !slices.ContainsFunc(known, func(in device.Input) bool { return in.Name == l.Input }) {
			return // beside the blocks
		}
		add(l, l.Input, inputOf{l.Input, -1}, x)
		if stacks[l.Weight] {
			add(l, l.Input+" of experts", inputOf{l.Input, expert}, x)
		}
	}
	for _, w := range windows {
		r.logits(w)
	}
	return out
}

// deviceSums are those of stages: all blocks, then the head; each input's alone where
// they are gathered apart, as on a device without room for more. It returns how often
// windows were walked.
func deviceSums(t *testing.T, c *tiny, source func(string) formats.Tensor, on *Opened, windows [][]int32, apart bool) (map[inputOf]*device.Sums, int) {
	t.Helper()
	out, walks := map[inputOf]*device.Sums{}, 0
	total := 0
	var lengths []int
	for _, w := range windows {
		total, lengths = total+len(w), append(lengths, len(w))
	}
	rows, err := on.NewRows(total+3, int(c.graph.Width))
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Release()
	part, n := Part{Rows: rows, At: 3}, len(c.graph.Blocks)
	over := func(span device.Span, f func(walk *Walker) error) {
		t.Helper()
		walk, err := NewWalker("tiny", c.graph, source, span, Options{Threads: 2, Exact: true, Level: *onLevel, On: on, Context: int64(slices.Max(lengths))})
		if err == nil {
			defer walk.Close()
			err = f(walk)
		}
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
	}
	gather := func(span device.Span, run func(walk *Walker, last bool) error) {
		t.Helper()
		over(span, func(walk *Walker) error {
			if apart {
				on.Limit = 1
				defer func() { on.Limit = 0 }()
			}
			return walk.Gather(func(last bool) error { walks++; return run(walk, last) }, func(got *device.Sums) error {
				out[inputOf{got.Input, got.Expert}] = got
				return nil
			})
		})
	}
	over(device.Embedding(), func(walk *Walker) error { return walk.Embed(part, windows) })
	gather(device.Span{Hi: n}, func(walk *Walker, last bool) error {
		if !last {
			return walk.Transform(Part{}, part, windows)
		}
		return walk.Transform(part, part, windows)
	})
	gather(device.Head(c.graph), func(walk *Walker, _ bool) error { return walk.Show(part, windows) })
	return out, walks
}

// TestGather holds what stages sum up, on the processor or on a GPU, to the reference in
// float64: every input, experts apart, of windows that share passes, that need several,
// and of a few tokens; where the device has room for all sums, and for those of one input
// at a time.
func TestGather(t *testing.T) {
	d := onFlag(t, Options{}).Device
	on, err := OpenDevice(d)
	opened(t, err)
	defer on.Close()
	windows := [][]int32{tinyIDs(12), tinyIDs(40)[5:], tinyIDs(21), tinyIDs(1)}
	for i, c := range byTurns(tinies()) {
		source, values := fillWeights(t, c.graph, "f32", 7)
		if err := lacking(&c, source, on); err != nil {
			t.Logf("%s: %v", c.name, err)
			continue
		}
		want := referenceSums(&c, &reference{g: c.graph, weights: values}, windows)
		got, walks := deviceSums(t, &c, source, on, windows, false)
		compareSums(t, c.name, got, want)
		if walks != 2 {
			t.Errorf("%s: walked %d times", c.name, walks)
		}
		if on == nil || i%2 != 0 {
			continue
		}
		again, _ := deviceSums(t, &c, source, on, windows, false)
		apart, walks := deviceSums(t, &c, source, on, windows, true)
		for at, s := range got {
			if !slices.Equal(s.Squares, again[at].Squares) || !slices.Equal(s.Squares, apart[at].Squares) {
				t.Errorf("%s: sums of %v differ from run to run, or from a walk for each input", c.name, at)
			}
		}
		if least := len(device.Inputs(c.graph, device.Whole(c.graph))); walks != least {
			t.Errorf("%s: %d walks for the sums of %d inputs one by one", c.name, walks, least)
		}
	}
}

// lacking is why a graph's blocks are not walked on a GPU; nil where they are.
func lacking(c *tiny, source func(string) formats.Tensor, on *Opened) error {
	if on == nil {
		return nil
	}
	var lacks *formats.UnsupportedError
	_, err := on.GPU().Need(c.graph, device.Whole(c.graph), source, on.options(&Options{Exact: true, Context: 64}))
	if !errors.As(err, &lacks) {
		return nil
	}
	return err
}

func compareSums(t *testing.T, name string, got map[inputOf]*device.Sums, want map[inputOf]*summed) {
	t.Helper()
	// Of the product of two features' sizes, of which none counts as less than a hundredth
	// of the largest.
	const tolerance = 5e-5
	if len(got) != len(want) {
		t.Errorf("%s: %d sums, want %d", name, len(got), len(want))
	}
	for at, w := range want {
		g := got[at]
		if g == nil {
			t.Errorf("%s: no sums of %v", name, at)
			continue
		}
		if k := len(w.most); g.Tokens != w.tokens || len(g.AbsMax) != k || g.Odd {
			t.Errorf("%s: %v has %d tokens of %d features, want %d of %d", name, at, g.Tokens, len(g.AbsMax), w.tokens, k)
			continue
		}
		k := len(w.most)
		sizes, largest := make([]float64, k), slices.Max(w.most)
		for i := range sizes {
			sizes[i] = math.Sqrt(w.squares[i*k+i])
		}
		least := slices.Max(sizes) / 100
		for i := range k {
			if d := math.Abs(float64(g.AbsMax[i]) - w.most[i]); d > tolerance*max(w.most[i], largest/100) {
				t.Errorf("%s: %v: the largest of feature %d is %g, want %g", name, at, i, g.AbsMax[i], w.most[i])
			}
			for j := range i + 1 {
				v, size := g.Squares[i*(i+1)/2+j], max(sizes[i], least)*max(sizes[j], least)
				if math.Abs(v-w.squares[i*k+j]) > tolerance*size {
					t.Fatalf("%s: %v: [%d][%d] is %g, want %g", name, at, i, j, v, w.squares[i*k+j])
				}
			}
		}
	}
}
