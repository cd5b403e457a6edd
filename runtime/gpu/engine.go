package gpu

import (
	"errors"
	"fmt"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// Options are the choices of an [Engine].
type Options struct {
	API       hip.API
	Ordinal   int      // of several devices
	Libraries []string // folders where the driver's libraries are looked for first
	Kernels   string   // folder that keeps compiled kernels; "": none are kept
	Context   int64    // positions of a sequence; 0: the model's, or what fits
	Rows      int      // tokens of a pass, at most; 0: what suits the memory
	// KV is how keys and values are stored: f32, f16 or q8; "": f16, or f32
	// where Exact is set.
	KV string
	// Exact asks for float32 throughout: activations, keys and values.
	Exact bool
	// Planned is told what will be placed on which device, before it is; nil: nobody.
	Planned func(device string, p *Plan)
	// Progress is told how much of what is done; nil: nobody.
	Progress func(what string, done, total int64)
}

// format returns how keys and values are stored.
func (o *Options) format() (cpu.KVFormat, error) {
	switch {
	case o.KV != "":
		return cpu.ParseKVFormat(o.KV)
	case o.Exact:
		return cpu.KVF32, nil
	}
	return cpu.KVF16, nil
}

// A MissingError says that there is no device, or no library to reach one.
type MissingError struct{ Err error }

// Error implements error.
func (e *MissingError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *MissingError) Unwrap() error { return e.Err }

// An Engine executes one model on one GPU.
type Engine struct {
	g       *model.Graph
	shape   shape
	exact   bool
	context int64
	plan    Plan
	m       *machine
	tuning  *hip.Tuning // what was found to be fastest here; nil: nothing was looked for

	buffer driver.Buffer // of the weights and of the work space
	weights
	ropes []rope
	s     scratch
	pool  pool

	growth int // how often addresses have changed since the beginning
	graphs map[graphKey]*driver.Graph
	pass   pass           // the last one
	down   *driver.Pinned // what logits come down to
	words  []byte         // of an upload in the making
}

var _ device.Backend = (*Engine)(nil)

// New places a checked graph's weights on a device. tensor returns a tensor by a
// name of [model.Graph.Weights]. Errors name the tensor.
func New(g *model.Graph, tensor func(name string) formats.Tensor, o Options) (*Engine, error) {
	format, err := o.format()
	if err != nil {
		return nil, err
	}
	e := &Engine{g: g, shape: shapeOf(g), exact: o.Exact, graphs: map[graphKey]*driver.Graph{}}
	count := &layout{tensor: tensor, exact: o.Exact}
	counted := count.graph(g)
	if count.err != nil {
		return nil, count.err
	}
	e.shape.measure(count, &counted)
	if e.m, err = openMachine(&o); err != nil {
		return nil, err
	}
	e.tuning = e.m.loadTuning()
	if err := e.open(tensor, &o, format, count.arena.used); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// open places everything on the opened device.
func (e *Engine) open(tensor func(name string) formats.Tensor, o *Options, format cpu.KVFormat, size int64) error {
	layers := cacheLayers(e.g, format)
	if err := e.makePlan(o, layers, size); err != nil {
		return err
	}
	if o.Planned != nil {
		o.Planned(e.plan.Device, &e.plan)
	}
	var err error
	if e.buffer, err = e.m.alloc(e.plan.Weights + e.plan.Scratch); err != nil {
		return err
	}
	l := &layout{tensor: tensor, exact: e.exact, arena: arena{base: e.buffer.Address}}
	e.weights = l.graph(e.g)
	e.placeScratch(&l.arena, e.plan.Rows)
	if l.err != nil || l.arena.used > e.buffer.Size {
		return fmt.Errorf("gpu: %d bytes laid out, %d planned (%v)", l.arena.used, e.buffer.Size, l.err)
	}
	e.pool.layers, e.pool.tablePages = layers, int(pagesOf(e.context))
	if err := e.growTable(); err != nil {
		return err
	}
	if err := e.movePool(int(pagesOf(e.context))); err != nil {
		return err
	}
	return e.fill(l, o)
}

// placeScratch lays out the work space of t rows.
func (e *Engine) placeScratch(a *arena, t int) {
	e.placeRopes(a)
	few := min(t, fewRows)
	attend := int64(hip.CounterBytes)
	for i := range e.g.Blocks {
		w := &e.g.Blocks[i].Attn
		op := hip.Attend{Rows: hip.Rows{T: few}, Heads: int(w.Heads), Capacity: int(e.context), Scale: w.Scale, Softcap: w.Softcap,
			KV: hip.KV{Heads: int(w.KVHeads), Dim: int(w.HeadDim)}}
		for op.T = 1; op.T <= few; op.T++ {
			attend = max(attend, op.ScratchBytes(e.m.target), e.tunedScratch(op))
		}
	}
	sample := hip.Sample{Rows: hip.Rows{T: 1}, Vocab: e.shape.vocab}
	e.s.place(&e.shape, t, int(e.context), attend, sample.ScratchBytes(), a)
}

// tunedScratch is what attention divided as it was tuned needs, whatever else its
// key depends on.
func (e *Engine) tunedScratch(op hip.Attend) (most int64) {
	if e.tuning == nil {
		return 0
	}
	for _, s := range e.tuning.Attend {
		op.Shape = &s
		most = max(most, op.ScratchBytes(e.m.target))
	}
	return most
}

// fill copies what stands still to the device and makes the kernels ready.
func (e *Engine) fill(l *layout, o *Options) error {
	for _, b := range []driver.Buffer{
		{Address: e.s.attend, Size: hip.CounterBytes}, {Address: e.s.chooser.scratch, Size: hip.CounterBytes},
		{Address: e.s.chooser.owner, Size: 4 * fewRows},
	} {
		if err := e.m.stream.Fill(b, 0); err != nil {
			return err
		}
	}
	if err := errors.Join(e.sendRopes(), e.sendCounted()); err != nil {
		return err
	}
	ready := make(chan error, 1)
	go func() { ready <- e.m.compile(e.units(), o) }()
	err := e.send(l, o)
	if cerr := <-ready; err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return e.m.stream.Wait()
}

// Context returns the positions of a sequence.
func (e *Engine) Context() int64 { return e.context }

// Plan returns what lies on the device.
func (e *Engine) Plan() Plan { return e.plan }

// Close gives back everything on the device.
func (e *Engine) Close() error { return e.m.close() }

// MaxRows implements device.Backend.
func (e *Engine) MaxRows() int { return e.plan.Rows }

// Memory implements device.Backend.
func (e *Engine) Memory() device.Memory {
	return device.Memory{Resident: e.plan.Weights, Scratch: e.plan.Scratch}
}
