package hip

import "fmt"

// A Follow is a step of attention that reads some pages: what docs/attention.md describes, by
// the rules of runtime/cpu/follow.go. Rows are those of Attend whose position is Least or more;
// the others are left alone. Keys, values and queries are finished, and the summaries of all
// pages but the newest two are there (KV.Summarized, see [Summarize]). With Turn they are finished
// on the way, as by an Attend.
type Follow struct {
	Attend // Window, Settled, Prompt and Scratch do not count
	// Histories are f32[sequences][HistoryHeads][HistoryFloats(MaxPages)], from the block's
	// first key-value head on; zeros at first, and behind each prompt.
	Histories    Address
	HistoryHeads int
	// Shares are f64[key-value heads]: of its pages that a head reads, the steps that read
	// all not counted; 1 and more: it reads all, and learns nothing.
	Shares     Address
	Mass       float32 // of the estimated weight that is enough; 1: what Shares says is read
	Least      int     // positions of a row at least
	LeastPages int     // that are read at least
	Refresh    int     // steps from one that reads all to the next
	// Rank says that rows of one sequence are among the rows, and which of each are meant:
	// the first is 0, and their order is that of calls. Below 0: rows are of different
	// sequences.
	Rank   int
	Counts Address // u64[2]: pages that are read, and those there are, are added
	// Uses are u32[sequences][MaxPages]: how often a head chose each page is added; 0: nobody asks.
	Uses Address
	// Work is FollowBytes of memory, for one call at a time: until its history is learned.
	Work Address
	// Before, where given, is a step of another block of the model that came before and that
	// Fits: what it saw goes into its history beside this one's choice of pages. What no step
	// names so has a [Learn].
	Before *Follow
}

// A Learn has the history of a step take over what the step saw.
type Learn struct{ Of *Follow }

// HistoryFloats is how many numbers the history of a head of so many pages has.
func HistoryFloats(pages int) int { return 4 + pages }

// chooseThreads are those of a block of the kernels that choose and learn.
const chooseThreads = 1024

// foretoldPages are those of a block.
const foretoldPages = 64

// alwaysPages are read in any case: the first, and the newest.
const alwaysPages = 3

// besideWaves returns how many waves of a block add up means while others read pages by matrix instructions: as many
// as leave room for a record of each wave in the 48 KiB of static LDS that CUDA has.
func (o *Follow) besideWaves(s split) int {
	n := 4
	for n > 1 && 4*(s.waves+n)*s.queries*(o.KV.values()+2) > 40<<10 {
		n /= 2
	}
	return n
}

// divided is how decoding is divided. On CUDA no block waits for a unit that a block of the choice has.
func (o *Follow) divided(t Target) split {
	a := o.read(t)
	s := a.split(t)
	if few := (t.Units - 2*o.KV.Heads) / (o.KV.Heads * s.parts); t.API == CUDA && o.Shape == nil && 8*few >= 7*s.spread {
		s.spread = min(s.spread, few)
	}
	return s
}

// read is attention to the pages that are chosen.
func (o *Follow) read(t Target) Attend {
	a := o.Attend
	a.Matrix = a.Matrix || t.Matrix() == MMA
	if a.Shape == nil && t.API == CUDA { // a page is read once for more queries
		a.Shape = &AttendShape{Waves: 256 / t.Wave, Queries: 4, Fill: 1, Least: 128}
	}
	return a
}

// followWork is where the parts of Work begin.
type followWork struct {
	logs, foretold, partials, weights, lists, plans, done, errors, records, turned Address
}

