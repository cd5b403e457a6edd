package hip

import (
	"fmt"

	"github.com/nstf/nstf/kernels/cpu"
)

// Attend computes, for every row and head, attention over the positions of the
// row's sequence up to its own, or the last Window of them:
//
//	z[p] = cap(Scale * sum over d of Q[d] * key[p][d])
//	Out  = sum over p of exp(z[p]) * value[p] / (sum over p of exp(z[p]) + exp(sink))
//
// with cap(z) = Softcap * tanh(z/Softcap) where Softcap is not 0, and the last term
// where there are Sinks. The rows' own
// keys and values are in the cache already (see [Rope]). Up to MaxRows rows are
// taken as steps of decoding: the positions are spread over the device, and how
// many a block takes is decided from Position there, so that the call can be
// replayed as sequences grow, and a row's bits depend on nothing but what it sees.
// More rows are taken as prompts, whose queries are turned in place where keys and values
// are kept in codes.
type Attend struct {
	Rows
	KV       KV
	Heads    int
	Scale    float32
	Softcap  float32 // 0: none
	Window   int     // 0: none
	Chunked  bool    // Window is a run of positions that see one another, not what lies behind a row
	Capacity int     // positions that a row may see at most
	Q, Out   Address // f32[T][Heads][Dim], f32[T][Heads][numbers of a value]
	Sinks    Address // f32[Heads]; 0: none
	// Scratch is ScratchBytes of memory whose first CounterBytes were zero before
	// its first use; each call leaves them zero. Calls that do not overlap share it.
	Scratch Address
	// Turn, where given, has the queries, keys and values finished on the way: K, V,
	// norms, rotation and strides are read from it, the rest is that of the Attend,
	// and Q is left as it was. Rows of decoding are of different sequences then;
	// prompts are turned by a launch of its own.
	Turn *Rope
	// Settled says that the cache, but for what Turn brings, and Rows were written
	// before the launch before this one began; they are read early then.
	Settled bool
	// Below, where it is not 0, leaves rows of decoding alone whose position is that or more.
	Below int
	// Shape divides the work; without it, or where it holds zeros, a choice is made.
	Shape *AttendShape
	// Matrix has tiles of decoding go by matrix instructions in half precision too, or as by
	// them where the target, of waves of 32 threads, has none: for tests.
	Matrix bool
	// Prompt has the rows taken as a prompt's, however few they are.
	Prompt bool
	// Reaches are the sequences that rows of a prompt belong to, each once, in the rows' order: what
	// they see is spread where keys and values have scales, or lie in the host's memory.
	Reaches []Reach
	// Exact asks for float32 throughout; otherwise prompts may be multiplied in
	// half precision.
	Exact bool
}

// Sizes of decoding, see attend.hip.
const (
	attendMaxGroup  = 8  // queries of a wave
	attendMaxSplits = 64 // blocks that share a row and a head
	attendLDS       = 32 << 10
)

// An AttendShape is how attention is divided. All but Rows and Spread are of decoding;
// Resident, Spread and Steps change no bits.
type AttendShape struct {
	Waves    int // of a block
	Queries  int // of a wave at most; 0: as many as registers hold
	Fill     int // blocks for each compute unit, where positions suffice
	Least    int // positions that a block takes at least, a multiple of 64
	Resident int // blocks of a unit that registers are limited for (CUDA); 0: what is usual
	Rows     int // of a block of prompts: 64 or 128
	Spread   int // pages that prompts have spread at once, at most; 0: as many as are usual
	Steps    int // blocks that go through the shares of a row's positions, one after the other; 0: a choice is made; -1: a block for each share
}

// split is how decoding is divided, worked out for a call.
type split struct {
	queries  int // of a wave: a key-value head's group, or an equal part of it
	parts    int // of a group
	waves    int
	spread   int // blocks that share the positions of a long sequence
	splits   int // those that the longest one needs
	least    int
	resident int
}

func (o *Attend) split(t Target) split {
	shape := AttendShape{Waves: 256 / t.Wave, Fill: 2, Least: 256}
	if t.API == CUDA { // measured on an H200: docs/perf/gpu.md
		shape = AttendShape{Waves: 256 / t.Wave, Queries: 2, Fill: 1, Least: 128}
	}
	if t.API == CUDA && (o.KV.Format.Coded() || o.matrix(t)) { // spread once for all queries
		shape.Queries = 4
	}
	if o.matrix(t) && o.KV.Format != cpu.KVQ5 && o.KV.Format != cpu.KVQ3 { // see pairs
		shape.Fill = 2
	}
	if o.Shape != nil && o.Shape.Waves != 0 {
		shape = *o.Shape
	}
	group := o.Heads / o.KV.Heads
	s := split{waves: shape.Waves, least: shape.Least}
	s.queries = o.most(t, group)
	if o.matrix(t) {
		s.queries = min(group, 4)
	}
	if shape.Queries > 0 {
		s.queries = min(s.queries, shape.Queries)
	}
	s.parts = ceil(group, s.queries)
	s.queries = ceil(group, s.parts)
	for s.waves > 1 && o.blockLDS(s) > attendLDS {
		s.waves /= 2
	}
	// As one row alone fills the machine: more would be divided otherwise, and would
	// have other bits.
	s.spread = min(max(shape.Fill*t.Units/(o.KV.Heads*s.parts), 1), attendMaxSplits)
	s.splits = min(s.spread, ceil(o.Capacity, s.least)+1) // the first positions may be a tile's last
	if t.API == CUDA && shape.Resident == 0 && !o.matrix(t) && o.T > 1 && o.registers(t, s.queries) <= 170 {
		shape.Resident = 2 // of many blocks; without, registers leave room for one
	}
	if t.API == CUDA && shape.Resident == 0 && o.pairs(t, s.waves) {
		shape.Resident = 2
	}
	s.resident = max(shape.Resident, 1)
	return s
}

