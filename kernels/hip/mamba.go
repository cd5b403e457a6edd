package hip

import "fmt"

// Mamba takes T rows through a state space, from the products of its input to what its
// output matrix reads: see mamba.hip. Places is which place of Memory a sequence has, by
// its owner.
type Mamba struct {
	Rows
	Sequences     int // at most so many have rows
	Heads, Groups int
	Dim, State    int // numbers of a head, and of b and c
	Kernel        int
	DecayLog      bool
	Least, Most   float32 // of steps
	Conv          Address // f32[C][Kernel]
	Bias          Address // f32[C], 0: none
	Decay, DTBias Address // f32[Heads]
	Skip          Address // f32[Heads]
	Norm          Normal  // of Heads*Dim numbers, without weights: none
	Mixed         Address // f32[T][C]
	DT            Address // f32[T][Heads]
	Z             Address // f32[T][Heads*Dim], replaced by the result
	Turned, Gate  Address // work space: f32[T][C], f32[T][2*Heads+Groups]
	Places        Address // i32[sequences]
	Memory        Address // f32 of place 0
	Apart         int64   // numbers from place to place
}

// Calls returns the launches.
func (o *Mamba) Calls(t Target) []Call {
	const lanes, columns, waves, finish = 8, 16, 4, 256
	vec := 1
	if c := o.Heads*o.Dim + 2*o.Groups*o.State; o.State%4 == 0 && c%4 == 0 && o.Apart%4 == 0 && o.Memory%16 == 0 {
		vec = 4
	}
	unit := Unit{"mamba.hip", fmt.Sprintf("MAMBA_HEADS=%d MAMBA_GROUPS=%d MAMBA_DIM=%d MAMBA_STATE=%d MAMBA_KERNEL=%d MAMBA_BIAS=%d MAMBA_DECAY_LOG=%d MAMBA_VEC=%d MAMBA_LANES=%d MAMBA_COLUMNS=%d",
		o.Heads, o.Groups, o.Dim, o.State, o.Kernel, digit(o.Bias != 0), digit(o.DecayLog), vec, lanes, columns)}
	state := []Arg{Ptr(o.Memory), I64(o.Apart), Ptr(o.Places), Ptr(o.Position), Ptr(o.Owner)}
	calls := []Call{{
		Early: true, Unit: unit, Symbol: "nstf_mamba_select", Grid: [3]uint32{uint32(ceil(o.Groups+o.Heads, waves)), uint32(o.T), 1},
		Block: [3]uint32{uint32(waves * t.Wave), 1, 1},
		Args: append([]Arg{Ptr(o.Mixed), Ptr(o.Turned), Ptr(o.Gate), Ptr(o.DT), Ptr(o.Conv), Ptr(o.Bias), Ptr(o.Decay), Ptr(o.DTBias),
			F32(o.Least), F32(o.Most)}, state...),
	}, {
		Early: true, Unit: unit, Symbol: "nstf_mamba_step", Grid: [3]uint32{uint32(o.Heads * ceil(o.Dim, columns)), uint32(o.Sequences), 1},
		Block: [3]uint32{lanes * columns, 1, 1},
		Args:  append(append([]Arg{Ptr(o.Mixed), Ptr(o.Turned), Ptr(o.Gate), Ptr(o.Z), Ptr(o.Skip)}, state...), I32(o.T)),
	}}
	if o.Norm.Weight == 0 {
		return calls
	}
	return append(calls, Call{
		Early: true, Unit: unit, Symbol: "nstf_mamba_finish", Grid: [3]uint32{uint32(o.Groups), uint32(o.T), 1}, Block: [3]uint32{finish, 1, 1},
		Args: []Arg{Ptr(o.Z), Ptr(o.Norm.Weight), F32(o.Norm.Eps)},
	})
}
