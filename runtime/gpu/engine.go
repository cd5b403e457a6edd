package gpu

import (
	"errors"
	"fmt"
	"sync"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
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
	Root      string   // where Linux's /sys and /proc are; "": "/"
	Kernels   string   // folder that keeps compiled kernels; "": none are kept
	Context   int64    // positions of a sequence; 0: the model's, or what fits
	Sequences int      // that have room for Context positions at once; 0: one
	Positions int64    // of all sequences together, or as many as fit, but Context; 0: what Sequences says
	Places    int      // for sequences, of whatever length; 0: what suits Sequences
	Rows      int      // tokens of a pass, at most; 0: what suits the memory
	Most      int64    // bytes of an opened device that are taken at most, with all that is on it; 0: what is free
	// KV is how keys and values are stored, as [cpu.ParseKVFormats] reads it; "": f16, or
	// f32 where Exact is set.
	KV string
	// Exact asks for float32 throughout: activations, keys and values.
	Exact bool
	// Policy has steps of attention read some pages alone; nil: they read all.
	Policy *device.Policy
	// KVHost is how many bytes of the host's memory keys and values may take that the device has
	// no room for. It wants a Policy, a whole model and one device; 0: none.
	KVHost int64
	// Warm has all kernels that any pass may need be ready when New returns, not those of
	// single tokens and long prompts alone: for servers, where others would wait.
	Warm bool
	// Apart are blocks whose routed experts lie in the processor's memory, and Experts computes
	// them there; it is nil where memory is planned alone. Whose it is closes it.
	Apart   device.Blocks
	Experts device.Experts
	// Pinned are experts of those blocks, ascending, whose weights lie on the device too, and which it
	// computes for rows that are few: see Pins.
	Pinned map[int][]int
	// Streams has the weights of those experts come to the device for rows of prompts, of which
	// all then have the bits that they have where experts lie on the device. Kinds of experts
	// that no kernel reads piece by piece are the processor's for prompts too.
	Streams bool
	team    *member // the engine is one of a Team's; nil: it is alone
	// Planned is told what will be placed on which device, before it is; nil: nobody.
	Planned func(device string, p *Plan)
	// Progress is told how much of what is done; nil: nobody.
	Progress func(what string, done, total int64)
}

// formats returns how the blocks of a model store keys and values.
func (o *Options) formats(blocks int) (cpu.KVFormats, error) {
	switch {
	case o.KV != "":
		f, err := cpu.ParseKVFormats(o.KV)
		if err != nil {
			return nil, err
		}
		return f.For(blocks)
	case o.Exact:
		return cpu.KVFormats{cpu.KVF32}, nil
	}
	return cpu.KVFormats{cpu.KVF16}, nil
}

// A MissingError says that there is no device, or no library to reach one.
type MissingError struct{ Err error }

// Error implements error.
func (e *MissingError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *MissingError) Unwrap() error { return e.Err }

// An Engine executes a span of one model on one GPU.
type Engine struct {
	span       device.Span
	places     int // for states
	g          *graph.Graph
	shape      shape
	apart      device.Blocks
	pinned     map[int][]int // experts of those blocks that lie here too
	exact      bool
	context    int64
	plan       Plan
	m          *machine
	on         *Device // nil: the machine is the engine's own
	team       *member // nil: the engine computes passes alone
	closed     bool
	counted    int64 // bytes of weights
	kvHost     int64 // see Options
	hostRoom   hostRoom
	newestRead int64       // pages that steps read in any case behind the one that they write
	tuning     *hip.Tuning // what was found to be fastest here; nil: nothing was looked for

	buffer driver.Buffer // of the weights and of the work space
	weights
	ropes  []rope
	s      scratch
	pool   pool
	kept   memories
	follow following

	experts   device.Experts // of blocks that have them apart; nil: none have
	handed    handed
	staging   staging
	graphs    map[graphKey][]stretch
	flows     bool              // prompts are launched as they are listed, if they are known
	known     map[graphKey]bool // lists that were launched before
	tandem    *tandem           // of a team that computes long prompts in two parts; nil: it does not
	pass      *pass             // the last one
	gathering *gathering        // nil: nothing is gathered
	prepared  []prepared        // whose next rows the device knows
	words     []byte            // of an upload in the making
	rows      []float32         // of a table that stays on the host

	steps   int                     // how often tokens were chosen
	down    *driver.Pinned          // i32 [ring][slots]
	events  [ring + 1]*driver.Event // behind the copies to it; the last: behind the newest pass that chose nothing
	choices [ring]*chosen           // that last came down there
	reading sync.Mutex              // of what came down
}

