package hip

import (
	"fmt"

	"github.com/nstf/nstf/kernels/ops"
)

// PerLayer finishes the per-layer inputs of T rows, runs of Width numbers each:
//
//	X[t][run] = (norm(X[t][run] * Scale) + Looked[t][run] * TableScale) * Factor
type PerLayer struct {
	T, Runs, Width            int
	X, Looked                 Address // f32[T][Runs*Width]
	Norm                      Normal
	Scale, TableScale, Factor float32
}

// Calls returns the launch.
func (o *PerLayer) Calls(t Target) []Call {
	args := append([]Arg{Ptr(o.X), Ptr(o.Looked), I32(o.Runs), I32(o.Width)}, o.Norm.args()...)
	return []Call{{
		Early: true, Unit: Unit{"perlayer.hip", fmt.Sprintf("ACTIVATION=0 PER_LAYER_KIND=%d", o.Norm.Kind)}, Symbol: "nstf_per_layer",
		Grid: [3]uint32{uint32(ceil(o.Runs, perLayerWaves)), uint32(o.T), 1}, Block: [3]uint32{uint32(perLayerWaves * t.Wave), 1, 1},
		Args: append(args, F32(o.Scale), F32(o.TableScale), F32(o.Factor)),
	}}
}

const perLayerWaves = 4 // of a block; each has one run

// Inject multiplies what a block's gate gave with the rows' own inputs, which lie
// Stride numbers apart:
//
//	Gate[t][i] = act(Gate[t][i]) * Inputs[t*Stride + i]
type Inject struct {
	Act              ops.Activation
	T, Width, Stride int
	Gate             Address // f32[T][Width]
	Inputs           Address
}

// Calls returns the launch.
func (o *Inject) Calls(Target) []Call {
	return []Call{{
		Early: true, Unit: Unit{"perlayer.hip", fmt.Sprintf("ACTIVATION=%d PER_LAYER_KIND=0", o.Act)}, Symbol: "nstf_inject",
		Grid: [3]uint32{uint32(ceil(o.Width, pointwiseThreads)), uint32(o.T), 1}, Block: [3]uint32{pointwiseThreads, 1, 1},
		Args: []Arg{Ptr(o.Gate), Ptr(o.Inputs), I32(o.Width), I32(o.Stride)},
	}}
}
