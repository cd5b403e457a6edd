package conformance

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

var (
	measureFlag  = flag.String("measure", "", "file for the results of TestMeasureMatvec, as JSON; without, it is skipped")
	schemesFlag  = flag.String("schemes", "q4_k,q8_0,q6_k,f16", "schemes that are measured")
	rowsFlag     = flag.Int("rows", 1, "the most rows of activations in what is measured")
	leastFlag    = flag.Int("least", 1, "the fewest of them")
	variantsFlag = flag.Bool("variants", false, "measure every division of the work, not the chosen one alone")
	onlyFlag     = flag.String("only", "", "measure what is called so alone: plain [4096] x 14336")
	smallFlag    = flag.Bool("small", false, "measure small shapes, to try the measurement itself")
)

// A timing is what was measured of one operation.
type timing struct {
	Op        string  `json:"op"`
	Scheme    string  `json:"scheme"`
	T         int     `json:"t"`
	N         []int   `json:"n"`
	K         int     `json:"k"`
	Shape     string  `json:"shape"`
	Registers int     `json:"registers"`
	Micros    float64 `json:"us"`
	Apart     float64 `json:"apart_us"` // without beginning early
	GBs       float64 `json:"gb_s"`
	Share     float64 `json:"of_copy"`
}

// A report is what a machine can do and what operations made of it.
type report struct {
	Device  string   `json:"device"`
	Runtime string   `json:"runtime"`
	Copy    float64  `json:"copy_gb_s"` // read and written
	Empty   float64  `json:"empty_us"`  // a launch of nothing, of many in a graph
	Timings []timing `json:"timings"`
}

