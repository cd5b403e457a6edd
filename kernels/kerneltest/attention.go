package kerneltest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/nstf/nstf/kernels/cpu"
)

// An Attention is one problem of attention: T tokens of Group queries each over
// P positions of one key-value head.
type Attention struct {
	Format         string // of cpu.KVFormatNames: how keys and values are stored
	Dim, Group     int
	Value          int // numbers of a value; 0: Dim
	Scale, Softcap float32
	Reach          [][2]int  // [T]: the positions that a token sees, from and to
	Q              []float32 // [T*Group][Dim]
	// Keys [P][Dim] and Values [P][Value] are numbers that the format holds exactly, or not
	// finite, but for the rounding of a Hadamard transform where it turns them. In q8, 32
	// numbers of a key and all of a value share a scale, of fewer bits 32 of both.
	Keys, Values []float32
	// Sinks are scores of each query of a group that count in the denominator
	// alone; nil: none.
	Sinks []float32
	// Split is how many positions a partial result covers; 0: all.
	Split int
}

func attentionOperations() []operation {
	return []operation{
		{"PanelF32", func(b *Backend) bool { return b.PanelF32 != nil }, panelProblems("f32", panelF32)},
		{"PanelF16", func(b *Backend) bool { return b.PanelF16 != nil }, panelProblems("f16", panelF16)},
		{"PanelQ8", func(b *Backend) bool { return b.PanelQ8 != nil }, panelProblems("q8", panelQ8)},
		{"Attend", func(b *Backend) bool { return b.Attend != nil }, attendProblems(false)},
		{"AttendCodes", func(b *Backend) bool { return b.Attend != nil }, attendProblems(true)},
		{"AttendValues", func(b *Backend) bool { return b.Attend != nil && !b.SameWidth }, valueProblems},
	}
}

// A panelCall is a product with B bound.
type panelCall func(b *Backend, c []float32, ldc int, a []float32, lda, ldb, m, n, k int, add bool)

func panelF32(w []float32) panelCall {
	return func(b *Backend, c []float32, ldc int, a []float32, lda, ldb, m, n, k int, add bool) {
		b.PanelF32(c, ldc, a, lda, w, ldb, m, n, k, add)
	}
}

func panelF16(w []float32) panelCall {
	raw := make([]byte, 2*len(w)+1)[1:] // odd address
	for i, v := range w {
		binary.LittleEndian.PutUint16(raw[2*i:], nearestHalf(v))
	}
	return func(b *Backend, c []float32, ldc int, a []float32, lda, ldb, m, n, k int, add bool) {
		b.PanelF16(c, ldc, a, lda, raw, ldb, m, n, k, add)
	}
}

func panelQ8(w []float32) panelCall {
	raw := make([]byte, len(w)+1)[1:]
	for i, v := range w {
		raw[i] = byte(int8(v))
	}
	return func(b *Backend, c []float32, ldc int, a []float32, lda, ldb, m, n, k int, add bool) {
		b.PanelQ8(c, ldc, a, lda, raw, ldb, m, n, k, add)
	}
}

// stored makes w, rows of d, numbers that a format holds exactly, group of which
// share a scale.
func stored(format string, w []float32, d, group int) {
	switch format {
	case "f16":
		for i, v := range w {
			w[i] = float32(halfValue(nearestHalf(v)))
		}
	case "q8":
		for i := range w {
			w[i] = float32(math.RoundToEven(min(max(float64(w[i])*40, -127), 127)))
			if i%d%group == 0 {
				w[i] = 127 // the largest magnitude: the scale is a power of two
			}
			w[i] *= float32(math.Ldexp(1, (i/d+i%d/group)%3-7))
		}
	}
}

func kvFormat(name string) cpu.KVFormat {
	f, err := cpu.ParseKVFormat(name)
	if err != nil {
		panic(err)
	}
	return f
}

