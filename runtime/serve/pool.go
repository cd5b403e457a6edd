package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/runtime/schedule"
)

// A Source is a model that can be loaded.
type Source struct {
	Info Info // as far as it is known before; Bytes are what it counts for in memory
	// Load loads it, and returns what unloads it.
	Load func() (m *Model, unload func(), err error)
}

// PoolOptions are the limits of a [Pool].
type PoolOptions struct {
	// Memory is how many bytes of weights may be loaded at once; 0: any. A model that has
	// more is loaded alone.
	Memory int64
	// Idle is how long a model stays loaded that nobody asks for; 0: for good, as far as
	// there is memory.
	Idle time.Duration
	// Log is told what could not be loaded; nil: nobody is.
	Log *slog.Logger
}

// A Pool is models that are loaded when they are asked for: [Models]. Where there is no
// room, those are unloaded that nobody uses, the least recently used before others; where
// all are in use, who asks waits. A request that names none gets the first one, and so does
// one that names any where there is one alone: programs come with names of their own.
type Pool struct {
	o PoolOptions

	mu      sync.Mutex
	changed chan struct{} // closed when there may be room, or a model has been loaded
	all     []*pooled
	closed  bool
}

// A pooled is a model of a pool.
type pooled struct {
	Source
	m       *Model // nil: it is not loaded
	unload  func()
	loading bool
	err     error // of the last try to load it; who waited for that is told
	tries   int
	users   int
	used    time.Time
	timer   *time.Timer
	keep    time.Duration // said by a request; 0: PoolOptions.Idle
}

// ErrPoolClosed says that no more models are loaded.
var ErrPoolClosed = errors.New("the server is about to end")

// NewPool returns a pool of sources, whose names differ. Nothing is loaded yet.
func NewPool(sources []Source, o PoolOptions) *Pool {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Pool{o: o, changed: make(chan struct{})}
	for _, s := range sources {
		p.all = append(p.all, &pooled{Source: s})
	}
	return p
}

// List implements [Models].
func (p *Pool) List() []Info {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Info
	for _, e := range p.all {
		i := e.Info
		if e.m != nil {
			i = e.m.Info
			i.Loaded = true
			if e.timer != nil {
				i.Expires = e.used.Add(e.stays(p.o.Idle))
			}
		}
		all = append(all, i)
	}
	return all
}

// find returns the model of a name, nil where there is none.
func (p *Pool) find(name string) *pooled {
	for _, e := range p.all {
		if name == "" || e.Info.Name == name || slices.Contains(e.Info.Aliases, name) {
			return e
		}
	}
	if len(p.all) == 1 {
		return p.all[0]
	}
	return nil
}

// Get implements [Models].
func (p *Pool) Get(ctx context.Context, name string) (*Model, func(), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.find(name)
	if e == nil {
		return nil, nil, ErrNoModel
	}
	for tries := -1; ; {
		switch {
		case p.closed:
			return nil, nil, ErrPoolClosed
		case e.m != nil:
			e.users++
			if e.timer != nil {
				e.timer.Stop()
				e.timer = nil
			}
			return e.m, sync.OnceFunc(func() { p.release(e) }), nil
		case tries >= 0 && e.tries > tries && e.err != nil:
			return nil, nil, e.err
		case !e.loading && p.room(e):
			e.loading = true
			go p.load(e)
		}
		tries = e.tries
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		p.mu.Lock()
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
	}
}

// room makes room for a model, by unloading others, and reports whether there is some.
// The lock is held.
func (p *Pool) room(e *pooled) bool {
	for {
		taken := int64(0)
		for _, o := range p.all {
			if o.m != nil || o.loading {
				taken += o.Info.Bytes
			}
		}
		if p.o.Memory == 0 || taken == 0 || taken+e.Info.Bytes <= p.o.Memory {
			return true
		}
		if !p.dropOldest() {
			return false
		}
	}
}

// dropOldest unloads the model that nobody uses for the longest time, and reports whether
// there was one. The lock is held.
func (p *Pool) dropOldest() bool {
	var oldest *pooled
	for _, e := range p.all {
		if e.m != nil && e.users == 0 && (oldest == nil || e.used.Before(oldest.used)) {
			oldest = e
		}
	}
	if oldest != nil {
		p.drop(oldest)
	}
	return oldest != nil
}

// drop unloads a model that nobody uses. The lock is held.
func (p *Pool) drop(e *pooled) {
	if e.timer != nil {
		e.timer.Stop()
	}
	e.unload()
	e.m, e.unload, e.timer, e.keep = nil, nil, nil, 0
	p.wake()
}

// wake tells those who wait to look again. The lock is held.
func (p *Pool) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// load loads a model. Where that fails for anything but a wrong file, models that nobody
// uses make room, one after the other.
func (p *Pool) load(e *pooled) {
	for {
		m, unload, err := guarded(e.Load)
		p.mu.Lock()
		var wrong *formats.FormatError
		if err != nil && !errors.As(err, &wrong) && !p.closed && p.dropOldest() {
			p.mu.Unlock()
			continue
		}
		e.loading, e.err = false, err
		e.tries++
		if err == nil && p.closed {
			unload()
		} else if err == nil {
			m.Aliases = e.Info.Aliases
			e.m, e.unload, e.used = m, unload, time.Now()
		} else {
			p.o.Log.Error("not loaded", "model", e.Info.Name, "error", err.Error())
		}
		p.wake()
		p.mu.Unlock()
		return
	}
}

// guarded turns a panic of load into an error: one file is not to end a server.
func guarded(load func() (*Model, func(), error)) (m *Model, unload func(), err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("loading failed: %v", r)
		}
	}()
	return load()
}

// stays returns how long a model stays loaded; less than 0: for good.
func (e *pooled) stays(idle time.Duration) time.Duration {
	if e.keep != 0 {
		return e.keep
	}
	if idle == 0 {
		return -1
	}
	return idle
}

// release takes back a model that somebody used.
func (p *Pool) release(e *pooled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.users--
	e.used = time.Now()
	if e.users > 0 {
		return
	}
	if p.closed {
		p.drop(e)
		return
	}
	if d := e.stays(p.o.Idle); d >= 0 {
		var timer *time.Timer
		timer = time.AfterFunc(d, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if e.timer == timer && e.m != nil && e.users == 0 {
				p.drop(e)
			}
		})
		e.timer = timer
	}
	p.wake()
}

// Keep says how long a model stays loaded behind its last request, instead of
// PoolOptions.Idle, until it is unloaded; less than 0: for good. Who calls it uses the model.
func (p *Pool) Keep(m *Model, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.all {
		if e.m == m {
			e.keep = max(d, -1)
			if d == 0 {
				e.keep = 1 // a nanosecond: 0 is nothing said
			}
		}
	}
}

// Err implements [Models]: the error of a device that a loaded model was on.
func (p *Pool) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.all {
		if e.m != nil {
			if err := e.m.Scheduler.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Schedulers returns the schedulers of models that are loaded, by name.
func (p *Pool) Schedulers() map[string]*schedule.Scheduler {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]*schedule.Scheduler{}
	for _, e := range p.all {
		if e.m != nil {
			all[e.Info.Name] = e.m.Scheduler
		}
	}
	return all
}

// Close unloads all models; those in use when they are not any more.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, e := range p.all {
		if e.m != nil && e.users == 0 {
			p.drop(e)
		}
	}
	p.wake()
}
