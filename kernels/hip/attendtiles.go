package hip

import (
	"fmt"
	"slices"

	"github.com/nstf/nstf/kernels/cpu"
)

// tileRows is the rows of a block of attention over prompts.
func (o *Attend) tileRows(t Target) int {
	if o.Shape != nil && o.Shape.Rows != 0 {
		return o.Shape.Rows
	}
	return 64
}

// isPrompt says whether the rows go the way of prompts: where they are many, and
// a tile of keys fits.
func (o *Attend) isPrompt(t Target) bool {
	_, lds, _ := o.columns(t)
	return (o.Prompt || o.T > MaxRows) && lds <= uint32(t.LDS)
}

// exact says whether prompts are multiplied in float32: so are keys that are
// stored like that.
func (o *Attend) exact() bool { return o.Exact || o.KV.Format == cpu.KVF32 }

// columns returns how many numbers of its output a block computes, the LDS that it needs for
// that, and how many tiles that holds: a second one is copied while the first is worked on,
// where the machine has such copies and what lies in memory are halves in whole pieces.
func (o *Attend) columns(t Target) (n int, lds uint32, stages int) {
	tile, most := 64, 128 // numbers of 128 bytes; sums that registers hold
	if t.Matrix() == NoMatrix {
		most = 64
	}
	if o.exact() {
		tile, most = 32, 48
	}
	n = min(ceil(o.KV.values(), 16)*16, most)
	values, stages := n, 1
	if t.Matrix() == MMA && !o.exact() { // values as they are cached
		values = ceil(n, tile) * tile
	}
	lds = uint32(128 * (ceil(o.KV.Dim, tile)*tile + values))
	if t.Matrix() == MMA && !o.exact() && (o.KV.Dim%8 == 0 || o.KV.Format == cpu.KVQ8) && 2*lds <= uint32(t.LDS) {
		lds, stages = 2*lds, 2
	}
	return n, lds, stages
}

// A Reach is the rows of one sequence of a prompt: the state they belong to, and the positions
// of the first and the last of them.
type Reach struct{ Owner, First, Last int }

// Sizes of what is spread at once, see spread.hip.
const (
	spreadPieces = 4
	spreadMost   = 64 << 20 // bytes
	spreadPages  = 128      // an H200's cache holds what an 8 B llama's keys and values of these take
)

// spread says how many pages there is room for, and the bytes of their keys.
func (o *Attend) spread() (pages int, keys int64) {
	page := 2 * int64(o.KV.Heads) * PagePositions * int64(ceil(o.KV.Dim, 8)*8)
	if o.exact() {
		page *= 2
	}
	pages = int(max(min(spreadPages, spreadMost/(2*page)), 1))
	if o.Capacity > 0 {
		pages = min(pages, spreadPieces*ceil(o.Capacity, PagePositions))
	}
	if o.Shape != nil && o.Shape.Spread > 0 {
		pages = min(pages, o.Shape.Spread)
	}
	return pages, int64(pages) * page
}

// spreadBytes is the scratch of a prompt whose keys and values are spread: keys, values, and
// what rows keep from launch to launch.
func (o *Attend) spreadBytes(t Target) int64 {
	_, n := o.spread()
	if o.KV.Value == 0 {
		n *= 2
	}
	columns, _, _ := o.columns(t)
	return n + 4*int64(ceil(o.T, 128)*128)*int64(o.Heads)*int64(ceil(o.KV.values(), columns))*int64(o.keptFloats(t))
}

// keptFloats is what a row keeps for a head and column: two numbers in each lane that has it.
func (o *Attend) keptFloats(t Target) int {
	if o.exact() || t.Matrix() == NoMatrix {
		return 2
	}
	if t.Matrix() == MMA {
		return 2 * 2 * t.Wave / 16
	}
	return 2 * t.Wave / 16
}

// A piece is positions of a sequence that are spread at once, base a place less a page.
type piece struct{ owner, from, to, base int }

// A round is what one launch takes: pieces, and the places that they fill.
type round struct {
	pieces []piece
	places int
}

// rounds deals the positions that rows see out.
func (o *Attend) rounds() []round {
	room, _ := o.spread()
	all := []round{{}}
	for _, r := range o.Reaches {
		from, to := o.firstSeen(r.First+1)/PagePositions*PagePositions, r.Last+1
		seen := ceil(to, PagePositions) // as codes, pages before this one, and from another on
		least := 0
		if o.KV.Format.Coded() {
			least, seen = cpu.KVFirst, r.Last/PagePositions-cpu.KVNewest
		}
		for from < to {
			now := &all[len(all)-1]
			first := max(from/PagePositions, least)
			n := max(seen-first, 0) // pages to spread
			if len(now.pieces) == spreadPieces || n > 0 && now.places == room {
				all = append(all, round{})
				continue
			}
			p := piece{r.Owner, from, to, now.places - first}
			if n > room-now.places {
				n = room - now.places
				p.to = (first + n) * PagePositions
			}
			now.places += n
			now.pieces = append(now.pieces, p)
			from = p.to
		}
	}
	return all
}

// firstSeen is the first position that a row sees whose own is the last before end.
func (o *Attend) firstSeen(end int) int {
	switch {
	case o.Chunked:
		return (end - 1) / o.Window * o.Window
	case o.Window > 0:
		return max(end-o.Window, 0)
	}
	return 0
}