// storedCodes fills w, rows of d, with what codes stand for and a transform turns back:
// the first of each 32 has the level of the largest magnitude, so that rounding them
// finds the codes again.
func storedCodes(r *rand.Rand, f cpu.KVFormat, w []float32, d int, a *Attention) {
	levels := f.Levels()
	for i := range w {
		code := r.IntN(len(levels))
		if i%d%32 == 0 {
			code = 0
		}
		w[i] = float32(math.Ldexp(float64(levels[code]), (i/d+i%d/32)%3-7))
	}
	f.Turn(w, a.Dim, a.values())
}

// panelShapes cross the heights and widths of kernels.
func panelShapes(each func(m, n, k int)) {
	for m := range 15 {
		each(m, 64, 20)
	}
	for _, m := range []int{1, 2, 5, 12, 24, 31} {
		for _, n := range []int{0, 16, 32, 48, 64, 80, 112, 144, 256} {
			each(m, n, 7)
		}
		for _, k := range []int{0, 1, 2, 3, 4, 33, 64, 129} {
			each(m, 80, k)
		}
	}
}

func panelProblems(format string, bind func(w []float32) panelCall) func(r *rand.Rand, add func(problem)) {
	return func(r *rand.Rand, add func(problem)) {
		ks := kinds()
		if format == "q8" {
			ks = ks[:1]
		}
		for i, kd := range ks {
			panelShapes(func(m, n, k int) {
				if i == 0 || (m+n+k)%3 == 0 { // ordinary values for all shapes, others for some
					add(panelProblem(r, kd, format, bind, m, n, k))
				}
			})
		}
	}
}

func panelProblem(r *rand.Rand, kd kind, format string, bind func(w []float32) panelCall, m, n, k int) problem {
	lda, ldb, ldc := k+m%3, n+k%2*8, n+m%2*5
	size := func(rows, ld, cols int) int { return max(rows-1, 0)*ld + min(rows, 1)*cols }
	a, w, c := ordinary(r, size(m, lda, k)), kd.vector(r, size(k, ldb, n)), ordinary(r, size(m, ldc, n))
	switch format {
	case "f16":
		stored(format, w, 1, 1)
	case "q8":
		for i := range w {
			w[i] = float32(int8(r.Uint32()))
		}
	}
	call, plus := bind(w), (m+n+k)%2 == 0
	visit := func(set func(i int, start float32, row, col []float32)) {
		col := make([]float32, k)
		for i := range m {
			for j := range n {
				for p := range col {
					col[p] = w[p*ldb+j]
				}
				start := float32(0)
				if plus {
					start = c[i*ldc+j]
				}
				set(i*ldc+j, start, a[i*lda:i*lda+k], col)
			}
		}
	}
	return problem{
		name: fmt.Sprintf("%s M=%d N=%d K=%d add=%v", kd.name, m, n, k, plus), out: c, floor: 1,
		skip: func(i int) bool { return ldc > 0 && i%ldc >= n },
		run:  func(b *Backend, out []float32) { call(b, out, ldc, a, lda, ldb, m, n, k, plus) },
		exact: func() []answer {
			e := make([]answer, len(c))
			visit(func(i int, start float32, row, col []float32) { e[i] = exactDot(start, row, col) })
			return e
		},
		plain: func(turn int) []float32 {
			y := make([]float32, len(c))
			visit(func(i int, start float32, row, col []float32) { y[i] = plainDot(turn, start, row, col) })
			return y
		},
	}
}

// attendProblems are of the formats that are codes of few bits, or of the others.
func attendProblems(coded bool) func(r *rand.Rand, add func(problem)) {
	return func(r *rand.Rand, add func(problem)) {
		for _, format := range cpu.KVFormatNames() {
			if kvFormat(format).Coded() == coded {
				attendFormat(r, add, format)
			}
		}
	}
}

