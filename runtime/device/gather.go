package device

import (
	"slices"

	"github.com/nstf/nstf/formats/graph"
)

// A Gatherer is a Stage that sums up what its linears read, for calibration: see
// docs/decisions/0021-stages-gather-sums.md. Activations do not leave the device for
// it, and sums do when all passes are done.
type Gatherer interface {
	Stage

	// Gather has the passes from here on sum up inputs of the stage, by the names of
	// [Inputs]. What was summed before is forgotten. The stage computes in float32.
	Gather(inputs []Input) error

	// Sums calls f with what was summed, input by input in the order that Gather was
	// given: the input as all read it, and what came to each expert after that. It ends
	// the gathering. What f is given is f's to keep.
	Sums(f func(*Sums) error) error
}

// An Input is what linears of the same [graph.Linear.Input] read.
type Input struct {
	Name    string
	K       int
	Experts int // of the mixture whose experts read it, each some of the rows; 0: none do
}

// Sums are those of the rows x[T][K] that came to an input.
type Sums struct {
	Input  string
	Expert int   // -1: of all rows
	Tokens int64 // T
	// Squares are the lower triangle of X'X, row after row: [K(K+1)/2]. Products are
	// added in float32 over some rows, at most a thousand or so, and in float64 beyond,
	// in an order that does not change from run to run on one device.
	Squares []float64
	AbsMax  []float32 // [K]: of the finite values
	Odd     bool      // a NaN or an infinity came
}

// Triangle returns the numbers of a lower triangle of k features.
func Triangle(k int64) int64 { return k * (k + 1) / 2 }

// Bytes returns what the sums of an input take, its experts' included.
func (in *Input) Bytes() int64 {
	return (8*Triangle(int64(in.K)) + 4*int64(in.K)) * int64(1+in.Experts)
}

// Inputs lists the distinct inputs of a span's linears in the order of execution.
func Inputs(g *graph.Graph, span Span) []Input {
	var out []Input
	add := func(p *graph.Part) {
		if p.Linear == nil {
			return
		}
		at := slices.IndexFunc(out, func(in Input) bool { return in.Name == p.Linear.Input })
		if at < 0 {
			at, out = len(out), append(out, Input{Name: p.Linear.Input, K: int(p.Linear.In)})
		}
		out[at].Experts = max(out[at].Experts, int(p.Experts))
	}
	for i := span.Lo; i < span.Hi; i++ {
		for _, p := range g.Blocks[i].Parts(g.Width) {
			add(&p)
		}
	}
	if span.Head {
		for _, p := range g.Ends() {
			add(&p)
		}
	}
	return out
}

// Rows are hidden states [T][D] that are kept on some device while stages come and go.
type Rows interface {
	// Slice returns rows lo to hi, valid as long as the Rows are.
	Slice(lo, hi int) Hidden
	// Store takes the rows from lo on from another place, perhaps of the same device.
	Store(lo, n int, h Hidden) error
	// Release gives the memory back.
	Release() error
}

// HostRows are Rows of width D in the processor's memory.
type HostRows struct {
	X     []float32
	Width int
}

// Slice implements Rows.
func (r HostRows) Slice(lo, hi int) Hidden { return Host(r.X[lo*r.Width : hi*r.Width]) }

// Store implements Rows.
func (r HostRows) Store(lo, n int, h Hidden) error { return h.Read(r.X[lo*r.Width : (lo+n)*r.Width]) }

// Release implements Rows.
func (r HostRows) Release() error { return nil }
