package pipeline

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/ops"
	"github.com/nstf/nstf/quantize/fit"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/gpu"
	"github.com/nstf/nstf/runtime/place"
)

var (
	wholeSearch = flag.Bool("whole", false, "search 1 M weights with the full effort: for a GPU, not an emulated one")
	onDevice    = flag.String("device", "", "GPU that searches trellis codes in the tests of that; default: hip where its library loads")
)

// searcher opens the device that the flag names.
func searcher(t *testing.T) *Searcher {
	t.Helper()
	name := *onDevice
	if name == "" {
		name = "hip"
	}
	r, err := place.ParseRequest(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSearcher(exec.Device{Request: r}, nil)
	if _, none := errors.AsType[*gpu.MissingError](err); none && *onDevice == "" {
		t.Skipf("no device: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// normalMatrix returns weights, rows larger and larger, and moments with a few strong directions.
func normalMatrix(n, k int) (w []float32, h []float64) {
	rng := rand.New(rand.NewPCG(11, 5))
	w = make([]float32, n*k)
	for i := range w {
		w[i] = float32(rng.NormFloat64() * (1 + float64(i/k)/float64(n)) * 0.02)
	}
	h = make([]float64, k*k)
	x := make([]float64, k)
	for range 2 * k {
		common := rng.NormFloat64() * 2
		for i := range x {
			x[i] = rng.NormFloat64() + common
		}
		for i, a := range x {
			for j, b := range x {
				h[i*k+j] += a * b / float64(2*k)
			}
		}
	}
	return w, h
}

// sameParts fits w[n][k] on the processor and by a searcher, who has to search it and to find the same.
func sameParts(t *testing.T, q fit.TCQ, s fit.Searcher, w []float32, n, k int) {
	t.Helper()
	q.Searcher = nil
	want, err := q.Fit(context.Background(), w, n, k)
	if err != nil {
		t.Fatal(err)
	}
	counted := &counter{s: s}
	q.Searcher = counted
	got, err := q.Fit(context.Background(), w, n, k)
	if err != nil {
		t.Fatal(err)
	}
	if counted.done != 1 {
		t.Errorf("%d bits: the device searched %d matrices", q.Bits, counted.done)
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("%d bits, feedback %v: part %d differs from the processor's", q.Bits, q.Feedback != nil, i)
		}
	}
}

// TestSearcherSameBytes wants the processor's parts: with feedback over several panels,
// the last of which is short, with a strip of zeros, and without feedback. An emulator
// needs a narrow seam.
func TestSearcherSameBytes(t *testing.T) {
	s := searcher(t)
	n, k, most := 48, 272, scheme.TCQMinBits
	if !testing.Short() {
		n, k, most = 80, 400, scheme.TCQMaxBits
	}
	seam, threads := 2, 2
	if *wholeSearch {
		n, k, seam, threads = 1024, 1040, 128, 16
	}
	w, h := normalMatrix(n, k)
	clear(w[16*k : 32*k])
	for bits := scheme.TCQMinBits; bits <= most; bits++ {
		q := fit.TCQ{TCQ: scheme.TCQ{Bits: bits, Codebook: scheme.TCQCodebookFor(bits), RotateIn: fit.TCQRotation(k), RotateOut: 16, Seed: 3}, Seam: seam, Threads: threads}
		moments := append([]float64(nil), h...)
		fit.RotateMoments(moments, k, q.RotateIn, q.Seed)
		f, err := fit.NewFeedback(moments, k, scheme.TCQTile)
		if err != nil {
			t.Fatal(err)
		}
		for _, q.Feedback = range []*fit.Feedback{f, nil} {
			if q.Feedback == nil && testing.Short() {
				continue
			}
			sameParts(t, q, s, w, n, k)
		}
	}
}

// TestSearcherFarTiles gives the device a strip with many weights beyond all codewords,
// whose errors are answered.
func TestSearcherFarTiles(t *testing.T) {
	s := searcher(t)
	const n, k = 48, 64
	w, h := normalMatrix(n, k)
	for r := 16; r < 24; r++ {
		for c := 0; c < k; c += 16 {
			w[r*k+c] = 1.2
		}
	}
	f, err := fit.NewFeedback(h, k, scheme.TCQTile)
	if err != nil {
		t.Fatal(err)
	}
	seam := 2
	if *wholeSearch {
		seam = 128
	}
	q := fit.TCQ{TCQ: scheme.TCQ{Bits: 6, Codebook: scheme.TCQCodebookFor(6), RotateIn: 1, RotateOut: 1}, Feedback: f, Seam: seam, Threads: 2}
	sameParts(t, q, s, w, n, k)
}

// TestSearcherPrepares has the device search before anything asks it to, each number of
// bits once, and nothing where none is open; the codes behind that are as ever.
func TestSearcherPrepares(t *testing.T) {
	none := &Searcher{}
	none.Prepare(context.Background(), []int{2, 3})()
	if none.ready[2] || none.opened {
		t.Error("what has no device was prepared")
	}
	s := searcher(t)
	begun := func(bits int) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.ready[bits]
	}
	for range 2 {
		wait := s.Prepare(context.Background(), []int{6})
		for !begun(6) {
			time.Sleep(time.Millisecond)
		}
		wait()
	}
	if begun(5) {
		t.Error("5 bits are prepared, and were not asked for")
	}
	const n, k = 48, 16
	w, _ := normalMatrix(n, k)
	q := fit.TCQ{TCQ: scheme.TCQ{Bits: 6, Codebook: scheme.TCQCodebookFor(6), RotateIn: 1, RotateOut: 1}, Seam: 2, Threads: 2}
	sameParts(t, q, s, w, n, k)
}

// A counter counts what a searcher did.
type counter struct {
	s    fit.Searcher
	done int
}

func (c *counter) Search(ctx context.Context, j *ops.TrellisJob) (bool, error) {
	done, err := c.s.Search(ctx, j)
	if done {
		c.done++
	}
	return done, err
}

// A sham is a searcher that spoils codes, and then has searched, cannot, or fails.
type sham struct {
	done bool
	err  error
}

func (s sham) Search(_ context.Context, j *ops.TrellisJob) (bool, error) {
	for i := range j.Codes {
		j.Codes[i] = 0x5a
	}
	return s.done, s.err
}

// TestSearcherCannot wants the processor's codes where nothing else can search, those of
// what can, zeros for a strip of zeros, and an error passed on.
func TestSearcherCannot(t *testing.T) {
	const n, k = 64, 32
	w, _ := normalMatrix(n, k)
	clear(w[:16*k])
	q := fit.TCQ{TCQ: scheme.TCQ{Bits: 6, Codebook: scheme.TCQBytes4, RotateIn: 1, RotateOut: 1}, Seam: 1, Threads: 1}
	want, err := q.Fit(context.Background(), w, n, k)
	if err != nil {
		t.Fatal(err)
	}
	strip := len(want[0]) / (n / 16)
	theirs := append(make([]byte, strip), bytes.Repeat([]byte{0x5a}, len(want[0])-strip)...)
	for done, codes := range map[bool][]byte{false: want[0], true: theirs} {
		q.Searcher = sham{done: done}
		got, err := q.Fit(context.Background(), w, n, k)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got[0], codes) || !bytes.Equal(got[1], want[1]) {
			t.Errorf("searched: %v: other codes or scales", done)
		}
	}
	lost := formats.Errorf("", "", "device lost")
	q.Searcher = sham{err: lost}
	if _, err := q.Fit(context.Background(), w, n, k); !errors.Is(err, lost) {
		t.Errorf("%v, want the searcher's error", err)
	}
}

// BenchmarkSearcher fits large matrices by a device, as quantize does it, with the
// feedback of moments whose factors are made beforehand.
func BenchmarkSearcher(b *testing.B) {
	r, err := place.ParseRequest(*onDevice)
	if err != nil || !r.GPU() {
		b.Skip("no device is named")
	}
	s, err := NewSearcher(exec.Device{Request: r}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for _, size := range [][2]int{{14336, 4096}, {4096, 4096}, {1024, 4096}, {4096, 14336}} {
		n, k := size[0], size[1]
		w := make([]float32, n*k)
		rng := rand.New(rand.NewPCG(12, 5))
		for i := range w {
			w[i] = float32(rng.NormFloat64() * 0.02)
		}
		h, common := make([]float64, k*k), make([]float64, k)
		for i := range common {
			common[i] = rng.NormFloat64() * 0.3
		}
		for i := range k {
			for j := range k {
				h[i*k+j] = math.Exp(-0.05*math.Abs(float64(i-j))) + common[i]*common[j]
			}
		}
		in := fit.NewInput(h, k)
		if _, err := fit.Matrix(context.Background(), "", w[:32*k], 32, k, plan.MustCode("tcq2"), in, fit.Options{}); err != nil {
			b.Fatal(err) // makes the factors
		}
		for _, recipe := range []plan.Code{plan.Trellis(2), plan.Trellis(3), plan.Trellis(4)} {
			if _, err := fit.Matrix(context.Background(), "", w[:512*64], 512, 64, recipe, nil, fit.Options{Searcher: s}); err != nil {
				b.Fatal(err) // compiles the kernels
			}
			b.Run(fmt.Sprintf("%dx%d/%s", n, k, recipe), func(b *testing.B) {
				t := &timer{s: s}
				for b.Loop() {
					if _, err := fit.Matrix(context.Background(), "", w, n, k, recipe, in, fit.Options{Searcher: t}); err != nil {
						b.Fatal(err)
					}
				}
				weights := float64(b.N) * float64(n*k) / 1e6
				b.ReportMetric(b.Elapsed().Seconds()/weights, "s/Mweights")
				b.ReportMetric(t.spent.Seconds()/weights, "search-s/Mweights")
			})
		}
	}
}

// A timer times a searcher.
type timer struct {
	s     fit.Searcher
	spent time.Duration
}

func (t *timer) Search(ctx context.Context, j *ops.TrellisJob) (bool, error) {
	began := time.Now()
	defer func() { t.spent += time.Since(began) }()
	return t.s.Search(ctx, j)
}
