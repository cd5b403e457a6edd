package kerneltest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// unit is half the distance from 1 to the next float32: the relative error of
// one rounding.
const unit = 0x1p-24

// An answer is one output element in float64, with the size of what was added
// up to get it, which errors are measured against.
type answer struct{ value, size float64 }

// A problem is one call of one kernel.
type problem struct {
	name string
	out  []float32 // contents of the output before the call
	// skip reports elements between rows, which must keep their contents.
	skip  func(i int) bool
	run   func(b *Backend, out []float32)
	exact func() []answer          // for every element of out; skipped ones are ignored
	plain func(turn int) []float32 // the plain float32 program
	floor float64                  // error allowed beside twice the plain one's, in units
}

// turns is how many orders of summation the plain program is tried in: its error
// in one is a matter of luck where an output or two is all there is.
const turns = 8

// An operation is a kernel and its problems.
type operation struct {
	name     string
	has      func(b *Backend) bool
	problems func(r *rand.Rand, add func(problem))
}

func operations() []operation {
	ops := append(productOperations(), pointwiseOperations()...)
	ops = append(ops, attentionOperations()...)
	ops = append(ops, operation{"DeltaStep", func(b *Backend) bool { return b.DeltaStep != nil }, deltaProblems})
	ops = append(ops, operation{"DeltaStepByChannel", func(b *Backend) bool { return b.DeltaStepByChannel != nil }, deltaByChannelProblems})
	ops = append(ops, operation{"ScanStep", func(b *Backend) bool { return b.ScanStep != nil }, scanProblems})
	return append(ops, normOperations()...)
}

// Test runs every case of every operation that b offers.
func Test(t *testing.T, b Backend) {
	for _, op := range operations() {
		t.Run(op.name, func(t *testing.T) {
			if !op.has(&b) {
				t.Skipf("%s does not offer %s", b.Name, op.name)
			}
			n, worst := 0, 0.0
			op.problems(rand.New(rand.NewPCG(1, 2)), func(p problem) {
				if n++; b.Takes == nil || b.Takes(n) {
					worst = max(worst, check(t, &b, p))
				}
			})
			t.Logf("%s: %d cases, largest error %.2f units of 2^-24", b.Name, n, worst)
		})
	}
	t.Run("Halves", func(t *testing.T) { testHalves(t, &b) })
}

// check runs one problem and returns its largest error in units.
func check(t *testing.T, b *Backend, p problem) float64 {
	t.Helper()
	got, broken := guardedRun(b, p)
	if broken != "" {
		t.Errorf("%s: %s", p.name, broken)
	}
	worst, allowed, wrong := compare(p, got)
	for _, w := range wrong {
		t.Errorf("%s: %s", p.name, w)
	}
	if worst > allowed {
		t.Errorf("%s: error %.2f units, %.2f are allowed", p.name, worst, allowed)
	}
	for range repeats() {
		again, _ := guardedRun(b, p)
		for i := range got {
			if !sameBits(got[i], again[i]) {
				t.Fatalf("%s: element %d was %g, then %g", p.name, i, got[i], again[i])
			}
		}
	}
	return worst
}

// repeats is how often a case runs again: ten runs in all, two in a short test,
// whose processor may be an emulated one.
func repeats() int {
	if testing.Short() {
		return 1
	}
	return 9
}

// compare returns the largest error of got and the largest allowed, in units,
// and what is wrong beside rounding. The plain program is tried in as many orders
// as it takes to allow the error.
func compare(p problem, got []float32) (worst, allowed float64, wrong []string) {
	exact := p.exact()
	for i, e := range exact {
		if p.skip != nil && p.skip(i) {
			if !sameBits(got[i], p.out[i]) {
				wrong = append(wrong, fmt.Sprintf("element %d between rows was overwritten with %g", i, got[i]))
			}
			continue
		}
		if why := otherKind(got[i], e.value); why != "" {
			wrong = append(wrong, fmt.Sprintf("element %d is %g: %s", i, got[i], why))
		}
		worst = max(worst, inUnits(got[i], e))
	}
	allowed = p.floor
	for turn := 0; turn < turns && worst > allowed; turn++ {
		for i, v := range p.plain(turn) {
			if p.skip == nil || !p.skip(i) {
				allowed = max(allowed, 2*inUnits(v, exact[i])+p.floor)
			}
		}
	}
	return worst, allowed, wrong
}