func attendFormat(r *rand.Rand, add func(problem), format string) {
	for _, d := range []int{1, 2, 15, 16, 17, 20, 33, 64, 80, 96, 128, 256} {
		attendProblem(r, add, "causal", &Attention{Format: format, Dim: d, Group: 1 + d%3}, causal(3, 70, 0))
	}
	for group := 1; group <= 13; group++ {
		attendProblem(r, add, "group", &Attention{Format: format, Dim: 20, Group: group}, causal(1+group%4, 65, 0))
	}
	for _, p := range []int{1, 2, 63, 64, 65, 127, 128, 255, 256, 257, 600} {
		attendProblem(r, add, "one token", &Attention{Format: format, Dim: 24, Group: 2}, causal(1, p, 0))
		attendProblem(r, add, "window", &Attention{Format: format, Dim: 24, Group: 2}, causal(min(p, 70), p, 40))
		attendProblem(r, add, "split", &Attention{Format: format, Dim: 24, Group: 3, Split: 100}, causal(min(p, 5), p, 0))
		attendProblem(r, add, "split window", &Attention{Format: format, Dim: 24, Group: 1, Split: 64}, causal(min(p, 5), p, 90))
		attendProblem(r, add, "sinks", &Attention{Format: format, Dim: 24, Group: 3, Sinks: []float32{0.5, -20, 9}}, causal(min(p, 5), p, 0))
		attendProblem(r, add, "sinks split", &Attention{Format: format, Dim: 24, Group: 2, Sinks: []float32{2, -1}, Split: 64, Softcap: 3 * float32(p%2)}, causal(min(p, 2), p, 300))
		attendProblem(r, add, "soft cap", &Attention{Format: format, Dim: 24, Group: 2, Softcap: 3}, causal(min(p, 2), p, 0))
	}
	attendProblem(r, add, "many tokens", &Attention{Format: format, Dim: 32, Group: 1}, causal(200, 200, 0))
	attendProblem(r, add, "nothing seen but sinks", &Attention{Format: format, Dim: 32, Group: 2, Sinks: []float32{-3, 0}}, [][2]int{{0, 0}, {7, 7}, {3, 70}})
	attendProblem(r, add, "nothing seen", &Attention{Format: format, Dim: 32, Group: 2}, [][2]int{{0, 0}, {0, 5}, {7, 7}, {3, 70}})
	attendSpecials(r, add, format)
}

// valueProblems are values that are wider or narrower than keys.
func valueProblems(r *rand.Rand, add func(problem)) {
	for _, format := range cpu.KVFormatNames() {
		for _, v := range []int{1, 12, 25, 40} {
			attendProblem(r, add, fmt.Sprintf("values of %d", v), &Attention{Format: format, Dim: 24, Value: v, Group: 3, Split: 64}, causal(3, 130, 0))
		}
		attendProblem(r, add, "latents", &Attention{Format: format, Dim: 576, Value: 512, Group: 10}, causal(2, 70, 0))
	}
}

// causal lets the last t of p positions see what stands before them, within a
// window if there is one.
func causal(t, p, window int) [][2]int {
	reach := make([][2]int, t)
	for i := range reach {
		reach[i][1] = p - t + i + 1
		if window > 0 {
			reach[i][0] = max(reach[i][1]-window, 0)
		}
	}
	return reach
}

// attendSpecials puts what is not a number where it must not matter, then where
// it must.
func attendSpecials(r *rand.Rand, add func(problem), format string) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, v := range []float32{inf, -inf, nan} {
		for _, where := range []string{"key", "value"} {
			for _, pos := range []int{66, 69, 3} { // seen by some, by the last token, by none
				a := &Attention{Format: format, Dim: 18, Group: 2}
				f := kvFormat(format)
				reach := causal(4, 70, 60)
				attendFill(r, a, reach)
				if where == "key" {
					a.Keys[pos*a.Dim+1] = v
				} else {
					a.Values[pos*a.Dim+1] = v
				}
				if f == cpu.KVQ8 || f.Coded() { // the whole vector is NaN then
					for i := range a.Dim {
						if where == "key" {
							a.Keys[pos*a.Dim+i] = nan
						} else {
							a.Values[pos*a.Dim+i] = nan
						}
					}
				}
				add(a.problem(fmt.Sprintf("%s %g %s at %d", format, v, where, pos)))
			}
		}
	}
	for name, scale := range map[string]float32{"far apart": 9, "all alike": 0} {
		a := &Attention{Format: format, Dim: 40, Group: 2}
		attendFill(r, a, causal(3, 300, 0))
		a.Scale = scale
		add(a.problem(format + " " + name))
	}
}