var _ device.Stage = (*Engine)(nil)

// New places the weights of a span of a checked graph on a device. tensor returns a
// tensor by a name of [graph.Graph.Weights]; those of other spans are not asked
// for. Errors name the tensor.
func New(g *graph.Graph, span device.Span, tensor func(name string) formats.Tensor, o Options) (*Engine, error) {
	e, err := newEngine(g, span, tensor, &o)
	if err != nil {
		return nil, err
	}
	if e.m, err = openMachine(&o); err != nil {
		return nil, err
	}
	if err := e.place(tensor, &o); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// newEngine counts what an engine will hold.
func newEngine(g *graph.Graph, span device.Span, tensor func(name string) formats.Tensor, o *Options) (*Engine, error) {
	if span.Head && g.Vocab >= hip.MostVocab {
		return nil, formats.Unsupportedf("", "graph.vocab", "a vocabulary of %d on a GPU, where tokens are chosen among fewer than %d", g.Vocab, hip.MostVocab)
	}
	if err := checkHosted(g, span, o); err != nil {
		return nil, err
	}
	e := &Engine{g: g, span: span, team: o.team, kvHost: o.KVHost, places: placesOf(o), kept: memoriesOf(g, span, o), shape: shapeOf(g, span, o), apart: o.Apart, pinned: o.Pinned, experts: o.Experts, exact: o.Exact, flows: o.flows(len(g.Blocks)), graphs: map[graphKey][]stretch{}, known: map[graphKey]bool{}}
	count := &layout{exact: o.Exact, streams: o.Streams, pinned: o.Pinned}
	counted, err := count.graph(g, span, o.Apart, tensor)
	if err != nil {
		return nil, err
	}
	e.shape.measure(count, &counted)
	if e.team != nil {
		e.shape.part = counted.head.N
	}
	for i := span.Lo; i < span.Hi && o.Streams && o.Apart == nil; i++ { // whichever will lie apart
		if m := g.Blocks[i].MoE; m != nil {
			count.stream(m, tensor)
		}
	}
	e.counted, e.staging = count.arena.used, count.staging
	e.follow, err = followed(g, span, o.Policy)
	return e, err
}

// place places everything on the opened device.
func (e *Engine) place(tensor func(name string) formats.Tensor, o *Options) error {
	kept, err := o.formats(len(e.g.Blocks))
	if err != nil {
		return err
	}
	if err := e.checkDevice(e.m.device.Properties()); err != nil {
		return err
	}
	e.tuning = e.m.loadTuning()
	e.pool.layers = e.cacheLayers(kept)
	if err := e.makePlan(o, e.counted); err != nil {
		return err
	}
	if err := e.measureLink(); err != nil {
		return err
	}
	if o.Planned != nil {
		o.Planned(e.plan.Device, &e.plan)
	}
	if e.buffer, err = e.m.alloc(e.plan.Weights + e.plan.Scratch); err != nil {
		return err
	}
	l := &layout{exact: e.exact, streams: o.Streams, pinned: e.pinned, arena: arena{base: e.buffer.Address}}
	if e.weights, err = l.graph(e.g, e.span, e.apart, tensor); err != nil {
		return err
	}
	e.placeScratch(&l.arena, e.plan.Rows)
	if l.arena.used > e.buffer.Size {
		return fmt.Errorf("gpu: %d bytes laid out, %d planned", l.arena.used, e.buffer.Size)
	}
	if err := e.makePool(); err != nil {
		return err
	}
	if err := e.makeMemories(); err != nil {
		return err
	}
	if e.down, err = e.m.device.Pinned(4 * int64(ring*e.s.chooser.slots)); err != nil {
		return err
	}
	if err := e.makeHanded(); err != nil {
		return err
	}
	for i := range e.events {
		if e.events[i], err = e.m.device.Event(); err != nil {
			return err
		}
	}
	if err := e.openTandem(); err != nil {
		return err
	}
	return e.fill(l, o)
}

// placeScratch lays out the work space of t rows, and what belongs to sequences
// beside their pages.
func (e *Engine) placeScratch(a *arena, t int) {
	slots := e.places
	e.placeRopes(a, slots)
	e.pool.tablePages = int(pagesOf(e.context))
	if newestBytes(e.pool.layers) > 0 { // two halves, see pool.newest
		e.pool.tablePages *= 2
	}
	e.pool.table = a.ints(slots * e.pool.tablePages)
	e.kept.table = a.ints(slots)
	few := min(t, fewRows)
	attend := int64(hip.CounterBytes)
	for i := e.span.Lo; i < e.span.Hi; i++ {
		op, ok := attends(&e.g.Blocks[i])
		if !ok {
			continue
		}
		op.T, op.Capacity = few, int(e.context)
		attend = max(attend, op.ScratchBytes(e.m.target), e.tunedScratch(op))
		keys, _ := e.g.KeysOf(i)
		prompt := op
		prompt.T, prompt.Prompt, prompt.Exact, prompt.KV.Format = t, true, e.exact, e.follow.kept.Of(keys)
		if e.kvHost > 0 {
			prompt.KV.HostPages = 1 // whatever there will be
		}
		attend = max(attend, prompt.ScratchBytes(e.m.target))
		for _, s := range op.Shapes(e.m.target) { // what is found for one row is used for all that are few
			tried := op
			tried.Shape = &s
			attend = max(attend, tried.ScratchBytes(e.m.target))
		}
	}
	e.follow.place(e, few, t, slots, a)
	e.placeHosted(slots, a)
	e.staging.place(a)
	sample := hip.Sample{Rows: hip.Rows{T: few}, Vocab: e.shape.vocab}
	e.s.place(&e.shape, t, slots, int(e.context), attend, sample.ScratchBytes(), a)
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
		{Address: e.s.chooser.steps, Size: 4}, {Address: e.s.chooser.masks, Size: 4 * int64(e.places*hip.MaskWords(e.shape.vocab))},
	} {
		if err := e.m.stream.Fill(b, 0); err != nil {
			return err
		}
	}
	if err := errors.Join(e.sendRopes(), e.sendCounted(), e.sendPlaces(), e.follow.send(e), e.pool.hosts.send(), e.staging.send(e.m)); err != nil {
		return err
	}
	ready := make(chan error, 1)
	units := e.units
	if o.Warm {
		units = e.everything
	}
	go func() { ready <- e.m.compile(units(), o) }()
	err := e.send(l, o)
	if cerr := <-ready; err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return e.m.stream.Wait()
}

