package gpu

import (
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// Plan returns what lies on the device.
func (e *Engine) Plan() Plan { return e.plan }

// PlaneBytes returns what the keys and values of a page take in all layers.
func (e *Engine) PlaneBytes() int64 { return planeBytes(e.pool.layers) }

// LoseMoves has a hosting lack the kernel that moves pages, and what would compile it, until it is mended.
func (e *Engine) LoseMoves() (mend func()) {
	h := e.pool.hosts
	bare := &machine{device: e.m.device, stream: e.m.stream, target: e.m.target, modules: map[hip.Unit]*driver.Module{}, functions: map[kernel]*driver.Function{}}
	h.e = &Engine{m: bare, pool: e.pool, follow: e.follow, newestRead: e.newestRead}
	return func() { h.e = e }
}
