package cpu

import (
	"fmt"
	goruntime "runtime"
	"sync/atomic"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	kernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/cache"
	"github.com/nstf/nstf/runtime/device"
)

// Options are the choices of an [Engine].
type Options struct {
	Threads int    // 0: as many as Go runs at once (GOMAXPROCS)
	Level   string // SIMD level by its name, "": the best this machine runs
	// KV is how keys and values are stored, as [kernels.ParseKVFormats] reads it; "": f16,
	// or f32 where Exact is set.
	KV string
	// Exact asks for float32 throughout: activations, keys and values.
	Exact bool
	// Walk, with Exact, takes texts in long passes, for each of which weights are laid out
	// once, on a matrix unit where there is one ([kernels.Set.GemmWhole]).
	Walk bool
	// Activations is how they are rounded before they are multiplied: "" for
	// what Exact says, or [ActivationsLlamaCPP], which comes before Exact.
	Activations string
	// Pin keeps each worker thread on a processor of its own; the caller's
	// thread goes where the system puts it. Linux only.
	Pin bool
	// Positions is how many positions all sequences have room for together; 0: as
	// many as the model's context.
	Positions int64
	// Sequences is how many there are at once. Of a recurrent model each may be kept
	// as it was, or forked, a few times besides; 0: one.
	Sequences int
	Places    int // of sequences of any length; 0: what suits Sequences
	// Tiles are the sizes that products are cut into; the zero value: usual ones.
	Tiles kernels.Tiles
	// Policy has steps of attention read some pages alone; nil: they read all.
	Policy *device.Policy
}

// formats returns how the blocks of a model store keys and values.
func (o *Options) formats(blocks int) (kernels.KVFormats, error) {
	switch {
	case o.KV != "":
		f, err := kernels.ParseKVFormats(o.KV)
		if err != nil {
			return nil, err
		}
		return f.For(blocks)
	case o.Exact:
		return kernels.KVFormats{kernels.KVF32}, nil
	}
	return kernels.KVFormats{kernels.KVF16}, nil
}

// poolPages returns the pages of all sequences.
func poolPages(g *graph.Graph, o *Options) int64 {
	n := o.Positions
	if n <= 0 {
		n = g.Context
	}
	return (n-1)/cache.PageSize + 1
}

// placesOf returns how many recurrent states there may be, so many sequences being
// planned: there are forks, and what is kept to go back to. Memory is taken when
// they are used.
func placesOf(o *Options) int {
	if o.Places > 0 {
		return 2 * o.Places
	}
	return 4*max(o.Sequences, 1) + 4
}

// An Engine executes a span of one model on the processor.
type Engine struct {
	g          *graph.Graph
	span       device.Span
	set        *kernels.Set
	tiles      kernels.Tiles
	pool       *kernels.Pool
	kept       kernels.KVFormats
	layers     []cache.Layer
	store      *cache.Store
	remembered *memories

	policy               *device.Policy // nil: attention is dense
	pagesRead, pagesHeld atomic.Int64

	activations string

	table     *matrix
	positions []float32 // [Context][D]
	perLayer  perLayer
	blocks    []block
	settled   int     // block of the span behind which only wanted rows go on
	carry     carrier // keys and values of other stages' blocks
	norm      *norm
	head      *matrix
	memory    device.Memory

	pass  pass             // the batch in progress
	group [maxGroup]target // what reads the input of attention
	s     scratch          // work space of its rows
	part  parts            // functions handed to the pool, bound once
	local []local          // work space of each worker
	parts kernels.Parts    // of products by a matrix unit
	walks bool             // see Options.Walk

	logits []float32 // that tokens were chosen from
	passed passed    // without choices

	gathering *gathering // nil: nothing is gathered
}

var _ device.Stage = (*Engine)(nil)

// New opens the weights of a span of a checked graph. tensor returns a tensor by a
// name of [graph.Graph.Weights]; those of other spans are not asked for. Errors
// name the tensor.
func New(g *graph.Graph, span device.Span, tensor func(name string) formats.Tensor, o Options) (*Engine, error) {
	e, err := newEngine(g, span, &o)
	if err != nil {
		return nil, err
	}
	if o.Policy != nil {
		if err := o.Policy.Check(g); err != nil {
			return nil, err
		}
	}
	e.walks = o.Exact && o.Walk
	if err := e.load(span, tensor, o.Exact); err != nil {
		return nil, err
	}
	e.placeKeys()
	if e.remembered, err = newMemories(g, span, placesOf(&o)); err != nil {
		return nil, err
	}
	if e.store, err = cache.NewStore(e.set, e.layers, poolPages(g, &o)); err != nil {
		return nil, err
	}
	if err := e.start(&o); err != nil {
		return nil, err
	}
	return e, nil
}

