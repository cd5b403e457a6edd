package hip

import (
	"fmt"

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
	_, lds := o.columns(t)
	return (o.Prompt || o.T > MaxRows) && lds <= uint32(t.LDS)
}

// exact says whether prompts are multiplied in float32: so are keys that are
// stored like that.
func (o *Attend) exact() bool { return o.Exact || o.KV.Format == cpu.KVF32 }

// columns returns how many numbers of its output a block computes, and the LDS
// that it needs for that.
func (o *Attend) columns(t Target) (n int, lds uint32) {
	tile, most := 64, 128 // numbers of 128 bytes; sums that registers hold
	if t.Matrix() == NoMatrix {
		most = 64
	}
	if o.exact() {
		tile, most = 32, 48
	}
	n = min(ceil(o.KV.values(), 16)*16, most)
	values, stages := n, 1
	if t.Matrix() == MMA && !o.exact() { // values as they are cached, halves copied ahead
		values = ceil(n, tile) * tile
		if o.KV.Format == cpu.KVF16 && o.KV.Dim%8 == 0 {
			stages = 2
		}
	}
	return n, uint32(128 * stages * (ceil(o.KV.Dim, tile)*tile + values))
}

// prompt is Attend for many rows.
func (o *Attend) prompt(t Target) []Call {
	columns, lds := o.columns(t)
	rows := o.tileRows(t)
	unit := Unit{"attendtiles.hip", fmt.Sprintf("%s NSTF_EXACT=%d ATTEND_COLUMNS=%d TILE_ROWS=%d ATTEND_CAP=%d ATTEND_SINKS=%d ATTEND_CHUNKED=%d", o.KV.defines(), flag(o.exact()), columns, rows, flag(o.Softcap != 0), flag(o.Sinks != 0), flag(o.Chunked))}
	features := 16
	if o.exact() || t.Matrix() == NoMatrix {
		features = t.Wave
	}
	args := append([]Arg{Ptr(o.Q), Ptr(o.Out)}, o.sinks()...)
	args = append(args, I32(4096), I32(o.T), I32(o.Heads), I32(o.KV.Heads), I32(o.Window), F32(o.Scale), F32(o.Softcap))
	args = append(append(args, o.KV.args()...), o.Rows.args()...)
	var calls []Call
	if r := o.turning(); r != nil {
		calls = r.Calls(t)
	}
	calls = append(calls, o.turnHeads(t, o.Q, o.KV.Dim)...)
	calls = append(calls, Call{
		Early: true, Unit: unit, Symbol: "nstf_attend_tiles", LDS: lds,
		Grid:  [3]uint32{uint32(ceil(o.T, rows)), uint32(o.Heads), uint32(ceil(o.KV.values(), columns))},
		Block: [3]uint32{uint32(rows / features * t.Wave), 1, 1}, Args: args,
	})
	return append(calls, o.turnHeads(t, o.Out, o.KV.values())...)
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
