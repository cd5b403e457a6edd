package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/kerneltest"
	"github.com/nstf/nstf/runtime/place"
)

// A Shape is a product C[T][N] = A[T][K] W[N][K]^T.
type Shape struct{ T, N, K int }

// String returns the spelling that ParseShape reads.
func (s Shape) String() string { return fmt.Sprintf("%dx%dx%d", s.T, s.N, s.K) }

// maxShape bounds every size, and so what is allocated.
const maxShape = 1 << 18

// ParseShape reads TxNxK, such as 512x4096x4096.
func ParseShape(text string) (Shape, error) {
	fields := strings.Split(text, "x")
	var n [3]int
	bad := len(fields) != len(n)
	for i := 0; i < len(n) && !bad; i++ {
		v, err := strconv.Atoi(fields[i])
		n[i], bad = v, err != nil || v < 1 || v > maxShape
	}
	s := Shape{n[0], n[1], n[2]}
	if bad || s.N*s.K > 1<<32 || s.T*max(s.N, s.K) > 1<<30 {
		return Shape{}, formats.Unsupportedf("", "", "shape %q: TxNxK of sizes from 1 to %d, a matrix of at most 2^32 weights", text, maxShape)
	}
	return s, nil
}

// Shapes are the default ones: a token, and a prompt, through a layer of 4096.
func Shapes() []Shape { return []Shape{{1, 4096, 4096}, {512, 4096, 4096}} }

// A Kernel is one kernel at one shape, beside the machine's limit for it.
type Kernel struct {
	Kernel  string     `json:"kernel"`
	Shape   string     `json:"shape"`
	Threads int        `json:"threads"`
	Unit    string     `json:"unit"` // GB/s or GFLOP/s
	Rate    place.Rate `json:"rate"`
	Bound   string     `json:"bound"` // what the limit is of: read, f32 or int8
	Limit   place.Rate `json:"limit"` // reading as many bytes, or multiplying on registers, by as many threads
	Share   float64    `json:"share"` // of the limit, medians
}

// KernelOptions say which kernels to time.
type KernelOptions struct {
	Threads int           // of products with coded weights; the other kernels run on one
	Shapes  []Shape       // of these products
	Repeat  int           // samples of each
	Sample  time.Duration // that one takes at least; 0: what is usual
	// Done is called with each kernel that was timed.
	Done func(Kernel)
}

// Kernels validates every kernel of a level against the reference of
// kernels/kerneltest, and then times it. The first that is wrong ends it with an
// error. A scheme whose blocks do not divide K is passed over.
func Kernels(ctx context.Context, set *cpu.Set, o KernelOptions) error {
	if o.Sample == 0 {
		o.Sample = sampleTime
	}
	one := cpu.NewPool(1)
	defer one.Close()
	all := cpu.NewPool(o.Threads)
	defer all.Close()
	k := &kernels{ctx: ctx, set: set, o: o, one: one, all: all}
	if err := k.table(); err != nil {
		return err
	}
	for _, name := range cpu.Integers() {
		if err := k.scheme(name); err != nil {
			return err
		}
	}
	for _, c := range kerneltest.Codings() {
		if err := k.coding(c); err != nil {
			return err
		}
	}
	return nil
}

type kernels struct {
	ctx      context.Context
	set      *cpu.Set
	o        KernelOptions
	one, all *cpu.Pool
	sum      uint64 // of what was read: it has to go somewhere
}

// sampleTime is how long one sample takes at least where nobody says otherwise, so that the clock and the
// wake-up of threads do not matter.
const sampleTime = 20 * time.Millisecond

// rate returns calls per second of run.
func (k *kernels) rate(run func()) (place.Rate, error) {
	run()
	calls := 1
	var samples []float64
	for len(samples) < k.o.Repeat {
		if err := k.ctx.Err(); err != nil {
			return place.Rate{}, err
		}
		start := time.Now()
		for range calls {
			run()
		}
		d := time.Since(start)
		if d < k.o.Sample { // as many as it should take, and some
			calls = max(2*calls, int(1.1*float64(calls)*min(float64(k.o.Sample)/float64(max(d, 1)), 100)))
			continue
		}
		samples = append(samples, float64(calls)/d.Seconds())
	}
	return place.NewRate(samples), nil
}

// limit is what the machine does where a kernel is timed: it reads memory, or
// multiplies.
func (k *kernels) limit(pool *cpu.Pool, bound string, memory []byte) (place.Rate, error) {
	if bound == boundRead && pool == k.one { // without a pool, whose cost would show at a few KiB
		r, err := k.rate(func() { k.sum ^= k.set.ReadWords(memory) })
		return r.Times(float64(len(memory)) / 1e9), err
	}
	if bound == boundRead {
		reader := place.NewReader(k.set, pool, memory)
		r, err := k.rate(func() { reader.Read() })
		return r.Times(float64(len(memory)) / 1e9), err
	}
	var samples []float64
	for _, p := range k.set.Peaks() {
		for p.Kind() == bound && len(samples) < k.o.Repeat {
			samples = append(samples, place.PeakRate(pool, p, k.o.Sample)/1e9)
		}
	}
	if len(samples) == 0 {
		return place.Rate{}, k.ctx.Err()
	}
	return place.NewRate(samples), k.ctx.Err()
}