// newEngine is an engine without weights and threads.
func newEngine(g *graph.Graph, span device.Span, o *Options) (*Engine, error) {
	set := kernels.Best()
	if o.Level != "" {
		level, err := kernels.ParseLevel(o.Level)
		if err != nil {
			return nil, err
		}
		if set, err = kernels.ForLevel(level); err != nil {
			return nil, err
		}
	}
	kept, err := o.formats(len(g.Blocks))
	if err != nil {
		return nil, err
	}
	if o.Activations != "" && o.Activations != ActivationsLlamaCPP {
		return nil, formats.Unsupportedf("", "", "activations %q", o.Activations)
	}
	tiles := o.Tiles.Or(kernels.TilesFor(0))
	if !tiles.Sound() {
		return nil, formats.Unsupportedf("", "", "tiles %+v", tiles)
	}
	return &Engine{g: g, span: span, set: set, kept: kept, tiles: tiles, activations: o.Activations, policy: o.Policy.LeastOr(device.PolicyLeast)}, nil
}

// start starts the engine's threads.
func (e *Engine) start(o *Options) (err error) {
	threads := o.Threads
	if threads <= 0 {
		threads = goruntime.GOMAXPROCS(0)
	}
	if !o.Pin {
		e.pool = kernels.NewPool(threads)
	} else if e.pool, err = kernels.NewPinnedPool(threads); err != nil {
		return err
	}
	e.local = make([]local, threads)
	for i := range e.local {
		e.local[i].integer.BlockTokens = e.tiles.BlockTokens
	}
	e.part, e.passed.e = e.bindParts(), e
	return nil
}

// Level returns the SIMD level in use.
func (e *Engine) Level() string { return e.set.Level().String() }

// Activations returns what [Options.Activations] said.
func (e *Engine) Activations() string { return e.activations }

// Threads returns the number of threads in use.
func (e *Engine) Threads() int { return e.pool.Threads() }

// Close ends the engine's threads.
func (e *Engine) Close() error {
	e.pool.Close()
	return nil
}

// Span implements device.Stage.
func (e *Engine) Span() device.Span { return e.span }

// NewState implements device.Stage.
func (e *Engine) NewState(capacity int64) (device.State, error) {
	if capacity < 1 {
		return nil, fmt.Errorf("a sequence of %d positions makes no sense", capacity)
	}
	if e.positions != nil && capacity > e.g.Context {
		err := formats.Unsupportedf("", e.g.Embed.Positions, "a context of %d positions: the model has learned %d", capacity, e.g.Context)
		err.Hint = "give a shorter context (--ctx)"
		return nil, err
	}
	if _, err := e.StateBytes(capacity); err != nil {
		return nil, err
	}
	return &state{e.store.New(capacity), e.remembered, -1, e.newPast()}, nil
}

// StateBytes implements device.Stage.
func (e *Engine) StateBytes(positions int64) (int64, error) {
	n, err := cache.Bytes(e.layers, positions)
	if err != nil || positions == 0 {
		return n, err
	}
	if n += e.remembered.bytes() + e.pastBytes(positions); n < 0 {
		return 0, fmt.Errorf("a sequence of %d positions is larger than 2^63 bytes", positions)
	}
	return n, nil
}

// maxRows bounds the work space of a pass; walkRows that of [Options].Walk.
const (
	maxRows  = 512
	walkRows = 2048
)

// MaxRows implements device.Stage.
func (e *Engine) MaxRows() int {
	if e.walks {
		return walkRows
	}
	return maxRows
}

// FewRows implements device.Stage.
func (e *Engine) FewRows() int { return device.FewRows }

// Ahead implements device.Stage.
func (e *Engine) Ahead() int { return 1 }

// Room implements device.Stage.
func (e *Engine) Room() device.Room {
	p := e.store.Pool()
	r := device.Room{PageSize: cache.PageSize, Pages: p.Len(), Free: p.Free(), Onward: e.store.Onward() || e.remembered.size > 0}
	if e.remembered.size > 0 {
		r.Places, r.Idle = e.remembered.places.Len(), e.remembered.places.Free()
	}
	return r
}

// Memory implements device.Stage.
func (e *Engine) Memory() device.Memory {
	m := e.memory
	m.Scratch = e.s.bytes()
	for i := range e.local {
		m.Scratch += e.local[i].bytes()
	}
	m.Scratch += e.parts.Bytes() + int64(cap(e.pass.attend.partials))*4 + int64(e.pass.linear.acts[0].Bytes()+e.pass.linear.acts[1].Bytes()) + int64(cap(e.pass.peer.rounded))*4 + e.pass.formed.bytes()
	return m
}

// headRows computes the logits of normalised rows h[T][D], which were gathered before.
func (e *Engine) headRows(t int, h, dst []float32) {
	e.multiplied(t, h, []target{{e.head, dst}})
	if c := e.g.Head.Softcap; c != 0 {
		e.pass.rowWork = rowWork{dst: dst, width: e.head.n, softcap: c}
		e.eachRow(t, e.part.softcap)
	}
}

// embed looks up the rows' tokens.
func (e *Engine) embed(dst []float32) {
	p, d := &e.pass, int(e.g.Width)
	for r, id := range p.tokens {
		x := dst[r*d : (r+1)*d]
		e.table.rows(x, int(id))
		if e.g.Embed.Scale != 1 {
			e.set.Scale(x, e.g.Embed.Scale)
		}
		if e.positions != nil {
			at := int(p.positions[r]) * d
			e.set.Add(x, e.positions[at:at+d])
		}
	}
}