const guard = 37 // odd, so that no address is aligned

func guardWord() float32 { return math.Float32frombits(0x7fc0dead) }

// guardedRun calls the kernel with the output between guard words.
func guardedRun(b *Backend, p problem) (got []float32, broken string) {
	buf := surrounded(p.out)
	got = buf[guard : guard+len(p.out)]
	p.run(b, got)
	for i, v := range buf {
		if (i < guard || i >= guard+len(p.out)) && !sameBits(v, guardWord()) {
			return got, fmt.Sprintf("guard word at %d of %d was overwritten", i-guard, len(p.out))
		}
	}
	return got, ""
}

func surrounded(x []float32) []float32 {
	buf := make([]float32, len(x)+2*guard)
	for i := range buf {
		buf[i] = guardWord()
	}
	copy(buf[guard:], x)
	return buf
}

// input places values at an odd address between guard words: NaNs, so that a
// kernel that reads too far and uses it is found out.
func input(x []float32) []float32 {
	return surrounded(x)[guard : guard+len(x)]
}

func sameBits(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

// otherKind says how got differs in kind (NaN, infinite, finite) from want.
func otherKind(got float32, want float64) string {
	g := float64(got)
	switch {
	case math.IsNaN(want) != math.IsNaN(g):
	case math.IsInf(want, 0) != math.IsInf(g, 0):
	case math.IsInf(want, 0) && want != g:
	default:
		return ""
	}
	return fmt.Sprintf("want %g", want)
}

// inUnits is the error of v relative to the size of its terms; the last place
// of a subnormal is the least that counts.
func inUnits(v float32, e answer) float64 {
	if math.IsNaN(e.value) || math.IsInf(e.value, 0) || math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
		return 0
	}
	return math.Abs(float64(v)-e.value) / max(e.size*unit, 0x1p-149)
}

// A kind is what a vector is filled with.
type kind struct {
	name string
	fill func(r *rand.Rand, x []float32)
}

// kinds lists ordinary values first, then those that go wrong.
func kinds() []kind {
	return []kind{
		{"normal", normal},
		{"outliers", func(r *rand.Rand, x []float32) {
			normal(r, x)
			for i := range x {
				if r.IntN(10) == 0 {
					x[i] *= 1000
				}
			}
		}},
		{"subnormal", func(r *rand.Rand, x []float32) {
			normal(r, x)
			for i := range x {
				x[i] *= 0x1p-130
			}
		}},
		{"zeros", func(_ *rand.Rand, x []float32) {
			for i := range x {
				x[i] = float32(math.Copysign(0, float64(i%2)-0.5))
			}
		}},
		{"nan", special(float32(math.NaN()))},
		{"inf", special(float32(math.Inf(1)))},
		{"-inf", special(float32(math.Inf(-1)))},
	}
}

func normal(r *rand.Rand, x []float32) {
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
}

// special puts v in one place among ordinary values.
func special(v float32) func(r *rand.Rand, x []float32) {
	return func(r *rand.Rand, x []float32) {
		normal(r, x)
		if len(x) > 0 {
			x[r.IntN(len(x))] = v
		}
	}
}

func (k kind) vector(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	k.fill(r, x)
	return input(x)
}

func ordinary(r *rand.Rand, n int) []float32 { return kinds()[0].vector(r, n) }

// lengths are all tails of every vector width, and some longer ones.
func lengths() []int {
	var n []int
	for i := range 71 {
		n = append(n, i)
	}
	return append(n, 127, 128, 129, 255, 257, 1000)
}
