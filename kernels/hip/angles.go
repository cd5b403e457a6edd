package hip

// Angles computes the cosines and sines [T][Pairs] of a rotary embedding at the
// rows' positions.
type Angles struct {
	Cosine, Sine    Address // f32 [T][Pairs]
	Position, Owner Address // i32 [T]
	Frequency       Address // f32 [Pairs], or [sequences][Pairs] where PerOwner is set
	Factor          Address // f32 [1], or [sequences]
	T, Pairs        int
	PerOwner        bool // each sequence has frequencies of its own
}

const anglesBlock = 128

// Calls returns the launch.
func (o *Angles) Calls(Target) []Call {
	stride := 0
	if o.PerOwner {
		stride = o.Pairs
	}
	return []Call{{
		Early: true, Unit: Unit{File: "angles.hip"}, Symbol: "nstf_angles",
		Grid: [3]uint32{uint32((o.T*o.Pairs + anglesBlock - 1) / anglesBlock), 1, 1}, Block: [3]uint32{anglesBlock, 1, 1},
		Args: []Arg{Ptr(o.Cosine), Ptr(o.Sine), Ptr(o.Position), Ptr(o.Owner), Ptr(o.Frequency), Ptr(o.Factor), I32(o.T), I32(o.Pairs), I32(stride)},
	}}
}
