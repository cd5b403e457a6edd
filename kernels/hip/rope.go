package hip

import "fmt"

// Rope finishes the queries, keys and values of T rows: it normalises each
// query and key head where the model does, rotates them, leaves queries in Q and
// stores keys and values in the cache at the rows' positions.
type Rope struct {
	Rows
	Heads   int     // query heads; 0: keys and values only
	Q       Address // f32[T][Heads][Dim], in place
	K, V    Address // f32[T][KV.Heads][Dim]
	Turn    Rotation
	QNorm   Normal
	KNorm   Normal
	KV      KV
	QStride int // numbers from row to row of Q; 0: Heads*Dim
	KStride int // of K and V; 0: KV.Heads*Dim
}

// A Rotation is a rotary embedding of the first 2*Pairs numbers of a head, by
// angles from [Angles]. Without pairs it is none.
type Rotation struct {
	Pairs        int
	Interleaved  bool    // pairs are (2i, 2i+1), not (i, i+Pairs)
	Cosine, Sine Address // f32[T][Pairs]
}

func (r *Rotation) defines() string {
	style := 0
	if r.Interleaved {
		style = 1
	}
	return fmt.Sprintf("ROPE_PAIRS=%d ROPE_STYLE=%d", r.Pairs, style)
}

// headNorm tells a source which normalisation heads have: 0 none, else the
// kind plus 1.
func headNorm(n *Normal) int {
	if n.Weight == 0 {
		return 0
	}
	return int(n.Kind) + 1
}

const ropeWaves = 4 // of a block; each has one head

// turn passes how heads are found and finished.
func (o *Rope) turn() []Arg {
	qStride, kStride := o.QStride, o.KStride
	if qStride == 0 {
		qStride = o.Heads * o.KV.Dim
	}
	if kStride == 0 {
		kStride = o.KV.Heads * o.KV.Dim
	}
	args := []Arg{I32(qStride), I32(kStride), Ptr(o.Turn.Cosine), Ptr(o.Turn.Sine)}
	return append(append(args, o.QNorm.args()...), o.KNorm.args()...)
}

// defines are what heads.hip asks for.
func (o *Rope) defines() string {
	return fmt.Sprintf("%s ROPE_QNORM=%d ROPE_KNORM=%d", o.Turn.defines(), headNorm(&o.QNorm), headNorm(&o.KNorm))
}

// Calls returns the launch.
func (o *Rope) Calls(t Target) []Call {
	args := []Arg{Ptr(o.Q), Ptr(o.K), Ptr(o.V), I32(o.Heads), I32(o.KV.Heads)}
	args = append(args, o.turn()...)
	args = append(append(args, o.KV.args()...), o.Rows.args()...)
	return []Call{{
		Early: true, Unit: Unit{"rope.hip", fmt.Sprintf("%s %s ROPE_WAVES=%d", o.KV.defines(), o.defines(), ropeWaves)},
		Symbol: "nstf_rope",
		Grid:   [3]uint32{uint32(ceil(o.Heads+2*o.KV.Heads, ropeWaves)), uint32(o.T), 1},
		Block:  [3]uint32{uint32(ropeWaves * t.Wave), 1, 1}, Args: args,
	}}
}
