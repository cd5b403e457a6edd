// Package kernelcache compiles units of kernels/hip, several at once, and keeps
// the machine code in a folder, so that a warm start compiles nothing.
//
// In go units and a target, out comes code. An entry is found under the hash of
// all that decides about it: the unit's whole source, the options, the target
// and the compiler's identity. Entries are written whole or not at all; one that
// is damaged counts as absent and is made again. Folders of code that was built
// ahead ([Cache.Build]) are looked at first: their entries do not name a
// compiler, so that a machine without one can use them.
//
// A Cache is not changed by its methods and may be used by several goroutines
// and processes on one folder.
//
// Compatibility: experimental; a folder of another version is not understood
// and is filled again.
package kernelcache

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/nstf/nstf/kernels/hip"
)

// A Compiler makes machine code. driver.Compiler is one.
type Compiler interface {
	Compile(u hip.Unit, t hip.Target) (code []byte, log string, err error)
	Identity() string // differs between any two compilers that may make different code
}

// A Cache is where code comes from.
type Cache struct {
	Compiler Compiler // nil: what is not found is an error
	Dir      string   // of at most mostKept bytes; "": nothing is kept
	Ahead    []string // folders that Build filled
	Parallel int      // compilations at once; 0: one per processor
}

// A Result is code for every unit that was asked for, and how it was had.
type Result struct {
	Code     map[hip.Unit][]byte
	Compiled int     // units that were compiled now
	Loaded   int     // units that were found
	Log      string  // what the compiler said about units that compiled
	Unsaved  []error // why compiled code could not be kept: the next start compiles again
}

// ErrNoCompiler is why a unit that no folder holds cannot be had.
var ErrNoCompiler = errors.New("there is no compiler, and no folder holds its code")

// Get returns code for all units, compiling what is not found. step, which may
// be nil, is told before the first compilation, and after each, how many of the
// units to be compiled are done; a warm start does not call it. The first error
// ends everything.
func (c *Cache) Get(ctx context.Context, t hip.Target, units []hip.Unit, step func(done, total int64)) (*Result, error) {
	r := &Result{Code: make(map[hip.Unit][]byte, len(units))}
	var missing []hip.Unit
	for _, u := range units {
		if _, ok := r.Code[u]; ok {
			continue
		}
		code := c.find(u, t)
		r.Code[u] = code
		if code == nil {
			missing = append(missing, u)
		} else {
			r.Loaded++
		}
	}
	if len(missing) == 0 {
		return r, nil
	}
	if c.Compiler == nil {
		return nil, fmt.Errorf("%s with %q for %s: %w", missing[0].File, missing[0].Defines, t.Arch, ErrNoCompiler)
	}
	err := c.compile(ctx, t, missing, step, func(u hip.Unit, code []byte) error {
		r.Code[u] = code
		r.Compiled++
		if c.Dir == "" {
			return nil
		}
		e := entry{unit: u, target: t, compiler: c.Compiler.Identity()}
		if err := e.write(c.Dir, code); err != nil {
			r.Unsaved = append(r.Unsaved, err)
		}
		return nil
	}, &r.Log)
	if c.Dir != "" {
		_ = prune(c.Dir, mostKept) // a folder that is too large is as good
	}
	return r, err
}

// Build compiles units into a folder for machines that have no compiler. What
// the folder holds already is left as it is.
func (c *Cache) Build(ctx context.Context, t hip.Target, units []hip.Unit, dir string, step func(done, total int64)) (compiled int, err error) {
	var missing []hip.Unit
	seen := map[hip.Unit]bool{}
	for _, u := range units {
		e := entry{unit: u, target: t}
		if !seen[u] && e.read(dir) == nil {
			missing = append(missing, u)
		}
		seen[u] = true
	}
	if len(missing) == 0 {
		return 0, nil
	}
	if c.Compiler == nil {
		return 0, fmt.Errorf("%s for %s: %w", missing[0].File, t.Arch, ErrNoCompiler)
	}
	var log string
	err = c.compile(ctx, t, missing, step, func(u hip.Unit, code []byte) error {
		compiled++
		e := entry{unit: u, target: t}
		return e.write(dir, code)
	}, &log)
	return compiled, err
}

// find returns a unit's code from the folders, nil where none has it.
func (c *Cache) find(u hip.Unit, t hip.Target) []byte {
	for _, dir := range c.Ahead {
		e := entry{unit: u, target: t}
		if code := e.read(dir); code != nil {
			return code
		}
	}
	if c.Dir == "" || c.Compiler == nil {
		return nil
	}
	e := entry{unit: u, target: t, compiler: c.Compiler.Identity()}
	return e.read(c.Dir)
}

// compile compiles units, several at once, and hands each to done, one at a time.
func (c *Cache) compile(ctx context.Context, t hip.Target, units []hip.Unit, step func(done, total int64), done func(hip.Unit, []byte) error, log *string) error {
	if step == nil {
		step = func(int64, int64) {}
	}
	total := int64(len(units))
	step(0, total)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(c.parallel())
	var mu sync.Mutex
	var finished atomic.Int64
	for _, u := range units {
		g.Go(func() error {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			code, said, err := c.Compiler.Compile(u, t)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if said != "" {
				*log += fmt.Sprintf("%s %s:\n%s\n", u.File, u.Defines, said)
			}
			err = done(u, code)
			step(finished.Add(1), total)
			return err
		})
	}
	return g.Wait()
}

func (c *Cache) parallel() int {
	if c.Parallel > 0 {
		return c.Parallel
	}
	return goruntime.GOMAXPROCS(0)
}