func attendProblem(r *rand.Rand, add func(problem), name string, a *Attention, reach [][2]int) {
	attendFill(r, a, reach)
	add(a.problem(fmt.Sprintf("%s %s D=%d group=%d tokens=%d positions=%d", a.Format, name, a.Dim, a.Group, len(reach), len(a.Keys)/a.Dim)))
}

func attendFill(r *rand.Rand, a *Attention, reach [][2]int) {
	p := 0
	for _, x := range reach {
		p = max(p, x[1])
	}
	a.Reach = reach
	a.Scale = float32(1 / math.Sqrt(float64(a.Dim)))
	a.Q = ordinary(r, len(reach)*a.Group*a.Dim)
	a.Keys, a.Values = ordinary(r, p*a.Dim), ordinary(r, p*a.values())
	if f := kvFormat(a.Format); f.Coded() {
		storedCodes(r, f, a.Keys, a.Dim, a)
		storedCodes(r, f, a.Values, a.values(), a)
		return
	}
	stored(a.Format, a.Keys, a.Dim, 32) // q8: see kernels/cpu
	stored(a.Format, a.Values, a.values(), a.values())
}

func (a *Attention) problem(name string) problem {
	floor := 8.0
	if a.Softcap != 0 {
		floor = 40 // a score of up to 3 may be off by 8 units of it
	}
	return problem{
		name: name, out: make([]float32, len(a.Q)/a.Dim*a.values()), floor: floor,
		run:   func(b *Backend, out []float32) { b.Attend(a)(out) },
		exact: a.exact,
		plain: a.plain,
	}
}

// row returns position p of queries or keys.
func (a *Attention) row(x []float32, p int) []float32 { return x[p*a.Dim : (p+1)*a.Dim] }

// values returns the numbers of a value.
func (a *Attention) values() int {
	if a.Value == 0 {
		return a.Dim
	}
	return a.Value
}

// value returns number d of the value at position p.
func (a *Attention) value(p, d int) float32 { return a.Values[p*a.values()+d] }

// sink returns the sink of query i, -Inf for none.
func (a *Attention) sink(i int) float32 {
	if a.Sinks == nil {
		return float32(math.Inf(-1))
	}
	return a.Sinks[i%a.Group]
}

// exact is the definition, in float64. Infinite scores count as Softmax counts
// them: -Inf is a mask, +Inf gives NaN.
func (a *Attention) exact() []answer {
	sizes := a.sizes()
	out := make([]answer, len(a.Q)/a.Dim*a.values())
	for i := range len(a.Q) / a.Dim {
		lo, hi := a.Reach[i/a.Group][0], a.Reach[i/a.Group][1]
		sink := float64(a.sink(i))
		z, top := make([]float64, hi), sink
		for p := lo; p < hi; p++ {
			z[p] = exactDot(0, a.row(a.Q, i), a.row(a.Keys, p)).value * float64(a.Scale)
			if a.Softcap != 0 {
				z[p] = float64(a.Softcap) * math.Tanh(z[p]/float64(a.Softcap))
			}
			top = max(top, z[p])
		}
		if math.IsInf(top, -1) {
			continue
		}
		sum := math.Exp(sink - top)
		for p := lo; p < hi; p++ {
			z[p] = math.Exp(z[p] - top)
			sum += z[p]
		}
		for d := range a.values() {
			e := &out[i*a.values()+d]
			for p := lo; p < hi; p++ {
				v := float64(a.value(p, d))
				e.value += z[p] / sum * v
				size := math.Abs(v)
				if sizes != nil {
					size = sizes[p]
				}
				e.size += z[p] / sum * size
			}
		}
	}
	return out
}