// matrix reports whether tiles of decoding go by matrix instructions: attendmatrix.hip.
func (o *Attend) matrix(t Target) bool {
	asked := t.Matrix() == MMA && (o.KV.Format == cpu.KVQ8 || o.KV.Format.Coded()) || o.Matrix && t.Wave == 32
	return asked && o.KV.Format != cpu.KVF32 && o.KV.Dim%32 == 0 && o.KV.Value == 0
}

// pairs reports whether two blocks that go by matrix instructions have room beside each other: by
// ptxas 12.9 for sm_90 they need no more than 128 registers then, where left alone they take 146 to
// 168. Halves, and codes of 5 and 3 bits, would spill.
func (o *Attend) pairs(t Target, waves int) bool {
	return o.matrix(t) && waves*t.Wave <= 256 && o.KV.Dim <= 128 && (o.KV.Format == cpu.KVQ8 || o.KV.Format == cpu.KVQ4)
}

// registers estimates what a lane of decoding needs for so many queries: their
// numbers and sums, a tile's keys and values, scores, and the rest. The constants
// of attend.hip are worked out as there.
func (o *Attend) registers(t Target, queries int) int {
	run, bytes := 8, 2
	switch o.KV.Format {
	case cpu.KVF32:
		run, bytes = 4, 4
	case cpu.KVQ8:
		bytes = 1
	}
	d := o.KV.Dim
	if o.KV.Format.Coded() { // words of codes, one of high bits and a scale
		d, run, bytes = ceil(d, 32)*32, 8, 2
		if t.API == CUDA {
			run, bytes = 16, 1
		}
	}
	for d%run != 0 {
		run /= 2
	}
	lanes := max(2, min(32, powerAbove(ceil(d, run))))
	chunks, teams := ceil(d, run*lanes), t.Wave/lanes
	steps := max(teams, min(16, 8*teams/powerAbove(chunks))) / teams
	return 2*queries*chunks*run + 2*steps*chunks*ceil(run*bytes, 4) + 32 + 40
}

// most returns how many queries a wave takes at most, as far as compilers were seen
// not to spill.
func (o *Attend) most(t Target, group int) int {
	n := min(group, attendMaxGroup)
	switch {
	case t.Wave == 64 && o.KV.Dim > 128:
		return min(n, 2)
	case t.Wave == 64:
		return min(n, 4)
	}
	limit := 235
	if t.API == CUDA {
		limit = 270
	}
	for n > 1 && o.registers(t, n) > limit {
		n--
	}
	return n
}