const boundRead = "read"

// done hands on what was timed.
func (k *kernels) done(x Kernel) {
	if x.Limit.Median > 0 {
		x.Share = x.Rate.Median / x.Limit.Median
	}
	if k.o.Done != nil {
		k.o.Done(x)
	}
}

// table times the kernels of floats on one thread, at the shapes of kerneltest.
func (k *kernels) table() error {
	b := kerneltest.Processor(k.set)
	valid := ""
	for _, t := range kerneltest.Timings(&b) {
		op, shape, _ := strings.Cut(t.Name, "/")
		if op != valid {
			if err := kerneltest.Validate(&b, op); err != nil {
				return fmt.Errorf("not timed, it is wrong: %w", err)
			}
			valid = op
		}
		x := Kernel{Kernel: op, Shape: shape, Threads: 1, Unit: "GB/s", Bound: boundRead}
		work, memory := float64(t.Bytes), t.Bytes
		if t.Flops > 0 {
			x.Unit, x.Bound, work, memory = "GFLOP/s", cpu.PeakF32, float64(t.Flops), 0
		}
		calls, err := k.rate(t.Setup())
		if err != nil {
			return err
		}
		x.Rate = calls.Times(work / 1e9)
		if x.Limit, err = k.limit(k.one, x.Bound, written(memory)); err != nil {
			return err
		}
		k.done(x)
	}
	return nil
}

// written returns memory whose pages are there.
func written(n int) []byte {
	p := make([]byte, n)
	for i := 0; i < n; i += 4096 {
		p[i] = 1
	}
	return p
}

// scheme times one scheme's products on all threads.
func (k *kernels) scheme(name string) error {
	if err := kerneltest.ValidateInteger(kerneltest.IntegerProcessor(k.set), name); err != nil {
		return fmt.Errorf("not timed, it is wrong: %w", err)
	}
	for _, s := range k.o.Shapes {
		if !k.set.Integer(name).Fits(s.K) {
			continue
		}
		if err := k.product(name, s); err != nil {
			return err
		}
	}
	return nil
}

// coldBytes is what the weights of a product with few tokens take together, in
// copies used one after another: more than the caches of most machines.
const coldBytes = 256 << 20

// product times one scheme at one shape. Few tokens are bound by reading weights,
// many by multiplying.
func (k *kernels) product(name string, s Shape) error {
	sc, ok := scheme.ByName(name)
	if !ok {
		return fmt.Errorf("no scheme %q", name)
	}
	p := newProduct(k, sc, s)
	return k.time(name, s, cpu.PeakInt8, p.size, p.weights, p.run)
}

// time measures products of one shape and their limit: reading the weights, size bytes
// a product, or multiplying.
func (k *kernels) time(name string, s Shape, peak string, size int, weights []byte, run func()) error {
	x := Kernel{Kernel: name, Shape: s.String(), Threads: k.o.Threads, Unit: "GFLOP/s", Bound: peak}
	work := 2 * float64(s.T) * float64(s.N) * float64(s.K)
	if s.T <= cpu.FewTokens {
		x.Unit, x.Bound, work = "GB/s", boundRead, float64(size)
	}
	calls, err := k.rate(run)
	if err != nil {
		return err
	}
	x.Rate = calls.Times(work / 1e9)
	if x.Limit, err = k.limit(k.all, x.Bound, weights); err != nil {
		return err
	}
	k.done(x)
	return nil
}

// A product is one shape's memory: as many copies of the weights as are used in
// turns, activations, and output.
type product struct {
	weights []byte
	size    int // of one copy
	next    int
	run     func()
}

func newProduct(k *kernels, sc *scheme.Scheme, s Shape) *product {
	const some = 16 // rows that are made; the others repeat them
	r := rand.New(rand.NewPCG(1, 2))
	row := s.K / sc.Block * sc.BlockBytes
	p := &product{size: s.N * row}
	copies := 1
	if s.T <= cpu.FewTokens {
		copies = max((coldBytes+p.size-1)/p.size, 1)
	}
	rows := kerneltest.RandomRows(r, sc, some, s.K)
	p.weights = make([]byte, copies*p.size)
	for i := 0; i < len(p.weights); i += len(rows) {
		copy(p.weights[i:], rows)
	}
	x := make([]float32, s.T*s.K)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	integer, w := k.set.Integer(sc.Name), p.weights
	var a cpu.Activations
	k.set.Quantize(&a, x, s.K, s.T, s.K, integer.Group())
	c, scratch := make([]float32, s.T*s.N), make([]cpu.IntegerScratch, k.all.Threads())
	const part = 64 // rows of a part
	each := func(worker, i int) {
		integer.MatMul(c, s.N, w, &a, i*part, min(i*part+part, s.N), &scratch[worker])
	}
	p.run = func() {
		w = p.weights[p.next*p.size : (p.next+1)*p.size]
		p.next = (p.next + 1) % copies
		k.all.RunApart((s.N+part-1)/part, each)
	}
	return p
}