// sizes are the lengths of the values of a format that turns them, so that each number
// is a sum of others, by which errors are measured then; nil of others.
func (a *Attention) sizes() []float64 {
	if !kvFormat(a.Format).Coded() {
		return nil
	}
	sizes := make([]float64, len(a.Values)/a.values())
	for p := range sizes {
		for d := range a.values() {
			sizes[p] += math.Pow(float64(a.value(p, d)), 2)
		}
		sizes[p] = math.Sqrt(sizes[p])
	}
	return sizes
}

// plain is the plain float32 program.
func (a *Attention) plain(turn int) []float32 {
	out := make([]float32, len(a.Q)/a.Dim*a.values())
	for i := range len(a.Q) / a.Dim {
		lo, hi := a.Reach[i/a.Group][0], a.Reach[i/a.Group][1]
		z := make([]float32, hi-lo)
		for p := range z {
			z[p] = plainDot(turn, 0, a.row(a.Q, i), a.row(a.Keys, lo+p)) * a.Scale
			if a.Softcap != 0 {
				z[p] = a.Softcap * float32(math.Tanh(float64(z[p]/a.Softcap)))
			}
		}
		if a.Sinks != nil {
			z = append(z, a.sink(i))
		}
		z = plainSoftmax(z)[:hi-lo]
		column := make([]float32, len(z))
		for d := range a.values() {
			for p := range z {
				column[p] = a.value(lo+p, d)
			}
			out[i*a.values()+d] = plainDot(turn, 0, z, column)
		}
	}
	return out
}

// attendBenchmarks are a token that reads a long context, counted in bytes of
// keys and values, and a prompt, counted in operations of both products.
func attendBenchmarks() []benchmark {
	var bs []benchmark
	add := func(name string, flops bool, a Attention, reach [][2]int) {
		bm := benchmark{name: name, has: func(b *Backend) bool { return b.Attend != nil }}
		seen, last := 0, 0
		for _, x := range reach {
			seen, last = seen+x[1]-x[0], max(last, x[1])
		}
		if flops {
			bm.flops = 2 * seen * a.Group * (a.Dim + a.values())
		} else {
			bm.bytes = last * (a.Dim + a.values()) * kvFormat(a.Format).Bits() / 8
		}
		bm.setup = func(b *Backend, r *rand.Rand) func() {
			attendFill(r, &a, reach)
			run, out := b.Attend(&a), make([]float32, len(a.Q)/a.Dim*a.values())
			return func() { run(out) }
		}
		bs = append(bs, bm)
	}
	for _, format := range cpu.KVFormatNames() {
		for _, group := range []int{1, 4} {
			add(fmt.Sprintf("Attend/%s,D=128,group=%d,positions=4096", format, group), false,
				Attention{Format: format, Dim: 128, Group: group}, causal(1, 4096, 0))
		}
		add(fmt.Sprintf("Attend/%s,D=576,V=512,group=8,positions=4096", format), false,
			Attention{Format: format, Dim: 576, Value: 512, Group: 8}, causal(1, 4096, 0))
		add(fmt.Sprintf("Attend/%s,D=128,group=4,tokens=6,positions=2048", format), true,
			Attention{Format: format, Dim: 128, Group: 4}, causal(6, 2048, 0))
		add(fmt.Sprintf("Attend/%s,D=64,group=2,tokens=12,positions=512", format), true,
			Attention{Format: format, Dim: 64, Group: 2}, causal(12, 512, 0))
	}
	return bs
}