func powerAbove(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// blockLDS returns the bytes of LDS that a block needs: see attend.hip.
func (o *Attend) blockLDS(s split) int {
	tile := s.waves * powerAbove(s.queries) * 33
	return 4 * max(tile, s.waves*s.queries*(o.KV.values()+2))
}

// CounterBytes is how much of the scratch must be zero at first, whatever the
// call.
const CounterBytes = 64 << 10

// ScratchBytes returns the size of the scratch.
func (o *Attend) ScratchBytes(t Target) int64 {
	if o.isPrompt(t) {
		if !o.spreads() {
			return 0
		}
		return CounterBytes + o.spreadBytes(t)
	}
	s := o.split(t)
	numbers := s.parts * s.queries
	if steps, _, ok := o.steps(t, s); ok {
		numbers = steps.parts * steps.queries
	}
	return CounterBytes + 4*int64(o.T)*int64(o.KV.Heads*numbers)*int64(s.splits)*int64(o.KV.values()+2)
}

// steps returns how rows are divided among blocks that go through the shares of their positions,
// whose bounds s gives, and how many blocks a row's part has: attendsteps.hip.
func (o *Attend) steps(t Target, s split) (of split, blocks int, ok bool) {
	asked := 0
	if o.Shape != nil {
		asked = o.Shape.Steps
	}
	if asked == 0 && (o.T < 2 || t.API != CUDA || t.Matrix() != MMA) || asked < 0 ||
		o.KV.Format != cpu.KVF16 || o.KV.Value != 0 || o.KV.Dim%8 != 0 || o.KV.Dim < 64 || o.KV.Dim > 256 || o.Turn != nil || o.matrix(t) {
		return split{}, 0, false
	}
	group := o.Heads / o.KV.Heads
	of = s
	of.parts = ceil(group, 4)
	of.queries = ceil(group, of.parts)
	if s.waves*of.queries > t.Wave || 8*of.queries%(t.Wave/powerAbove(o.KV.Dim/8)) != 0 || o.stepsLDS(t, of) > t.LDS-stepsStatic {
		return split{}, 0, false
	}
	blocks = asked
	if asked == 0 { // as many as have room at once; more than 8 lose to a block for each share (an H200: docs/perf/gpu.md)
		blocks = 2 * t.Units / (o.T * o.KV.Heads * of.parts)
		if blocks > 8 {
			return split{}, 0, false
		}
	}
	return of, min(max(blocks, 1), s.splits), true
}

// stepsStatic is what attendsteps.hip needs of LDS beside its stages: room to put records together.
const stepsStatic = 4 << 10

// stepsLDS is STEPS_LDS of attendsteps.hip.
func (o *Attend) stepsLDS(t Target, s split) int {
	lanes := powerAbove(o.KV.Dim / 8)
	tile, padded := max(t.Wave/lanes, min(16, 8*t.Wave/lanes)), powerAbove(s.queries)
	stage := tile * lanes * 16
	return s.waves * (2*stage + 4*(ceil(padded*(tile+1), 4)*4+s.queries*(o.KV.Dim+2)))
}

// Calls returns the launch.
func (o *Attend) Calls(t Target) []Call {
	if o.isPrompt(t) {
		return o.prompt(t)
	}
	s := o.split(t)
	args, turn := []Arg{Ptr(o.Q), Ptr(o.Out)}, "ATTEND_TURN=0"
	settled := false
	if r := o.turning(); r != nil {
		// Shared keys and values are of this pass, the newest of them.
		settled = o.Settled && !r.Shared
		args = append(append(args, Ptr(r.K), Ptr(r.V)), r.turn()...)
		turn = "ATTEND_TURN=1 " + r.defines()
	}
	if o.matrix(t) {
		turn += " ATTEND_MATRIX=1"
	}
	if o.Below != 0 {
		turn += fmt.Sprintf(" ATTEND_BELOW=%d", o.Below)
	}
	if s.resident > 1 {
		turn += fmt.Sprintf(" ATTEND_RESIDENT=%d", s.resident)
	}
	args = append(args, o.sinks()...)
	args = append(args, I32(o.Heads), I32(o.KV.Heads), I32(o.Window), F32(o.Scale), F32(o.Softcap))
	defines := func(s split) string {
		return fmt.Sprintf("%s ATTEND_GROUP=%d ATTEND_PARTS=%d ATTEND_QUERIES=%d ATTEND_WAVES=%d ATTEND_LEAST=%d ATTEND_SPREAD=%d ATTEND_CAP=%d ATTEND_SINKS=%d ATTEND_CHUNKED=%d",
			o.KV.defines(), o.Heads/o.KV.Heads, s.parts, s.queries, s.waves, s.least, s.spread, flag(o.Softcap != 0), flag(o.Sinks != 0), flag(o.Chunked))
	}
	behind := append(append(o.KV.args(), o.Rows.args()...), Ptr(o.Scratch), Ptr(o.Scratch+CounterBytes))
	if of, blocks, ok := o.steps(t, s); ok {
		unit := Unit{"attendsteps.hip", defines(of)}
		if o.Below != 0 {
			unit.Defines += fmt.Sprintf(" ATTEND_BELOW=%d", o.Below)
		}
		return []Call{{
			Early: true, Unit: unit, Symbol: "nstf_attend_steps", LDS: uint32(o.stepsLDS(t, of)),
			Grid:  [3]uint32{uint32(blocks), uint32(o.KV.Heads * of.parts), uint32(o.T)},
			Block: [3]uint32{uint32(of.waves * t.Wave), 1, 1}, Args: append(append(args, I32(s.splits)), behind...),
		}}
	}
	return []Call{{
		Early: true, Unit: Unit{"attend.hip", fmt.Sprintf("%s ATTEND_SETTLED=%d %s", defines(s), flag(settled), turn)},
		Symbol: "nstf_attend",
		Grid:   [3]uint32{uint32(s.splits), uint32(o.KV.Heads * s.parts), uint32(o.T)},
		Block:  [3]uint32{uint32(s.waves * t.Wave), 1, 1}, Args: append(args, behind...),
	}}
}

// sinks are the argument of the kernels that have one.
func (o *Attend) sinks() []Arg {
	if o.Sinks == 0 {
		return nil
	}
	return []Arg{Ptr(o.Sinks)}
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