// work lays out Work, from an address on, and returns its size.
func (o *Follow) work(t Target, base Address) (w followWork, size int64) {
	s, rows, pages := o.divided(t), int64(o.T), int64(o.MaxPages)
	heads, parts, record := int64(o.KV.Heads), int64(o.KV.Heads*s.parts), int64(s.queries*(o.KV.values()+2))
	for _, part := range []struct {
		at *Address
		n  int64
	}{
		{&w.logs, 4 * int64(o.Heads) * pages}, {&w.foretold, 4 * int64(o.Heads) * pages},
		{&w.partials, 8 * int64(o.Heads) * int64(ceil(o.MaxPages, foretoldPages))}, {&w.weights, 4 * heads * pages}, {&w.lists, 8 * heads * pages}, {&w.plans, 16 * heads},
		{&w.done, 4 * parts}, {&w.errors, 8 * parts}, {&w.records, 4 * parts * int64(3*s.spread) * record},
		{&w.turned, 4 * int64(o.Heads) * int64(o.KV.Dim)},
	} {
		*part.at = base + Address(size)
		size += (rows*part.n + 255) / 256 * 256
	}
	return w, size
}

// FollowBytes returns the size of Work.
func (o *Follow) FollowBytes(t Target) int64 {
	_, n := o.work(t, 0)
	return n
}

// attendUnit are the defines of how attention is divided.
func (o *Follow) attendUnit(s split) string {
	return fmt.Sprintf("ATTEND_GROUP=%d ATTEND_PARTS=%d PAGES_FORETOLD=%d", o.Heads/o.KV.Heads, s.parts, foretoldPages)
}

// chooseUnit has the kernels that choose and learn.
func (o *Follow) chooseUnit(t Target) Unit {
	defines := fmt.Sprintf("%s ATTEND_SINKS=%d CHOOSE_MASS=%d CHOOSE_WAVES=%d", o.attendUnit(o.divided(t)), flag(o.Sinks != 0), flag(o.Mass < 1), chooseThreads/t.Wave)
	if o.Uses != 0 {
		defines += " CHOOSE_USES=1"
	}
	return Unit{"choosepages.hip", defines}
}

// Fits reports whether a step can learn beside another's choice: of the same rows, in blocks of
// the same shape.
func (o *Follow) Fits(beside *Follow, t Target) bool {
	return o.Rows == beside.Rows && o.Least == beside.Least && o.Rank == beside.Rank && o.Heads == beside.Heads && o.KV.Heads == beside.KV.Heads &&
		o.HistoryHeads == beside.HistoryHeads && o.Histories != beside.Histories && o.Work != beside.Work && o.chooseUnit(t) == beside.chooseUnit(t)
}

// which says which rows follow the policy.
func (o *Follow) which() []Arg {
	return append(o.Rows.args(), I32(o.Least), I32(o.Rank), I32(o.HistoryHeads))
}

// then are the arguments of a step that is learned.
func (o *Follow) then(t Target) []Arg {
	w, _ := o.work(t, o.Work)
	return append([]Arg{Ptr(o.Histories), Ptr(o.Shares), Ptr(w.logs), Ptr(w.foretold), Ptr(w.lists), Ptr(w.plans), Ptr(w.errors)}, o.sinks()...)
}

