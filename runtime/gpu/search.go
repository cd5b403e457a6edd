package gpu

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/kernels/ops"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// A TrellisSearcher finds trellis codes on a GPU, the same bits as the processor's. It
// serves one goroutine at a time; others wait.
type TrellisSearcher struct {
	m       *machine
	on      *Device // nil: the machine is the searcher's own
	mu      sync.Mutex
	buffers map[string]driver.Buffer
}

// NewTrellisSearcher opens a device. Of the options only those that name the device and
// the folders count. A [*MissingError] says that there is none.
func NewTrellisSearcher(o Options) (*TrellisSearcher, error) {
	m, err := openMachine(&o)
	if err != nil {
		return nil, err
	}
	return &TrellisSearcher{m: m, buffers: map[string]driver.Buffer{}}, nil
}

// NewSearcher is [NewTrellisSearcher] on an opened device.
func (d *Device) NewSearcher() *TrellisSearcher {
	d.open++
	return &TrellisSearcher{m: d.m, on: d, buffers: map[string]driver.Buffer{}}
}

// Close gives the device back; of one that is shared, what is the searcher's.
func (s *TrellisSearcher) Close() error {
	if s.on == nil {
		return s.m.close()
	}
	var errs []error
	for name, b := range s.buffers {
		errs = append(errs, s.m.free(b))
		delete(s.buffers, name)
	}
	s.on.open--
	return errors.Join(errs...)
}

// String names the device: cuda:0, NVIDIA H200.
func (s *TrellisSearcher) String() string { return s.m.String() }

// Worthwhile reports whether the device is likely to be faster than the processor
// beside it.
func (s *TrellisSearcher) Worthwhile() bool { return s.m.worthwhile() }

// trellisWeights is how many weights are searched in one go: 256 MiB on the device.
const trellisWeights = 1 << 26

// Search carries a job out. After an error the codes mean nothing; after one that says
// that the device is lost, no other call succeeds.
func (s *TrellisSearcher) Search(ctx context.Context, j *ops.TrellisJob) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.search(ctx, j)
	if errors.Is(err, driver.ErrMemory) {
		err = &TrellisMemoryError{err}
	}
	return err
}