// Kernels returns how many units of kernels were made ready so far.
func (e *Engine) Kernels() int {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	return len(e.m.modules)
}

// Context returns the positions of a sequence.
func (e *Engine) Context() int64 { return e.context }

// Close gives back everything on the device; of one that is shared, what is the
// engine's.
func (e *Engine) Close() error {
	switch {
	case e.on == nil:
		return e.m.close()
	case e.closed:
		return nil
	}
	e.closed = true
	e.on.open--
	errs := []error{e.m.stream.Wait(), e.forget()}
	for _, list := range e.graphs {
		for i := range list {
			errs = append(errs, list[i].graph.Free())
		}
	}
	errs = append(errs, e.tandem.close()...)
	errs = append(errs, e.handed.free(), e.staging.release(), e.pool.hosts.release())
	for _, v := range e.events {
		if v != nil {
			errs = append(errs, v.Free())
		}
	}
	if e.down != nil {
		errs = append(errs, e.down.Free())
	}
	for _, b := range []driver.Buffer{e.buffer, e.pool.buffer, e.kept.buffer} {
		if b.Size > 0 {
			errs = append(errs, e.m.free(b))
		}
	}
	return errors.Join(errs...)
}

// Span implements device.Stage.
func (e *Engine) Span() device.Span { return e.span }

// Ahead implements device.Stage.
func (e *Engine) Ahead() int {
	if e.perLayer.table != nil || e.experts != nil { // the host takes part
		return 1
	}
	if e.kept.floats > 0 { // what is computed ahead could not be taken back
		return 1
	}
	return ahead
}

// MaxRows implements device.Stage.
func (e *Engine) MaxRows() int { return e.plan.Rows }

// FewRows implements device.Stage.
func (e *Engine) FewRows() int {
	few := min(fewRows, e.plan.Rows)
	if e.experts != nil {
		few = min(few, e.experts.FewRows())
	}
	return few
}

// Memory implements device.Stage.
func (e *Engine) Memory() device.Memory {
	return device.Memory{Resident: e.plan.Weights, Scratch: e.plan.Scratch}
}