// Calls returns the launches.
func (o *Follow) Calls(t Target) []Call {
	read, s := o.read(t), o.divided(t)
	w, _ := o.work(t, o.Work)
	follow := append(o.which(), Ptr(o.Histories), Ptr(w.logs), Ptr(w.foretold), Ptr(w.partials), Ptr(w.weights), Ptr(w.lists), Ptr(w.plans), Ptr(w.done), Ptr(w.errors))
	pages := fmt.Sprintf("%s %s ATTEND_QUERIES=%d ATTEND_WAVES=%d ATTEND_CAP=%d PAGES_SPLITS=%d", o.KV.defines(), o.attendUnit(s), s.queries, s.waves, flag(o.Softcap != 0), s.spread)
	args := append([]Arg{I32(o.Heads), I32(o.KV.Heads), F32(o.Scale), F32(o.Softcap)}, o.KV.args()...)
	args = append(append(args, follow...), Ptr(o.KV.Summaries()), Ptr(w.records))
	first, turn, turned, blocks, q := []Arg{Ptr(o.Q)}, "", "", alwaysPages+ceil(ceil(o.Capacity, PagePositions), foretoldPages), Ptr(o.Q)
	if r := o.turning(); r != nil {
		first = append(append([]Arg{Ptr(w.turned), Ptr(r.K), Ptr(r.V)}, r.turn()...), first...)
		turn, turned, q = " ATTEND_TURN=1 "+r.defines(), " PAGES_TURNED=1", Ptr(w.turned)
		blocks += flag(!r.Shared) // that stores the row's own
	}
	reads := append([]Arg{q}, args...)
	phase := func(n, blocks, kinds, waves int, define string, args []Arg) Call {
		return Call{Early: true, Unit: Unit{"attendpages.hip", fmt.Sprintf("%s PAGES_PHASE=%d%s", pages, n, define)}, Symbol: "nstf_attend_pages",
			Grid: [3]uint32{uint32(blocks), uint32(kinds * o.KV.Heads * s.parts), uint32(o.T)}, Block: [3]uint32{uint32(waves * t.Wave), 1, 1}, Args: args}
	}
	choose := append(append(append(o.sinks(), I32(o.Heads), I32(o.KV.Heads)), follow...), Ptr(o.Shares), I32(o.LeastPages), I32(o.Refresh), F32(o.Mass))
	if o.Uses != 0 {
		choose = append(choose, Ptr(o.Uses))
	}
	then, depth := o.then(t), uint32(1) // which nothing reads
	if o.Before != nil {
		then, depth = o.Before.then(t), 2
	}
	calls := []Call{
		phase(0, blocks, 1, s.waves, turn, append(first, args...)),
		{Early: true, Unit: o.chooseUnit(t), Symbol: "nstf_choose_pages", Grid: [3]uint32{uint32(o.KV.Heads), uint32(o.T), depth}, Block: [3]uint32{chooseThreads, 1, 1}, Args: append(choose, then...)},
	}
	settled, settle := fmt.Sprintf(" ATTEND_SINKS=%d", flag(o.Sinks != 0)), append(append([]Arg{Ptr(o.Out), Ptr(o.Counts)}, o.sinks()...), reads...)
	if read.matrix(t) {
		beside := o.besideWaves(s)
		return append(calls, phase(1, s.spread, 1, s.waves+beside, fmt.Sprintf("%s%s ATTEND_MATRIX=1 ATTEND_BESIDE=%d PAGES_LAST=1", settled, turned, beside), settle))
	}
	return append(calls, phase(1, s.spread, 3, s.waves, turned, reads), phase(2, 1, 1, s.waves, settled, settle)) // together they take too many registers
}

// Calls returns the launch.
func (o *Learn) Calls(t Target) []Call {
	args := append(append([]Arg{I32(o.Of.Heads), I32(o.Of.KV.Heads)}, o.Of.which()...), o.Of.then(t)...)
	return []Call{{Early: true, Unit: o.Of.chooseUnit(t), Symbol: "nstf_learn_pages",
		Grid: [3]uint32{uint32(o.Of.KV.Heads), uint32(o.Of.T), 1}, Block: [3]uint32{chooseThreads, 1, 1}, Args: args}}
}

// Summarize says of whole pages of a sequence what a [Follow] knows of them without reading
// them.
type Summarize struct {
	KV    KV
	Table Address // i32: the sequence's pages
	First int     // of them
	Count int
}

// Calls returns the launch.
func (o *Summarize) Calls(t Target) []Call {
	waves := 256 / t.Wave
	args := append(append([]Arg{Ptr(o.Table), I32(o.First), I32(o.KV.Heads)}, o.KV.args()...), Ptr(o.KV.Summaries()))
	return []Call{{Early: true, Unit: Unit{"summarize.hip", fmt.Sprintf("%s SUMMARIZE_WAVES=%d", o.KV.defines(), waves)}, Symbol: "nstf_summarize",
		Grid: [3]uint32{uint32(o.Count), uint32(o.KV.Heads), 1}, Block: [3]uint32{uint32(waves * t.Wave), 1, 1}, Args: args}}
}
