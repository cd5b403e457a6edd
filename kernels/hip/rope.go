package hip

import "fmt"

// Rope finishes the queries, keys and values of T rows: it normalises each
// query and key head where the model does, rotates them, leaves queries in Q and
// stores keys and values in the cache at the rows' positions.
type Rope struct {
	Rows
	Heads int     // query heads; 0: keys and values only
	Q     Address // f32[T][Heads][Dim], in place
	K, V  Address // f32[T][KV.Heads][Dim]
	Turn  Rotation
	QNorm Normal
	KNorm Normal
	VNorm Normal
	// Shared says that the rows' keys and values are in the cache already: queries
	// alone are finished.
	Shared bool
	// Late norms follow the rotation, HeadNorms are QNorm and KNorm with weights (and
	// biases) f32[heads][Dim], and a Temper multiplies queries at last. An [Attend] has
	// no room for any: it takes rows that were finished before.
	Late      bool
	HeadNorms bool
	Temper    *Temper
	KV        KV
	QStride   int // numbers from row to row of Q; 0: Heads*Dim
	KStride   int // of K and V; 0: KV.Heads*Dim
}

// A Temper is the factor 1 + Beta*ln(1 + floor((position+Offset)/Every)) on queries.
type Temper struct {
	Beta          float32
	Every, Offset int
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

const ropeWaves = 4 // of a block; each has one head, or a part of one

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
	args = append(append(args, o.QNorm.args()...), o.KNorm.args()...)
	if headNorm(&o.VNorm) != 0 {
		args = append(args, o.VNorm.args()...)
	}
	return args
}

// defines are what heads.hip asks for.
func (o *Rope) defines() string {
	return fmt.Sprintf("%s ROPE_QNORM=%d ROPE_KNORM=%d ROPE_VNORM=%d ROPE_SHARED=%d", o.Turn.defines(), headNorm(&o.QNorm), headNorm(&o.KNorm), headNorm(&o.VNorm), flag(o.Shared))
}

// Calls returns the launch.
func (o *Rope) Calls(t Target) []Call {
	args := []Arg{Ptr(o.Q), Ptr(o.K), Ptr(o.V), I32(o.Heads), I32(o.KV.Heads)}
	args = append(args, o.turn()...)
	if p := o.Temper; p != nil {
		args = append(args, F32(p.Beta), I32(p.Every), I32(p.Offset))
	}
	args = append(append(args, o.KV.args()...), o.Rows.args()...)
	parts, blocks := o.KV.parts(t, ropeWaves), ceil(o.Heads, ropeWaves)
	if !o.Shared {
		blocks += ceil(2*o.KV.Heads, ropeWaves/parts)
	}
	return []Call{{
		Early: true, Unit: Unit{"rope.hip", fmt.Sprintf("%s %s ROPE_LATE=%d ROPE_HEADS=%d ROPE_TEMPER=%d ROPE_WAVES=%d ROPE_PARTS=%d", o.KV.defines(), o.defines(), flag(o.Late), flag(o.HeadNorms), flag(o.Temper != nil), ropeWaves, parts)},
		Symbol: "nstf_rope",
		Grid:   [3]uint32{uint32(blocks), uint32(o.T), 1},
		Block:  [3]uint32{uint32(ropeWaves * t.Wave), 1, 1}, Args: args,
	}}
}