func (s *TrellisSearcher) search(ctx context.Context, j *ops.TrellisJob) error {
	most := max(trellisWeights/(scheme.TCQTile*j.K), 1) // strips
	for first, n := 0, j.N/scheme.TCQTile; first < n; first += most {
		t := trellisRun{s: s, TrellisJob: *j, strips: min(most, n-first)}
		t.W = j.W[first*scheme.TCQTile*j.K:][:t.strips*scheme.TCQTile*j.K]
		t.Units = j.Units[first : first+t.strips]
		stride := len(j.Codes) / n
		t.Codes = j.Codes[first*stride : (first+t.strips)*stride]
		if err := t.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// buffer returns memory of at least n bytes, which others of that name may have used.
func (s *TrellisSearcher) buffer(name string, n int64) (driver.Buffer, error) {
	b := s.buffers[name]
	if b.Size >= n {
		return b, nil
	}
	if b.Size > 0 {
		delete(s.buffers, name)
		if err := s.m.free(b); err != nil {
			return b, err
		}
	}
	b, err := s.m.alloc(n)
	if err == nil {
		s.buffers[name] = b
	}
	return b, err
}

// put uploads numbers to the buffer of a name.
func (s *TrellisSearcher) put(name string, x []float32) (hip.Address, error) {
	b, err := s.buffer(name, int64(4*max(len(x), 1)))
	if err != nil {
		return 0, err
	}
	p, ok := tensor.Float32Bytes(x)
	if !ok {
		p, _ = binary.Append(nil, binary.LittleEndian, x)
	}
	return b.Address, s.m.stream.Upload(b, p)
}

// A trellisRun is some strips of a job.
type trellisRun struct {
	ops.TrellisJob
	s       *TrellisSearcher
	strips  int
	matrix  hip.TrellisMatrix
	search  hip.TrellisSearch
	codes   driver.Buffer
	scratch driver.Buffer
}

const trellisPanel = 128 // columns

func (t *trellisRun) run(ctx context.Context) error {
	if err := t.place(); err != nil {
		return err
	}
	for p := (t.K - 1) / trellisPanel; p >= 0; p-- {
		if err := ctx.Err(); err != nil {
			return errors.Join(err, t.s.m.stream.Wait())
		}
		if err := t.panel(p); err != nil {
			return err
		}
	}
	return t.s.m.stream.Download(t.Codes, t.codes)
}

// place brings the weights to the device, and finds room for the rest.
func (t *trellisRun) place() (err error) {
	s := t.s
	get := func(name string, n int64) (b driver.Buffer) {
		if err == nil {
			b, err = s.buffer(name, n)
		}
		return b
	}
	t.matrix = hip.TrellisMatrix{Bits: t.Bits, Codebook: t.Codebook, N: t.strips * scheme.TCQTile, K: t.K}
	t.codes = get("codes", int64(len(t.Codes)))
	t.matrix.Codes = t.codes.Address
	t.matrix.Z = get("z", int64(t.strips*scheme.TCQWeights*4)).Address
	if t.Panel != nil {
		t.matrix.Owed = get("owed", t.matrix.OwedBytes()).Address
	}
	if err == nil {
		err = t.blocks()
	}
	if err == nil {
		t.matrix.W, err = s.put("w", t.W)
	}
	if err != nil {
		return err
	}
	units := make([]float32, t.strips)
	for i, u := range t.Units {
		if units[i] = u; u == 0 {
			units[i] = 1 // its weights are zeros, and its codes are not used
		}
	}
	t.matrix.Units, err = s.put("units", units)
	return err
}

// blocks finds work space for as many blocks as the device searches with at once, or
// for half of them, or ...
func (t *trellisRun) blocks() error {
	t.search = t.matrix.Search(0)
	t.search.Deviation, t.search.Seam, t.search.Blocks = t.Deviation, t.Seam, 1
	c := t.search.Calls(t.s.m.target)[0]
	f, err := t.s.m.function(&c)
	if err != nil {
		return err
	}
	each, err := f.Resident(int(c.Block[0]), 0)
	if err != nil {
		return err
	}
	for t.search.Blocks = min(t.strips, max(each, 1)*t.s.m.target.Units); ; t.search.Blocks = (t.search.Blocks + 1) / 2 {
		t.scratch, err = t.s.buffer("scratch", t.search.ScratchBytes())
		if err == nil || !errors.Is(err, driver.ErrMemory) || t.search.Blocks == 1 {
			t.search.Scratch = t.scratch.Address
			return err
		}
	}
}

// panel finds the codes of up to 8 tiles of each strip.
func (t *trellisRun) panel(p int) error {
	to := min((p+1)*trellisPanel, t.K)
	a := hip.TrellisPanel{To: to, Width: to - p*trellisPanel}
	var calls []hip.Call
	if t.Panel != nil {
		behind, within := t.Panel(p)
		var err error
		if a.Behind, err = t.s.put("behind", behind); err != nil {
			return err
		}
		if a.Within, err = t.s.put("within", within); err != nil {
			return err
		}
		calls = append(calls, t.matrix.Owe(a))
	}
	for j := to/scheme.TCQTile - 1; j >= p*trellisPanel/scheme.TCQTile; j-- {
		search := t.search
		search.Codes = t.matrix.Search(j).Codes
		calls = append(append(append(calls, t.matrix.Aim(a, j)), search.Calls(t.s.m.target)...), t.matrix.Miss(j))
	}
	if err := t.s.m.launch(calls); err != nil {
		return err
	}
	return t.s.m.stream.Wait()
}

// A TrellisMemoryError says that a device has no room for a search.
type TrellisMemoryError struct{ Err error }

// Error implements error.
func (e *TrellisMemoryError) Error() string {
	return "no room for the search for trellis codes: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *TrellisMemoryError) Unwrap() error { return e.Err }

// Hint says what would help.
func (e *TrellisMemoryError) Hint() string {
	return "close other programs that use the GPU, or search on the processor by --device cpu; --resume goes on with what is finished"
}
