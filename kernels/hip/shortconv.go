package hip

import "fmt"

// ShortConv takes T rows through a gated short convolution, from the products of its
// input to what its output matrix reads: see shortconv.hip. Places is which place of
// Memory a sequence has, by its owner.
type ShortConv struct {
	Rows
	Sequences int // at most so many have rows
	Channels  int
	Kernel    int
	Conv      Address // f32[C][Kernel]
	Bias      Address // f32[C], 0: none
	In        Address // f32[T][3*C]
	Out       Address // f32[T][C]
	Places    Address // i32[sequences]
	Memory    Address // f32 of place 0
	Apart     int64   // numbers from place to place
	Few       bool    // one launch goes through the rows of a sequence
}

// Calls returns the launches.
func (o *ShortConv) Calls(t Target) []Call {
	const threads = 128
	unit := Unit{"shortconv.hip", fmt.Sprintf("CONV_CHANNELS=%d CONV_KERNEL=%d CONV_BIAS=%d", o.Channels, o.Kernel, digit(o.Bias != 0))}
	call := func(symbol string, y int, args ...Arg) Call {
		return Call{Early: true, Unit: unit, Symbol: symbol, Grid: [3]uint32{uint32(ceil(o.Channels, threads)), uint32(y), 1}, Block: [3]uint32{threads, 1, 1}, Args: args}
	}
	row := []Arg{Ptr(o.In), Ptr(o.Out), Ptr(o.Conv), Ptr(o.Bias)}
	state := []Arg{Ptr(o.Memory), I64(o.Apart), Ptr(o.Places), Ptr(o.Position), Ptr(o.Owner)}
	if o.Few {
		return []Call{call("nstf_shortconv_step", o.Sequences, append(append(row, state...), I32(o.T))...)}
	}
	calls := []Call{call("nstf_shortconv_rows", o.T, append(row, state...)...)}
	if o.Kernel > 1 {
		calls = append(calls, call("nstf_shortconv_keep", o.Sequences, append(append([]Arg{Ptr(o.In)}, state...), I32(o.T))...))
	}
	return calls
}
