package hip

import "fmt"

// Delta takes T rows through a gated delta net, from the products of its input to what
// its output matrix reads: see delta.hip. Places is which place of Memory a sequence
// has, by its owner.
type Delta struct {
	Rows
	Sequences         int // at most so many have rows
	Heads, KeyHeads   int
	KeyDim, ValueDim  int
	Kernel            int
	Tiled, DecayLog   bool
	ByChannel         bool // S fades by a number for each of its rows
	Sigmoid           bool // of Z, in place of SiLU
	Eps               float32
	Conv              Address // f32[C][Kernel]
	Decay             Address // f32[Heads]
	DTBias            Address // f32[Heads], of all by channel f32[Heads*KeyDim]
	Norm              Normal  // of ValueDim numbers
	Mixed             Address // f32[T][C]
	Beta              Address // f32[T][Heads]
	Alpha             Address // f32[T][Heads]; by channel f32[T][Heads*KeyDim], replaced
	Z                 Address // f32[T][Heads*ValueDim], replaced by the result
	Turned, Out, Gate Address // work space: f32[T][C], f32[T][Heads*ValueDim], f32[T][2*Heads+KeyHeads]
	Places            Address // i32[sequences]
	Memory            Address // f32 of place 0
	Apart             int64   // numbers from place to place
	Few               bool    // a row's bits are those that it has alone
	Settled           bool    // Rows, Places and Memory were there before the launch before this began; of one row they are read early
}

// fusedColumns is the most columns of S that one block has with four lanes each.
const fusedColumns = 128

// Calls returns the launches.
func (o *Delta) Calls(t Target) []Call {
	vec, lanes, columns, fused := 1, 8, 16, 0
	if c := 2*o.KeyHeads*o.KeyDim + o.Heads*o.ValueDim; o.KeyDim%4 == 0 && c%4 == 0 && o.Apart%4 == 0 && o.Memory%16 == 0 {
		vec = 4
	}
	if o.Few && o.ValueDim <= fusedColumns && !(o.ByChannel && t.Arch == "gfx908") { // whose 512 threads have 128 registers each, 4 too few
		lanes, columns, fused = 4, o.ValueDim, 1
	}
	unit := Unit{"delta.hip", fmt.Sprintf("DELTA_HEADS=%d DELTA_KEYS=%d DELTA_DK=%d DELTA_DV=%d DELTA_KERNEL=%d DELTA_TILED=%d DELTA_DECAY_LOG=%d DELTA_VEC=%d DELTA_LANES=%d DELTA_COLUMNS=%d DELTA_FUSED=%d DELTA_BY_CHANNEL=%d DELTA_SIGMOID=%d DELTA_SETTLED=%d",
		o.Heads, o.KeyHeads, o.KeyDim, o.ValueDim, o.Kernel, digit(o.Tiled), digit(o.DecayLog), vec, lanes, columns, fused, digit(o.ByChannel), digit(o.Sigmoid), digit(o.Settled && o.T == 1))}
	const waves = 4
	block := [3]uint32{uint32(waves * t.Wave), 1, 1}
	state := []Arg{Ptr(o.Memory), I64(o.Apart), Ptr(o.Places), Ptr(o.Position), Ptr(o.Owner)}
	calls := []Call{{
		Early: true, Unit: unit, Symbol: "nstf_delta_convolve", Grid: [3]uint32{uint32(ceil(o.KeyHeads+3*o.Heads, waves)), uint32(o.T), 1}, Block: block,
		Args: append([]Arg{Ptr(o.Mixed), Ptr(o.Turned), Ptr(o.Gate), Ptr(o.Beta), Ptr(o.Alpha), Ptr(o.Conv), Ptr(o.Decay), Ptr(o.DTBias), F32(o.Eps)}, state...),
	}, {
		Early: true, Unit: unit, Symbol: "nstf_delta_step", Grid: [3]uint32{uint32(o.Heads * ceil(o.ValueDim, columns)), uint32(o.Sequences), 1},
		Block: [3]uint32{uint32(ceil(lanes*columns, t.Wave) * t.Wave), 1, 1},
		Args:  append(append([]Arg{Ptr(o.Mixed), Ptr(o.Turned), Ptr(o.Gate), Ptr(o.Alpha), Ptr(o.Out), Ptr(o.Z), Ptr(o.Norm.Weight), F32(o.Norm.Eps)}, state...), I32(o.T)),
	}}
	if fused == 1 {
		return calls
	}
	return append(calls, Call{
		Early: true, Unit: unit, Symbol: "nstf_delta_finish", Grid: [3]uint32{uint32(ceil(o.Heads, waves)), uint32(o.T), 1}, Block: block,
		Args: []Arg{Ptr(o.Out), Ptr(o.Z), Ptr(o.Norm.Weight), F32(o.Norm.Eps)},
	})
}
