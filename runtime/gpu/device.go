package gpu

import (
	"fmt"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// A Device is a GPU that is opened once for stages that come and go: kernels that were
// made ready for one are ready for the next, hidden states in [Rows] stay where they
// are, and memory is counted together. It serves one goroutine at a time.
//
// What is opened on a Device is closed before it.
type Device struct {
	m    *machine
	open int // stages, rows and searchers
}

// Open finds the device that the options name. Of them those that name the device, and
// the folders, count. A [*MissingError] says that there is none.
func Open(o Options) (*Device, error) {
	m, err := openMachine(&o)
	if err != nil {
		return nil, err
	}
	m.keep = true
	return &Device{m: m}, nil
}

// An InUseError says that a device was closed before what was opened on it. All of
// that is gone.
type InUseError struct{ Open int }

// Error implements error.
func (e *InUseError) Error() string {
	return fmt.Sprintf("gpu: a device was closed before %d of what was opened on it", e.Open)
}

// Close gives the device back, and everything on it.
func (d *Device) Close() error {
	err := d.m.close()
	if err == nil && d.open > 0 {
		err = &InUseError{d.open}
	}
	return err
}

// String names the device: cuda:0, NVIDIA H200.
func (d *Device) String() string { return d.m.String() }

// Worthwhile reports whether the device is likely to be faster than the processor
// beside it: graphics of few units within that are not.
func (d *Device) Worthwhile() bool { return d.m.worthwhile() }

// String names the machine's device.
func (m *machine) String() string {
	return fmt.Sprintf("%v, %s", m.device, m.device.Properties().Name)
}

func (m *machine) worthwhile() bool {
	const few = 16 // a unit does what one or two cores do
	p := m.device.Properties()
	return !p.Integrated || p.Units >= few
}

// Memory returns the bytes that may be placed yet, the host's among them that the device
// maps: those that are free but for what the runtime is left.
func (d *Device) Memory() (free int64, err error) {
	free, _, err = d.m.device.Memory()
	shared, _ := d.m.device.Shared()
	return max(free+shared-spare, 0), err
}

// Kept returns the bytes that stages leave behind for the next, which count among what
// each needs.
func (d *Device) Kept() int64 {
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	return int64(len(d.m.idle)) * chunkBytes
}

// Used returns the bytes that are placed on the device now, and the most that were
// since it was opened.
func (d *Device) Used() (now, most int64) { return d.m.used.Load(), d.m.most.Load() }

// New is [New] on an opened device.
func (d *Device) New(g *graph.Graph, span device.Span, tensor func(name string) formats.Tensor, o Options) (*Engine, error) {
	e, err := newEngine(g, span, tensor, &o)
	if err != nil {
		return nil, err
	}
	e.m, e.on = d.m, d
	d.open++
	if err := e.place(tensor, &o); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// Need returns the bytes that New places for a span, of weights, work space and states,
// whatever is free now.
func (d *Device) Need(g *graph.Graph, span device.Span, tensor func(name string) formats.Tensor, o Options) (int64, error) {
	p, err := d.Plan(g, span, tensor, o)
	return p.sum() + LoadingBytes, err
}

// Rows are hidden states [T][D] on a device.
type Rows struct {
	d      *Device
	buffer driver.Buffer
	width  int
}

var _ device.Rows = (*Rows)(nil)

// NewRows returns room for n hidden states of a width. driver.ErrMemory is why it fails
// where there is none.
func (d *Device) NewRows(n, width int) (*Rows, error) {
	b, err := d.m.alloc(4 * int64(n) * int64(width))
	if err != nil {
		return nil, err
	}
	d.open++
	return &Rows{d, b, width}, nil
}

// Slice implements device.Rows.
func (r *Rows) Slice(lo, hi int) device.Hidden {
	r.part(lo, hi-lo)
	return &hidden{r.d.m, at(r.buffer.Address, lo, r.width), hi - lo, r.width}
}

func (r *Rows) part(lo, n int) driver.Buffer {
	return r.buffer.At(4*int64(lo)*int64(r.width), 4*int64(n)*int64(r.width))
}

// Store implements device.Rows.
func (r *Rows) Store(lo, n int, h device.Hidden) error { return r.d.m.receive(r.part(lo, n), h) }

// Release implements device.Rows.
func (r *Rows) Release() error {
	if r.buffer.Size == 0 {
		return nil
	}
	b := r.buffer
	r.buffer = driver.Buffer{}
	r.d.open--
	return r.d.m.free(b)
}

// hidden is hidden states on a device.
type hidden struct {
	m           *machine
	at          hip.Address
	rows, width int
}

// Read implements device.Hidden.
func (h *hidden) Read(dst []float32) error {
	return h.m.download(dst[:h.rows*h.width], h.at)
}

// receive brings hidden states to where others lie or shall lie: by the device itself
// from its own memory, by way of the host from another's.
func (m *machine) receive(to driver.Buffer, h device.Hidden) error {
	if own, ok := h.(*hidden); ok && own.m == m {
		if own.at == to.Address {
			return nil
		}
		return m.stream.Copy(to, driver.Buffer{Address: own.at, Size: to.Size}, to.Size)
	}
	x, ok := h.(device.Host)
	if !ok {
		x = make([]float32, to.Size/4)
		if err := h.Read(x); err != nil {
			return err
		}
	}
	raw, ok := tensor.Float32Bytes(x[:to.Size/4])
	if !ok {
		raw = bytesOf(nil, x[:to.Size/4])
	}
	return m.stream.Upload(to, raw)
}