// args passes the pieces of a round.
func (r *round) args() []Arg {
	var args []Arg
	for i := range spreadPieces {
		p := piece{owner: -1}
		if i < len(r.pieces) {
			p = r.pieces[i]
		}
		args = append(args, I32(p.owner), I32(p.from), I32(p.to), I32(p.base))
	}
	return args
}

// prompt is Attend for many rows.
func (o *Attend) prompt(t Target) []Call {
	var calls []Call
	if r := o.turning(); r != nil {
		calls = r.Calls(t)
	}
	calls = append(calls, o.turnHeads(t, o.Q, o.KV.Dim)...)
	tiles := o.tiles(t, nil)
	if !o.spreads() {
		calls = append(calls, tiles(nil))
	} else {
		calls = append(calls, o.spreadCalls(tiles)...)
	}
	return append(calls, o.turnHeads(t, o.Out, o.KV.values())...)
}

// tiles returns the launch of attendtiles.hip as a function of the arguments that pieces have. With lists, which
// are arguments, each 64 rows read pages of theirs.
func (o *Attend) tiles(t Target, lists []Arg) func(pieces []Arg) Call {
	columns, lds, stages := o.columns(t)
	rows := o.tileRows(t)
	unit := Unit{"attendtiles.hip", fmt.Sprintf("%s NSTF_EXACT=%d ATTEND_COLUMNS=%d TILE_ROWS=%d STAGES=%d ATTEND_CAP=%d ATTEND_SINKS=%d ATTEND_CHUNKED=%d ATTEND_LISTED=%d", o.KV.defines(), flag(o.exact()), columns, rows, stages, flag(o.Softcap != 0), flag(o.Sinks != 0), flag(o.Chunked), flag(lists != nil))}
	features := 16
	if o.exact() || t.Matrix() == NoMatrix {
		features = t.Wave
	}
	args := append([]Arg{Ptr(o.Q), Ptr(o.Out)}, o.sinks()...)
	args = append(args, I32(4096), I32(o.T), I32(o.Heads), I32(o.KV.Heads), I32(o.Window), F32(o.Scale), F32(o.Softcap))
	args = append(append(args, o.KV.args()...), o.Rows.args()...)
	return func(pieces []Arg) Call {
		return Call{
			Early: true, Unit: unit, Symbol: "nstf_attend_tiles", LDS: lds,
			Grid:  [3]uint32{uint32(o.Heads), uint32(ceil(o.T, rows)), uint32(ceil(o.KV.values(), columns))}, // the longest rows of all heads first
			Block: [3]uint32{uint32(rows / features * t.Wave), 1, 1}, Args: slices.Concat(args, pieces, lists),
		}
	}
}

// spreads says whether keys and values are spread before prompts read them: those that have scales, and
// those in the host's memory, which cross the link once then.
func (o *Attend) spreads() bool {
	return o.KV.Format == cpu.KVQ8 || o.KV.Format.Coded() || o.KV.HostPages > 0
}

// spreadCalls lists, piece by piece, launches that spread and those that read that.
func (o *Attend) spreadCalls(tiles func([]Arg) Call) (calls []Call) {
	if len(o.Reaches) == 0 {
		panic("hip: a prompt whose keys and values are spread, without Reaches")
	}
	_, plane := o.spread()
	keys := o.Scratch + CounterBytes
	values, kept, planes := keys, keys+Address(plane), 1
	if o.KV.Value == 0 {
		values, kept, planes = kept, kept+Address(plane), 2
	}
	unit := Unit{"attendspread.hip", fmt.Sprintf("%s NSTF_EXACT=%d", o.KV.defines(), flag(o.exact()))}
	room := append([]Arg{Ptr(keys), Ptr(values), I32(o.KV.Heads)}, o.KV.args()...)
	room = append(room, Ptr(o.Pages), I32(o.MaxPages))
	for _, r := range o.rounds() {
		if r.places > 0 {
			calls = append(calls, Call{
				Early: true, Unit: unit, Symbol: "nstf_attend_spread", Grid: [3]uint32{uint32(r.places), uint32(o.KV.Heads), uint32(planes)},
				Block: [3]uint32{256, 1, 1}, Args: append(room[:len(room):len(room)], r.args()...),
			})
		}
		calls = append(calls, tiles(append([]Arg{Ptr(keys), Ptr(values), Ptr(kept)}, r.args()...)))
	}
	return calls
}

const turnWaves = 4 // of a block; each has one vector

// turnHeads turns the vectors of all rows and heads, where keys and values are turned.
func (o *Attend) turnHeads(t Target, x Address, width int) []Call {
	if !o.KV.Format.Coded() {
		return nil
	}
	vectors := o.T * o.Heads
	return []Call{{
		Early: true, Unit: Unit{"turnheads.hip", fmt.Sprintf("%s TURN_WIDTH=%d TURN_WAVES=%d", o.KV.defines(), width, turnWaves)}, Symbol: "nstf_turn_heads",
		Grid:  [3]uint32{uint32(ceil(vectors, turnWaves)), 1, 1},
		Block: [3]uint32{uint32(turnWaves * t.Wave), 1, 1}, Args: []Arg{Ptr(x), I32(vectors)},
	}}
}
