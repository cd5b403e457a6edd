package hip

import (
	"fmt"

	"github.com/nstf/nstf/kernels/cpu"
)

// A PromptFollow is attention of a prompt in which blocks of PagePositions rows choose the pages that they read
// together: what docs/attention.md describes, by the rules of runtime/cpu/promptpages.go. Rows that do not choose
// attend to all. Keys and values are in 16 or 32 bits, and of the pages but the newest two of each block there are
// summaries (KV.Summarized, see [Summarize]).
type PromptFollow struct {
	Attend              // Window, Turn, Prompt and Scratch do not count
	Chosen []ChosenRows // in the order of the rows
	// Shares are f64[key-value heads]: of its pages that a block reads of a head.
	Shares     Address
	LeastPages int     // that are read at least
	Counts     Address // u64[2]: pages that rows of blocks read, and those there are, are added
	// Work is PromptFollowBytes of memory, for one call at a time.
	Work Address
}

// ChosenRows are neighbouring rows of one sequence that choose, in whole blocks: the first of them lies at the
// beginning of a page, which is the fourth at least.
type ChosenRows struct{ First, Blocks int }

// FollowsPrompts says whether blocks of these queries can choose pages on a target: the cache has numbers, and a
// block's tiles are held by LDS, as then what weighs pages is.
func (o *Attend) FollowsPrompts(t Target) bool {
	a := *o
	a.Prompt = true
	return (o.KV.Format == cpu.KVF16 || o.KV.Format == cpu.KVF32) && a.isPrompt(t)
}

// blockThreads are those of a block that chooses.
const blockThreads = 256

// stride is the pages that a list has room for.
func (o *PromptFollow) stride() int { return ceil(o.Capacity, PagePositions) }

// weightBytes are those of T rows' weights, and listBytes of their lists.
func (o *PromptFollow) weightBytes() int64 {
	return 4 * int64(o.T/PagePositions) * int64(o.Heads) * int64(o.stride())
}

func (o *PromptFollow) listBytes() int64 {
	return 4 * int64(o.T/PagePositions) * int64(o.KV.Heads) * int64(o.stride()+1)
}

// PromptFollowBytes returns the size of Work for T rows.
func (o *PromptFollow) PromptFollowBytes() int64 { return o.weightBytes() + o.listBytes() }

// of is attention of some of the rows.
func (o *PromptFollow) of(first, rows int) Attend {
	a := o.Attend
	by := func(at Address, numbers int) Address { return at + Address(4*first*numbers) }
	a.T, a.Position, a.Owner = rows, by(a.Position, 1), by(a.Owner, 1)
	a.Q, a.Out = by(a.Q, a.Heads*a.KV.Dim), by(a.Out, a.Heads*a.KV.Dim)
	a.Window, a.Chunked, a.Turn, a.Prompt = 0, false, nil, true
	a.Reaches = reachesOf(a.Reaches, first, rows)
	return a
}

// reachesOf are those of some rows of a pass.
func reachesOf(all []Reach, first, rows int) (some []Reach) {
	for _, r := range all {
		n := r.Last - r.First + 1
		if lo, hi := max(first, 0), min(first+rows, n); lo < hi {
			some = append(some, Reach{Owner: r.Owner, First: r.First + lo, Last: r.First + hi - 1})
		}
		first -= n
	}
	return some
}

// Calls returns the launches.
func (o *PromptFollow) Calls(t Target) (calls []Call) {
	done := 0
	dense := func(to int) {
		if to > done {
			a := o.of(done, to-done)
			calls = append(calls, a.Calls(t)...)
		}
		done = to
	}
	for _, c := range o.Chosen {
		dense(c.First)
		calls = append(calls, o.block(t, c)...)
		done += PagePositions * c.Blocks
	}
	dense(o.T)
	return calls
}

// block lists the launches of rows that choose.
func (o *PromptFollow) block(t Target, c ChosenRows) []Call {
	a, lists := o.of(c.First, PagePositions*c.Blocks), o.Work+Address(o.weightBytes())
	a.Shape = &AttendShape{Rows: PagePositions}
	features, waves := 16, blockThreads/t.Wave
	if a.exact() || t.Matrix() == NoMatrix {
		features = t.Wave
	}
	tile := 64
	if a.exact() {
		tile = 32
	}
	unit := Unit{"promptpages.hip", fmt.Sprintf("%s NSTF_EXACT=%d ATTEND_CAP=%d ATTEND_SINKS=%d CHOOSE_MASS=0 CHOOSE_WAVES=%d", a.KV.defines(), flag(a.exact()), flag(a.Softcap != 0), flag(a.Sinks != 0), waves)}
	by := append(a.Rows.args(), Ptr(a.KV.Summaries()), Ptr(o.Shares), I32(o.LeastPages), Ptr(o.Work), I32(o.stride()))
	weigh := append(append([]Arg{Ptr(a.Q)}, a.sinks()...), I32(4096), I32(a.Heads), I32(a.KV.Heads), F32(a.Scale), F32(a.Softcap))
	weigh = append(append(weigh, a.KV.args()...), by...)
	choose := append(append([]Arg{I32(a.Heads), I32(a.KV.Heads)}, by...), Ptr(lists), Ptr(o.Counts))
	return append([]Call{
		{Early: true, Unit: unit, Symbol: "nstf_weigh_pages", LDS: uint32(128 * ceil(a.KV.Dim, tile) * tile),
			Grid: [3]uint32{uint32(c.Blocks), uint32(a.Heads), 1}, Block: [3]uint32{uint32(PagePositions / features * t.Wave), 1, 1}, Args: weigh},
		{Early: true, Unit: unit, Symbol: "nstf_choose_block",
			Grid: [3]uint32{uint32(a.KV.Heads), uint32(c.Blocks), 1}, Block: [3]uint32{blockThreads, 1, 1}, Args: choose},
	}, a.tiles(t, []Arg{Ptr(lists), I32(o.stride() + 1)})(nil))
}
