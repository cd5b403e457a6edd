package kerneltest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/nstf/nstf/formats/scheme"
)

// Validate runs the cases of an operation and returns the first fault; an
// operation that no case holds is one. It is [Test] for who is no test: what is
// timed has to be right.
func Validate(b *Backend, op string) error {
	if check := conversions(b)[op]; check != nil {
		return check()
	}
	for _, o := range operations() {
		if o.name == op && o.has(b) {
			return firstFault(b, o)
		}
	}
	return fmt.Errorf("%s of %s: no case holds it", op, b.Name)
}

func firstFault(b *Backend, o operation) (fault error) {
	o.problems(rand.New(rand.NewPCG(1, 2)), func(p problem) {
		if fault != nil {
			return
		}
		got, broken := guardedRun(b, p)
		worst, allowed, wrong := compare(p, got)
		if broken != "" || len(wrong) > 0 || worst > allowed {
			fault = fmt.Errorf("%s of %s: %s: %s %q, error %.2f of %.2f units", o.name, b.Name, p.name, broken, wrong, worst, allowed)
		}
	})
	return fault
}

// ValidateInteger holds the products of one scheme to float64 on the same
// activations, for tokens on both sides of every limit, and returns the first
// fault.
func ValidateInteger(b IntegerBackend, name string) error {
	s, ok := scheme.ByName(name)
	if !ok || !slices.Contains(b.Schemes, name) {
		return fmt.Errorf("%s of %s: no integer kernels", name, b.Name)
	}
	const n = 37
	r := rand.New(rand.NewPCG(11, 12))
	for _, k := range []int{256, 512 + s.Block} {
		w := RandomRows(r, s, n, k)
		weights, q := decoded(s, w, n, k), make([]float32, k)
		for _, tokens := range tokenCounts() {
			a, c := ordinary(r, tokens*k), make([]float32, tokens*n)
			b.MatMul(name, c, n, w, a, tokens, 0, n, k)
			for i, got := range c {
				t, row := i/n, weights[i%n*k:i%n*k+k]
				b.Quantized(name, q, a[t*k:t*k+k])
				size := 0.0
				for _, v := range q {
					size += math.Abs(float64(v))
				}
				want := exactDot(0, row, q).value
				if e := math.Abs(float64(got) - want); !(e <= integerTolerance*size*2*largest(row)+0x1p-149) {
					return fmt.Errorf("%s of %s: T=%d K=%d: token %d of row %d is %g, want %g", name, b.Name, tokens, k, t, i%n, got, want)
				}
			}
		}
	}
	return nil
}

// A Timing is a kernel at one shape, ready to be timed. Work is counted in bytes
// read and written once, or in floating-point operations where Flops is set.
type Timing struct {
	Name         string // operation/shape
	Bytes, Flops int
	Setup        func() (run func())
}

// Timings lists what [Bench] times of a backend.
func Timings(b *Backend) []Timing {
	var ts []Timing
	for _, bm := range benchmarks() {
		if bm.has(b) {
			ts = append(ts, Timing{bm.name, bm.bytes, bm.flops, func() func() { return bm.setup(b, rand.New(rand.NewPCG(5, 6))) }})
		}
	}
	return ts
}
