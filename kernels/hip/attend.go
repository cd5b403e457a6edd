package hip

import "fmt"

// Attend computes, for every row and head, attention over the positions of the
// row's sequence up to its own, or the last Window of them:
//
//	z[p] = cap(Scale * sum over d of Q[d] * key[p][d])
//	Out  = sum over p of exp(z[p]) * value[p] / sum over p of exp(z[p])
//
// with cap(z) = Softcap * tanh(z/Softcap) where Softcap is not 0. The rows' own
// keys and values are in the cache already (see [Rope]). Up to eight rows are
// taken as steps of decoding: the positions are spread over the device, and how
// many a block takes is decided from Position there, so that the call can be
// replayed as sequences grow. More rows are taken as prompts.
type Attend struct {
	Rows
	KV       KV
	Heads    int
	Scale    float32
	Softcap  float32 // 0: none
	Window   int     // 0: none
	Capacity int     // positions that a row may see at most
	Q, Out   Address // f32[T][Heads][Dim]
	// Scratch is ScratchBytes of memory whose first CounterBytes were zero before
	// its first use; each call leaves them zero. Calls that do not overlap share it.
	Scratch Address
	// Turn, where given, has the queries, keys and values finished on the way: K, V,
	// norms, rotation and strides are read from it, the rest is that of the Attend,
	// and Q is left as it was. Rows of decoding are of different sequences then;
	// prompts are turned by a launch of its own.
	Turn *Rope
	// Shape divides decoding; without it attend.go's choice is taken.
	Shape    *AttendShape
	TileRows int // of a block of prompts; 0: as attendtiles.go says
	// Exact asks for float32 throughout; otherwise prompts may be multiplied in
	// half precision.
	Exact bool
}

// Sizes of decoding, see attend.hip.
const (
	attendTile      = 32 // positions of a wave at a time
	attendMaxGroup  = 8  // queries of a wave
	attendMaxSplits = 64 // blocks that share a row and a head
	attendLDS       = 32 << 10
	attendFewRows   = 8
)

// An AttendShape is how decoding is divided.
type AttendShape struct {
	Waves int // of a block
	Fill  int // blocks for each compute unit, where positions suffice
	Least int // tiles of 32 positions that a block takes at least
}

// split is how decoding is divided, worked out for a call.
type split struct {
	queries int // of a wave: a key-value head's group, or an equal part of it
	parts   int // of a group
	waves   int
	splits  int // blocks that share the positions
	least   int
}

func (o *Attend) split(t Target) split {
	shape := o.Shape
	if shape == nil {
		shape = &AttendShape{Waves: 256 / t.Wave, Fill: 2, Least: 4}
	}
	group := o.Heads / o.KV.Heads
	s := split{parts: ceil(group, attendMaxGroup), waves: shape.Waves, least: shape.Least}
	s.queries = ceil(group, s.parts)
	s.parts = ceil(group, s.queries)
	for s.waves > 1 && o.blockLDS(s) > attendLDS {
		s.waves /= 2
	}
	s.splits = max(shape.Fill*t.Units/(o.KV.Heads*s.parts*o.T), 1)
	s.splits = min(s.splits, attendMaxSplits, max(ceil(o.Capacity, s.least*attendTile), 1))
	return s
}

// blockLDS returns the bytes of LDS that a block needs: see attend.hip.
func (o *Attend) blockLDS(s split) int {
	padded := 1
	for padded < s.queries {
		padded *= 2
	}
	tile := s.waves * padded * (attendTile + 1)
	return 4 * max(tile, s.waves*s.queries*(o.KV.Dim+2))
}

// CounterBytes is how much of the scratch must be zero at first, whatever the
// call.
const CounterBytes = 64 << 10

// ScratchBytes returns the size of the scratch.
func (o *Attend) ScratchBytes(t Target) int64 {
	if o.isPrompt(t) {
		return 0
	}
	s := o.split(t)
	return CounterBytes + 4*int64(o.T)*int64(o.KV.Heads*s.parts)*int64(s.splits)*int64(s.queries*(o.KV.Dim+2))
}

// Calls returns the launch.
func (o *Attend) Calls(t Target) []Call {
	if o.isPrompt(t) {
		return o.prompt(t)
	}
	s := o.split(t)
	args, turn := []Arg{Ptr(o.Q), Ptr(o.Out)}, "ATTEND_TURN=0"
	if r := o.turning(); r != nil {
		args = append(append(args, Ptr(r.K), Ptr(r.V)), r.turn()...)
		turn = "ATTEND_TURN=1 " + r.defines()
	}
	args = append(args, I32(o.Heads), I32(o.KV.Heads), I32(o.Window), F32(o.Scale), F32(o.Softcap))
	args = append(append(args, o.KV.args()...), o.Rows.args()...)
	args = append(args, Ptr(o.Scratch), Ptr(o.Scratch+CounterBytes))
	return []Call{{
		Early: true, Unit: Unit{"attend.hip", fmt.Sprintf("%s ATTEND_GROUP=%d ATTEND_PARTS=%d ATTEND_QUERIES=%d ATTEND_WAVES=%d ATTEND_LEAST=%d ATTEND_CAP=%d %s",
			o.KV.defines(), o.Heads/o.KV.Heads, s.parts, s.queries, s.waves, s.least, flag(o.Softcap != 0), turn)},
		Symbol: "nstf_attend",
		Grid:   [3]uint32{uint32(s.splits), uint32(o.KV.Heads * s.parts), uint32(o.T)},
		Block:  [3]uint32{uint32(s.waves * t.Wave), 1, 1}, Args: args,
	}}
}

// turning is Turn with what the Attend knows.
func (o *Attend) turning() *Rope {
	if o.Turn == nil {
		return nil
	}
	r := *o.Turn
	r.Rows, r.Heads, r.Q, r.KV = o.Rows, o.Heads, o.Q, o.KV
	return &r
}

// flag is a truth value as a define.
func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
