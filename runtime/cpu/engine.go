package cpu

import (
	"errors"
	"fmt"
	goruntime "runtime"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	kernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/cache"
	"github.com/nstf/nstf/runtime/device"
)

// Options are the choices of an [Engine].
type Options struct {
	Threads int         // 0: as many as Go runs at once (GOMAXPROCS)
	Level   string      // SIMD level by its name, "": the best this machine runs
	Hook    device.Hook // sees the input of every linear; nil: none
	// KV is how keys and values are stored: f32, f16 or q8; "": f16, or f32
	// where Exact is set.
	KV string
	// Exact asks for float32 throughout: activations, keys and values.
	Exact bool
	// Activations is how they are rounded before they are multiplied: "" for
	// what Exact says, or [ActivationsLlamaCPP], which comes before Exact.
	Activations string
	// Pin keeps each worker thread on a processor of its own; the caller's
	// thread goes where the system puts it. Linux only.
	Pin bool
	// Tiles are the sizes that products are cut into; the zero value: usual ones.
	Tiles kernels.Tiles
}

// format returns how keys and values are stored.
func (o *Options) format() (kernels.KVFormat, error) {
	switch {
	case o.KV != "":
		return kernels.ParseKVFormat(o.KV)
	case o.Exact:
		return kernels.KVF32, nil
	}
	return kernels.KVF16, nil
}

// An Engine executes one model on the processor.
type Engine struct {
	g      *model.Graph
	set    *kernels.Set
	tiles  kernels.Tiles
	pool   *kernels.Pool
	hook   device.Hook
	layers []cache.Layer
	format kernels.KVFormat // of the caches

	activations string

	table, positions *matrix
	blocks           []block
	norm             *norm
	head             *matrix
	memory           device.Memory

	pass  pass    // the batch in progress
	s     scratch // work space of its rows
	part  parts   // functions handed to the pool, bound once
	local []local // work space of each worker
}

var _ device.Backend = (*Engine)(nil)

// New opens the weights of a checked graph. tensor returns a tensor by a name
// of [model.Graph.Weights]. Errors name the tensor.
func New(g *model.Graph, tensor func(name string) formats.Tensor, o Options) (*Engine, error) {
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
	threads := o.Threads
	if threads <= 0 {
		threads = goruntime.GOMAXPROCS(0)
	}
	format, err := o.format()
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
	e := &Engine{g: g, set: set, tiles: tiles, hook: o.Hook, format: format, activations: o.Activations}
	if err := e.load(tensor, o.Exact); err != nil {
		return nil, err
	}
	for i := range g.Blocks {
		a := &g.Blocks[i].Attn
		e.layers = append(e.layers, cache.Layer{KVHeads: int(a.KVHeads), HeadDim: int(a.HeadDim)})
	}
	if !o.Pin {
		e.pool = kernels.NewPool(threads)
	} else if e.pool, err = kernels.NewPinnedPool(threads); err != nil {
		return nil, err
	}
	e.local = make([]local, threads)
	for i := range e.local {
		e.local[i].integer.BlockTokens = tiles.BlockTokens
	}
	e.part = e.bindParts()
	return e, nil
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

// NewCache implements device.Backend.
func (e *Engine) NewCache(capacity int64) (device.Cache, error) {
	if e.positions != nil && capacity > int64(e.positions.n) {
		err := formats.Unsupportedf("", e.g.Embed.Positions, "a context of %d positions: the model has learned %d", capacity, e.positions.n)
		err.Hint = "give a shorter context (--ctx)"
		return nil, err
	}
	c, err := cache.New(e.set, e.format, e.layers, capacity)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// CacheBytes implements device.Backend.
func (e *Engine) CacheBytes(positions int64) (int64, error) {
	return cache.Bytes(e.format, e.layers, positions)
}

// maxRows bounds the work space of a pass.
const maxRows = 512

// MaxRows implements device.Backend.
func (e *Engine) MaxRows() int { return maxRows }

// Memory implements device.Backend.
func (e *Engine) Memory() device.Memory {
	m := e.memory
	m.Scratch = e.s.bytes()
	for i := range e.local {
		m.Scratch += e.local[i].bytes()
	}
	m.Scratch += int64(cap(e.pass.attend.partials))*4 + int64(e.pass.linear.acts[0].Bytes()+e.pass.linear.acts[1].Bytes()) + int64(cap(e.pass.peer.rounded))*4 + e.pass.formed.bytes()
	return m
}

// Forward implements device.Backend.
func (e *Engine) Forward(b *device.Batch) error {
	if len(b.Segments) == 0 || b.Rows() == 0 {
		return errors.New("cpu: a batch without rows")
	}
	for i := range b.Segments {
		s := &b.Segments[i]
		kv, ok := s.Cache.(*cache.KV)
		if !ok {
			return fmt.Errorf("cpu: the cache of segment %d is a %T", i, s.Cache)
		}
		kv.Grow(int64(len(s.Tokens)))
	}
	e.begin(b)
	e.embed()
	for i := range e.blocks {
		e.runBlock(i)
	}
	for i := range e.pass.segments {
		s := &e.pass.segments[i]
		s.kv.Advance(int64(s.rows))
	}
	return nil
}

// Logits implements device.Backend.
func (e *Engine) Logits(lo, hi int, dst []float32) error {
	t, d := hi-lo, int(e.g.Width)
	if lo < e.pass.from || hi > e.pass.rows || t < 1 || len(dst) != t*e.head.n {
		panic(fmt.Sprintf("cpu: logits of rows %d to %d into %d numbers", lo, hi, len(dst)))
	}
	h := e.s.h[:t*d]
	e.normRows(h, e.s.x[lo*d:hi*d], e.norm)
	e.headRows(t, h, dst)
	return nil
}

// headRows computes the logits of normalised rows h[T][D].
func (e *Engine) headRows(t int, h, dst []float32) {
	e.linear(t, h, noBlock, noExpert, target{e.head, dst})
	if c := e.g.Head.Softcap; c != 0 {
		e.pass.rowWork = rowWork{dst: dst, width: e.head.n, softcap: c}
		e.eachRow(t, e.part.softcap)
	}
}

// embed looks up the rows' tokens.
func (e *Engine) embed() {
	p, d := &e.pass, int(e.g.Width)
	for r, id := range p.tokens {
		x := e.s.x[r*d : (r+1)*d]
		e.table.rows(x, int(id))
		if e.g.Embed.Scale != 1 {
			e.set.Scale(x, e.g.Embed.Scale)
		}
		if e.positions != nil {
			e.positions.rows(e.s.h[:d], int(p.positions[r]))
			e.set.Add(x, e.s.h[:d])
		}
	}
}
