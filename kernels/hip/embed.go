package hip

// Embed looks up the rows' tokens in a table and, where Positions is given, adds
// a learned position.
//
//	Y[t] = Table[Token[t]] * Scale + Positions[Position[t]]
type Embed struct {
	T         int
	Table     Weight
	Token     Address // i32[T]
	Scale     float32
	Positions Address // f32[...][K]; 0: none
	Position  Address // i32[T]
	Y         Address // f32[T][K]
}

// Calls returns the launch.
func (o *Embed) Calls(Target) []Call {
	w := &o.Table
	if w.Format.Rotated() {
		return []Call{o.embedTCQ()}
	}
	return []Call{{
		Unit: Unit{"embed.hip", w.Format.defines}, Symbol: "nstf_embed_" + w.Format.Name(),
		Grid: [3]uint32{uint32(ceil(w.K/w.Format.unit, 256)), uint32(o.T), 1}, Block: [3]uint32{256, 1, 1}, Early: true,
		Args: []Arg{Ptr(o.Y), Ptr(w.Data), I64(int64(w.N)), I32(w.K), Ptr(o.Token), F32(o.Scale), Ptr(o.Positions), Ptr(o.Position)},
	}}
}