// measure returns the microseconds of one launch when calls run one after the
// other in a graph: the median of several replays.
func (m *machine) measure(t testing.TB, calls []hip.Call) float64 {
	t.Helper()
	var functions []*driver.Function
	for i := range calls {
		f, err := m.function(&calls[i])
		if err != nil {
			t.Fatal(err)
		}
		functions = append(functions, f)
	}
	g, err := m.stream.Capture(func() error {
		for i := range calls {
			if err := m.stream.Launch(functions[i], calls[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Free()
	var times []float64
	for range 7 {
		times = append(times, m.time(t, func() error { return m.stream.Replay(g) }))
	}
	slices.Sort(times)
	return times[len(times)/2] / float64(len(calls))
}

// time returns the microseconds between events around queued work.
func (m *machine) time(t testing.TB, work func() error) float64 {
	t.Helper()
	from, err := m.Event()
	if err != nil {
		t.Fatal(err)
	}
	to, err := m.Event()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.stream.Record(from); err != nil {
		t.Fatal(err)
	}
	if err := work(); err != nil {
		t.Fatal(err)
	}
	if err := m.stream.Record(to); err != nil {
		t.Fatal(err)
	}
	ms, err := to.Since(from)
	if err != nil {
		t.Fatal(err)
	}
	from.Free()
	to.Free()
	return ms * 1000
}

// compile compiles calls' units on all processors, so that a machine that costs
// by the minute does not wait.
func (m *machine) compile(t testing.TB, units []hip.Unit) {
	t.Helper()
	var wait sync.WaitGroup
	codes, errs := make([][]byte, len(units)), make([]error, len(units))
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for i := range next {
				codes[i], _, errs[i] = m.Compile(units[i])
			}
		}()
	}
	for i := range units {
		if m.modules[units[i]] == nil {
			next <- i
		}
	}
	close(next)
	wait.Wait()
	for i, u := range units {
		if errs[i] != nil {
			t.Fatalf("%v: %v", u, errs[i])
		}
		if codes[i] == nil {
			continue
		}
		module, err := m.Load(codes[i])
		if err != nil {
			t.Fatal(err)
		}
		m.modules[u] = module
	}
}

// copyRate is the rate of copies within the device in GB/s, read and written.
func (m *machine) copyRate(t testing.TB) float64 {
	t.Helper()
	n := int64(1 << 30)
	if *smallFlag {
		n = 1 << 20
	}
	from, err := m.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	to, err := m.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free(from)
	defer m.Free(to)
	best := 0.0
	for range 10 {
		us := m.time(t, func() error { return m.stream.Copy(to, from, n) })
		best = max(best, 2*float64(n)/us/1e3)
	}
	return best
}

// A workload is an operation of a model's layer: on activations rounded before
// (plain), on the way (x) or behind a norm; gated has the output rounded, gatedx
// does not, and both are behind a norm; gatedacts is gated on activations rounded before.
type workload struct {
	op string
	n  []int
	k  int
	t  int
}

func workloads() []workload {
	if *smallFlag {
		return []workload{{"plain", []int{256}, 512, 1}, {"norm", []int{128, 64, 64}, 512, 1}, {"gated", []int{256, 256}, 512, 1}}
	}
	return []workload{
		{"plain", []int{8192}, 28672, 1},
		{"plain", []int{4096}, 4096, 1},
		{"x", []int{4096}, 4096, 1},
		{"plain", []int{4096}, 14336, 1},
		{"x", []int{4096}, 14336, 1},
		{"plain", []int{6144}, 4096, 1},
		{"norm", []int{4096, 1024, 1024}, 4096, 1},
		{"gated", []int{14336, 14336}, 4096, 1},
		{"gatedx", []int{14336, 14336}, 4096, 1},
		{"plain", []int{128256}, 4096, 1},
		{"plain", []int{8192}, 28672, 2},
		{"plain", []int{14336}, 4096, 4},
		{"plain", []int{14336}, 4096, 8},
		{"plain", []int{4096}, 4096, 8},
		{"x", []int{4096}, 4096, 8},
		{"plain", []int{4096}, 14336, 8},
		{"plain", []int{4096, 1024, 1024}, 4096, 8},
		{"gatedacts", []int{14336, 14336}, 4096, 5},
		{"gatedacts", []int{14336, 14336}, 4096, 8},
		{"plain", []int{4096}, 4096, 32},
		{"plain", []int{4096}, 14336, 32},
		{"plain", []int{4096, 1024, 1024}, 4096, 32},
		{"gatedacts", []int{14336, 14336}, 4096, 32},
		{"plain", []int{128256}, 4096, 32},
		{"plain", []int{4096}, 14336, 16},
		{"gatedacts", []int{14336, 14336}, 4096, 16},
	}
}

// shapes are the divisions of work that are tried.
func (m *machine) shapes(w *workload) []*hip.MatvecShape {
	all := []*hip.MatvecShape{nil}
	if !*variantsFlag {
		return all
	}
	add := func(rows, steps, waves, blocks, grid int, pipe bool) {
		all = append(all, &hip.MatvecShape{Rows: rows, Lanes: m.target.Wave, Waves: waves, Split: 1, Steps: steps,
			Blocks: blocks, Grid: grid, Pipe: pipe})
	}
	if m.target.Matrix() == hip.MMA && w.op != "x" {
		for _, v := range [][3]int{{14, 1, 4}, {16, 2, 4}, {12, 4, 4}, {16, 4, 4}, {16, 8, 2}, {16, 8, 3}} {
			all = append(all, &hip.MatvecShape{Waves: v[0], Split: v[1], Depth: v[2]})
		}
	}
	if w.t > 2 && w.op != "x" {
		// What was fastest of matrows.hip's.
		s := hip.MatvecShape{Rows: 4, Waves: 1, Features: 2, Steps: 4, Blocks: 1}
		direct := s
		direct.Direct = true
		all = append(all, &s, &direct)
		if w.t > 4 {
			return all
		}
	}
	if w.t > 2 {
		for _, rows := range []int{1, 2, 4} {
			for _, waves := range []int{8, 16} {
				for _, grid := range []int{0, 1, 2} {
					blocks := max(grid, 1)
					if blocks*waves*m.target.Wave > 1024 || rows == 4 && blocks*waves > 16 {
						continue
					}
					add(rows, 1, waves, blocks, grid, false)
					add(rows, 1, waves, blocks, grid, true)
				}
			}
		}
		add(1, 1, 32, 1, 1, false)
		add(1, 2, 16, 1, 1, false)
		add(2, 2, 16, 1, 1, false)
		return all
	}
	add(1, 4, 16, 2, 0, false)
	add(2, 2, 16, 2, 0, false)
	add(2, 1, 16, 2, 0, false)
	add(1, 4, 8, 2, 2, true)
	add(1, 4, 16, 1, 1, true)
	add(1, 2, 16, 1, 1, true)
	add(1, 2, 16, 2, 2, true)
	add(2, 1, 16, 2, 2, true)
	add(2, 1, 16, 1, 1, true)
	add(2, 2, 8, 2, 2, true)
	add(2, 2, 16, 1, 1, true)
	add(4, 1, 16, 1, 1, true)
	return all
}

// TestMeasureMatvec validates products and times them, on weights that are no
// longer in any cache when they are read again.
func TestMeasureMatvec(t *testing.T) {
	if *measureFlag == "" {
		t.Skip("no -measure")
	}
	m := open(t)
	r := rand.New(rand.NewPCG(17, 18))
	p := m.Properties()
	rep := report{Device: p.Name, Runtime: p.Runtime, Copy: m.copyRate(t)}
	empty := hip.Call{Unit: hip.Unit{File: "empty.hip"}, Symbol: "nstf_empty", Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{uint32(m.target.Wave), 1, 1}}
	rep.Empty = m.measure(t, slices.Repeat([]hip.Call{empty}, 64))
	t.Logf("%s: copy %.0f GB/s, empty launch %.2f us", rep.Device, rep.Copy, rep.Empty)
	for _, v := range varieties(t) {
		if !slices.Contains(strings.Split(*schemesFlag, ","), v.String()) {
			continue
		}
		m.measureScheme(t, r, v, &rep)
	}
	raw, err := json.MarshalIndent(rep, "", " ")
	if err == nil {
		err = os.WriteFile(*measureFlag, raw, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// pool is memory with random bytes that weights are taken from.
func (m *machine) pool(t testing.TB, r *rand.Rand, n int64) driver.Buffer {
	t.Helper()
	b, err := m.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	piece := make([]byte, min(n, 16<<20))
	for i := range piece {
		piece[i] = byte(r.Uint32())
	}
	for at := int64(0); at < n; at += int64(len(piece)) {
		size := min(int64(len(piece)), n-at)
		if err := m.stream.Upload(b.At(at, size), piece[:size]); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (m *machine) measureScheme(t *testing.T, r *rand.Rand, v *variety, rep *report) {
	size := int64(2) << 30
	if *smallFlag {
		size = 4 << 20
	}
	weights, scratch := m.pool(t, r, size), m.pool(t, r, size/16)
	defer m.Free(weights)
	defer m.Free(scratch)
	for _, w := range workloads() {
		if !v.fits(w.k) || w.t > *rowsFlag || w.t < *leastFlag || *onlyFlag != "" && *onlyFlag != fmt.Sprintf("%s %v x %d", w.op, w.n, w.k) {
			continue
		}
		var ops []*hip.Matvec
		var units []hip.Unit
		for _, s := range m.shapes(&w) {
			op, bytes := m.operation(t, v, &w, s, weights, scratch)
			if op == nil || bytes == 0 {
				continue
			}
			ops = append(ops, op)
			for _, c := range op.Calls(m.target) {
				units = append(units, c.Unit)
			}
		}
		slices.SortFunc(units, func(a, b hip.Unit) int { return strings.Compare(a.Defines, b.Defines) })
		m.compile(t, slices.Compact(units))
		for _, op := range ops {
			m.measureOne(t, r, v, &w, op, weights, rep)
		}
	}
}

// operation is a workload on weights at the start of the memory, and the bytes of
// its weights.
func (m *machine) operation(t testing.TB, v *variety, w *workload, s *hip.MatvecShape, weights, scratch driver.Buffer) (*hip.Matvec, int64) {
	t.Helper()
	f, err := hip.FormatOf(v.scheme, v.params, int64(w.k))
	if err != nil {
		t.Fatal(err)
	}
	at := scratch.Address
	take := func(n int) hip.Address {
		from := at
		at += hip.Address((n + 255) / 256 * 256)
		return from
	}
	op := &hip.Matvec{T: w.t, Shape: s, X: take(4 * w.t * w.k)}
	if w.op == "norm" || w.op == "gated" || w.op == "gatedx" {
		op.Norm = hip.Normal{Weight: take(4 * w.k), Eps: 1e-5}
	} else if f.Integer() && w.op != "x" {
		give(op, hip.Acts{Data: take(int(hip.FineActsSize(w.t, w.k))), T: w.t, K: w.k, Fine: f.Fine()})
	}
	total := int64(0)
	for _, n := range w.n {
		_, size, err := f.Parts([]int64{int64(n), int64(w.k)}, v.params)
		if err != nil {
			t.Fatal(err)
		}
		op.Products = append(op.Products, hip.Product{
			W: hip.Weight{Format: f, N: n, K: w.k, Data: weights.Address + hip.Address(total)}, Y: take(4 * w.t * n)})
		total += (size + 255) / 256 * 256
	}
	op.Gated = strings.HasPrefix(w.op, "gated")
	if w.op == "gated" || w.op == "gatedacts" {
		op.Rounded = hip.Acts{Data: take(int(hip.ActsSize(w.t, w.n[0]))), T: w.t, K: w.n[0]}
		if s != nil && s.Features == 0 && s.Depth == 0 && s.Waves*s.Rows/s.Split*(m.target.Wave/s.Lanes)%32 != 0 {
			return nil, 0
		}
	}
	if total > weights.Size {
		return nil, 0
	}
	if s != nil && s.Depth > 0 && !op.Raw(m.target) {
		return nil, 0
	}
	for _, c := range op.Calls(m.target) {
		if int(c.LDS) > m.target.LDS-64 {
			return nil, 0
		}
	}
	return op, total
}

// measureOne times an operation on as many copies of its weights as the memory
// holds.
func (m *machine) measureOne(t *testing.T, r *rand.Rand, v *variety, w *workload, op *hip.Matvec, weights driver.Buffer, rep *report) {
	if w.op == "plain" {
		c := &matvecCase{v: v, t: w.t, k: w.k, n: []int{35}, acts: op.Acts.Data != 0 || op.Fine.Data != 0, shape: op.Shape}
		c.run(t, m, r)
	}
	total, bytes := hip.Address(0), 0.0
	for _, p := range op.Products {
		_, size, _ := p.W.Format.Parts([]int64{int64(p.W.N), int64(p.W.K)}, v.params)
		total += hip.Address((size + 255) / 256 * 256)
		bytes += float64(size)
	}
	copies := min(int(weights.Size/int64(total)), 64)
	var calls []hip.Call
	for i := range copies {
		moved := *op
		moved.Products = slices.Clone(op.Products)
		for j := range moved.Products {
			moved.Products[j].W.Data += hip.Address(i) * total
		}
		calls = append(calls, moved.Calls(m.target)...)
	}
	us := m.measure(t, calls) * float64(len(calls)) / float64(copies)
	for i := range calls {
		calls[i].Early = false
	}
	apart := m.measure(t, calls) * float64(len(calls)) / float64(copies)
	f, err := m.function(&calls[0])
	if err != nil {
		t.Fatal(err)
	}
	name := "chosen"
	if op.Shape != nil {
		name = op.Shape.String()
	}
	g := timing{Op: w.op, Scheme: v.String(), T: w.t, N: w.n, K: w.k, Shape: name,
		Registers: f.Attributes().Registers, Micros: us, Apart: apart, GBs: bytes / us / 1e3, Share: bytes / us / 1e3 / rep.Copy}
	rep.Timings = append(rep.Timings, g)
	t.Log(fmt.Sprintf("%-6s %-6s T=%d %v x %d  %-28s %3d regs %8.2f (%7.2f) us %6.0f GB/s %5.1f %%", g.Op, g.Scheme, g.T, g.N, g.K, g.Shape, g.Registers, g.Micros, g.Apart, g.GBs, 100*g.Share))
}
