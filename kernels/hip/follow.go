package hip

import "fmt"

// A Follow is a step of attention that reads some pages: what docs/attention.md describes, by
// the rules of runtime/cpu/follow.go. Rows are those of Attend whose position is Least or more;
// the others are left alone. Keys, values and queries are finished, and the summaries of all
// pages but the newest two are there (KV.Summarized, see [Summarize]).
type Follow struct {
	Attend // Window, Turn, Settled, Prompt and Scratch do not count
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
	// Work is FollowBytes of memory, for one call at a time.
	Work Address
}

// HistoryFloats is how many numbers the history of a head of so many pages has.
func HistoryFloats(pages int) int { return 4 + pages }

// Threads of a block of the kernels that choose and settle.
const chooseThreads, settleThreads = 1024, 512

// foretoldPages are those of a block.
const foretoldPages = 64

// alwaysPages are read in any case: the first, and the newest.
const alwaysPages = 3

// splits is how many blocks share the pages of a head's part that are read.
func (o *Follow) splits(_ Target, s split) int { return s.spread }

// divided is how decoding is divided, without blocks that share positions.
func (o *Follow) divided(t Target) split {
	a := o.read(t)
	return a.split(t)
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

// work lists the parts of Work, in bytes.
func (o *Follow) work(t Target) (at [6]int64, size int64) {
	s, rows, pages := o.divided(t), int64(o.T), int64(o.MaxPages)
	record := int64(s.queries * (o.KV.values() + 2))
	for i, n := range []int64{
		4 * rows * int64(o.Heads) * pages, 4 * rows * int64(o.Heads) * pages, // logs, foretold
		4 * rows * int64(o.KV.Heads) * pages, 4 * rows * int64(o.KV.Heads) * pages, // weights, lists
		16 * rows * int64(o.KV.Heads), // plans
		4 * rows * int64(o.KV.Heads*s.parts) * int64(3*o.splits(t, s)) * record,
	} {
		at[i] = size
		size += (n + 255) / 256 * 256
	}
	return at, size
}

// FollowBytes returns the size of Work.
func (o *Follow) FollowBytes(t Target) int64 {
	_, n := o.work(t)
	return n
}

// Calls returns the launches.
func (o *Follow) Calls(t Target) []Call {
	read, at := o.read(t), [6]Address{}
	s := read.split(t)
	work, _ := o.work(t)
	for i := range at {
		at[i] = o.Work + Address(work[i])
	}
	splits := o.splits(t, s)
	follow := append(o.Rows.args(), I32(o.Least), I32(o.Rank), I32(o.HistoryHeads), Ptr(o.Histories))
	for _, a := range at[:5] {
		follow = append(follow, Ptr(a))
	}
	records := at[5]
	attend := fmt.Sprintf("%s ATTEND_GROUP=%d ATTEND_PARTS=%d ATTEND_QUERIES=%d ATTEND_WAVES=%d ATTEND_CAP=%d PAGES_SPLITS=%d", o.KV.defines(), o.Heads/o.KV.Heads, s.parts, s.queries, s.waves, flag(o.Softcap != 0), splits)
	args := append([]Arg{Ptr(o.Q), I32(o.Heads), I32(o.KV.Heads), F32(o.Scale), F32(o.Softcap)}, o.KV.args()...)
	args = append(append(args, follow...), Ptr(o.KV.Summaries()), Ptr(records))
	phase := func(n, blocks, kinds int) Call {
		matrix := flag(n == 1 && read.matrix(t)) // what is read in any case is few
		resident := ""
		if matrix == 1 && t.API == CUDA && read.pairs(t, s.waves) { // means beside pages
			resident = " PAGES_RESIDENT=2"
		}
		return Call{Early: true, Unit: Unit{"attendpages.hip", fmt.Sprintf("%s ATTEND_MATRIX=%d PAGES_PHASE=%d PAGES_FORETOLD=%d%s", attend, matrix, n, foretoldPages, resident)}, Symbol: "nstf_attend_pages",
			Grid: [3]uint32{uint32(blocks), uint32(kinds * o.KV.Heads * s.parts), uint32(o.T)}, Block: [3]uint32{uint32(s.waves * t.Wave), 1, 1}, Args: args}
	}
	settle := Unit{"choosepages.hip", fmt.Sprintf("%s ATTEND_SINKS=%d CHOOSE_MASS=%d CHOOSE_WAVES=%d SETTLE_WAVES=%d", attend, flag(o.Sinks != 0), flag(o.Mass < 1), chooseThreads/t.Wave, settleThreads/t.Wave)}
	grid := [3]uint32{uint32(o.KV.Heads), uint32(o.T), 1}
	heads := append(o.sinks(), I32(o.Heads), I32(o.KV.Heads))
	choose := append(append(append([]Arg(nil), heads...), follow...), Ptr(o.Shares), I32(o.LeastPages), I32(o.Refresh), F32(o.Mass))
	done := append(append(append([]Arg{Ptr(o.Out)}, heads...), follow...), Ptr(o.Shares), Ptr(records), Ptr(o.Counts))
	return []Call{
		phase(0, alwaysPages+ceil(ceil(o.Capacity, PagePositions), foretoldPages), 1),
		{Early: true, Unit: settle, Symbol: "nstf_choose_pages", Grid: grid, Block: [3]uint32{chooseThreads, 1, 1}, Args: choose},
		phase(1, splits, 3),
		{Early: true, Unit: settle, Symbol: "nstf_settle_pages", Grid: grid, Block: [3]uint32{settleThreads, 1, 1}, Args: done},
	}
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
