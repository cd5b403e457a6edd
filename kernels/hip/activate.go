package hip

import (
	"fmt"
	"math"

	"github.com/nstf/nstf/kernels/ops"
)

// Activate computes Out = act(Gate), or act(Gate) * Up where Up is given, which
// Gating may change, over N numbers. Out may be Gate or Up.
type Activate struct {
	Act           ops.Activation
	Gating        ops.Gating // of SiLU with Up alone
	OutGate       bool       // act is the logistic function, whatever Act says
	N             int
	Gate, Up, Out Address // f32[N]
}

// activation is how activation.hip is told of a nonlinearity.
func activation(a ops.Activation, g ops.Gating) string {
	defines := fmt.Sprintf("ACTIVATION=%d", a)
	if g == (ops.Gating{}) {
		return defines
	}
	if g.Alpha == 0 {
		g.Alpha = 1
	}
	return defines + fmt.Sprintf(" GATE_ALPHA=%#xu GATE_LIMIT=%#xu GATE_OFFSET=%#xu",
		math.Float32bits(g.Alpha), math.Float32bits(g.Limit), math.Float32bits(g.Offset))
}

// logistic is what activation.hip has beyond the nonlinearities of layers.
const logistic = ops.Activation(6)

const pointwiseThreads = 256

// pointwiseGrid is the blocks for n numbers, four to a thread.
func pointwiseGrid(n int) [3]uint32 { return [3]uint32{uint32(ceil(n, 4*pointwiseThreads)), 1, 1} }

// Calls returns the launch.
func (o *Activate) Calls(Target) []Call {
	act := o.Act
	if o.OutGate {
		act = logistic
	}
	return []Call{{
		Early: true, Unit: Unit{"activate.hip", activation(act, o.Gating)},
		Symbol: "nstf_activate", Grid: pointwiseGrid(o.N), Block: [3]uint32{pointwiseThreads, 1, 1},
		Args: []Arg{Ptr(o.Out), Ptr(o.Gate), Ptr(o.Up), I32(o.N)},
	}}
}

// XIELU replaces X[N] by its activation with trained numbers.
type XIELU struct {
	Numbers ops.XIELU
	N       int
	X       Address // f32[N]
}

// Calls returns the launch.
func (o *XIELU) Calls(Target) []Call {
	x := &o.Numbers
	return []Call{{
		Early: true, Unit: Unit{File: "xielu.hip"}, Symbol: "nstf_xielu", Grid: pointwiseGrid(o.N), Block: [3]uint32{pointwiseThreads, 1, 1},
		Args: []Arg{Ptr(o.X), I32(o.N), F32(x.Positive), F32(x.Negative), F32(x.Beta), F32(x.Eps)},
	}}
}

// SoftCap replaces X[N] by Limit * tanh(X / Limit).
type SoftCap struct {
	N     int
	X     Address // f32[N]
	Limit float32
}

// Calls returns the launch.
func (o *SoftCap) Calls(Target) []Call {
	return []Call{{
		Early: true, Unit: Unit{File: "softcap.hip"}, Symbol: "nstf_softcap", Grid: pointwiseGrid(o.N), Block: [3]uint32{pointwiseThreads, 1, 1},
		Args: []Arg{Ptr(o.X), I32(o.N), F32(o.Limit)},
	}}
}
