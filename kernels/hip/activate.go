package hip

import (
	"fmt"

	"github.com/nstf/nstf/kernels/cpu"
)

// Activate computes Out = act(Gate), or act(Gate) * Up where Up is given, over
// N numbers. Out may be Gate or Up.
type Activate struct {
	Act           cpu.Activation
	N             int
	Gate, Up, Out Address // f32[N]
}

const pointwiseThreads = 256

// pointwiseGrid is the blocks for n numbers, four to a thread.
func pointwiseGrid(n int) [3]uint32 { return [3]uint32{uint32(ceil(n, 4*pointwiseThreads)), 1, 1} }

// Calls returns the launch.
func (o *Activate) Calls(Target) []Call {
	return []Call{{
		Early: true, Unit: Unit{"activate.hip", fmt.Sprintf("ACTIVATION=%d", o.Act)},
		Symbol: "nstf_activate", Grid: pointwiseGrid(o.N), Block: [3]uint32{pointwiseThreads, 1, 1},
		Args: []Arg{Ptr(o.Out), Ptr(o.Gate), Ptr(o.Up), I32(o.N)},
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
