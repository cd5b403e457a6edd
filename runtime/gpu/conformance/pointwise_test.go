package conformance

import (
	"testing"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/kernels/kerneltest"
	"github.com/nstf/nstf/kernels/ops"
)

// pointwise gives the table the operations that need no specialisation.
func pointwise(t *testing.T, m *machine) kerneltest.Backend {
	b := kerneltest.Backend{Name: m.target.Arch, Takes: func(n int) bool { return n == 1 || sampled(t) }, Activate: map[string]func(dst, x []float32){}}
	for _, a := range []ops.Activation{ops.SiLU, ops.GELU, ops.GELUTanh, ops.QuickGELU, ops.ReLU, ops.ReLU2} {
		b.Activate[a.String()] = func(dst, x []float32) {
			if len(x) == 0 {
				return
			}
			in, out := m.put(t, x), m.put(t, x)
			defer in.release()
			defer out.release()
			m.run(t, (&hip.Activate{Act: a, N: len(x), Gate: in.address(), Out: out.address()}).Calls(m.target))
			out.get(t, dst)
		}
	}
	b.SiLUMul = func(dst, gate, up []float32) {
		if len(dst) == 0 {
			return
		}
		g, u := m.put(t, gate), m.put(t, up)
		defer g.release()
		defer u.release()
		m.run(t, (&hip.Activate{N: len(dst), Gate: g.address(), Up: u.address(), Out: g.address()}).Calls(m.target))
		g.get(t, dst)
	}
	b.SigmoidMul = func(dst, gate []float32) {
		if len(dst) == 0 {
			return
		}
		g, u := m.put(t, gate), m.put(t, dst)
		defer g.release()
		defer u.release()
		m.run(t, (&hip.Activate{OutGate: true, N: len(dst), Gate: g.address(), Up: u.address(), Out: u.address()}).Calls(m.target))
		u.get(t, dst)
	}
	b.SwiGLU = func(o ops.Gating, dst, gate, up []float32) {
		if len(dst) == 0 {
			return
		}
		g, u := m.put(t, gate), m.put(t, up)
		defer g.release()
		defer u.release()
		m.run(t, (&hip.Activate{Gating: o, N: len(dst), Gate: g.address(), Up: u.address(), Out: g.address()}).Calls(m.target))
		g.get(t, dst)
	}
	b.XIELU = func(o ops.XIELU, dst, x []float32) {
		if len(dst) == 0 {
			return
		}
		d := m.put(t, x)
		defer d.release()
		m.run(t, (&hip.XIELU{Numbers: o, N: len(x), X: d.address()}).Calls(m.target))
		d.get(t, dst)
	}
	b.SoftCap = func(x []float32, limit float32) {
		if len(x) == 0 {
			return
		}
		d := m.put(t, x)
		defer d.release()
		m.run(t, (&hip.SoftCap{N: len(x), X: d.address(), Limit: limit}).Calls(m.target))
		d.get(t, x)
	}
	return b
}

func TestPointwise(t *testing.T) {
	m := open(t)
	kerneltest.Test(t, pointwise(t, m))
}
