package hip

import "fmt"

// Route chooses experts for each row: softmax over the router's logits, the
// TopK largest (the lower index first among equals), divided by their sum where
// Normalize is set.
type Route struct {
	T, Experts, TopK int // TopK is at most 32
	Normalize        bool
	Logits           Address // f32[T][Experts]
	Chosen           Address // i32[T][TopK]
	Share            Address // f32[T][TopK]
	// Slots, where given, lists all T*TopK slots (row*TopK + choice) by expert,
	// those of one expert ascending; expert e has Slots[First[e]:First[e+1]].
	Slots Address // i32[T*TopK]
	First Address // i32[Experts+1]
}

const groupThreads = 256

// Calls returns the launches.
func (o *Route) Calls(t Target) []Call {
	normalize := 0
	if o.Normalize {
		normalize = 1
	}
	unit := Unit{"route.hip", fmt.Sprintf("ROUTE_EXPERTS=%d ROUTE_TOPK=%d ROUTE_NORMALIZE=%d", o.Experts, o.TopK, normalize)}
	calls := []Call{{
		Early: true, Unit: unit, Symbol: "nstf_route", Grid: [3]uint32{uint32(o.T), 1, 1}, Block: [3]uint32{uint32(t.Wave), 1, 1},
		Args: []Arg{Ptr(o.Logits), Ptr(o.Chosen), Ptr(o.Share)},
	}}
	if o.Slots != 0 {
		calls = append(calls, Call{
			Early: true, Unit: unit, Symbol: "nstf_route_slots", Grid: [3]uint32{uint32(ceil(o.Experts, groupThreads/t.Wave)), 1, 1}, Block: [3]uint32{groupThreads, 1, 1},
			Args: []Arg{Ptr(o.Chosen), Ptr(o.Slots), Ptr(o.First), I32(o.T * o.TopK)},
		})
	}
	return calls
}

// Combine adds up the experts' outputs of each row by their shares, in
// ascending order of the experts:
//
//	Out[t] = sum over j of Share[t][j] * Parts[t][j]
type Combine struct {
	T, D, TopK int
	Parts      Address // f32[T][TopK][D]
	Chosen     Address // i32[T][TopK]
	Share      Address // f32[T][TopK]
	Out        Address // f32[T][D]
}

// Calls returns the launch.
func (o *Combine) Calls(Target) []Call {
	return []Call{{
		Early: true, Unit: Unit{"combine.hip", fmt.Sprintf("COMBINE_TOPK=%d", o.TopK)}, Symbol: "nstf_combine",
		Grid: [3]uint32{uint32(ceil(o.D, pointwiseThreads)), uint32(o.T), 1}, Block: [3]uint32{pointwiseThreads, 1, 1},
		Args: []Arg{Ptr(o.Parts), Ptr(o.Chosen), Ptr(o.Share), Ptr(o.Out), I32(o.D)},
	}}
}
