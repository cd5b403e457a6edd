package hip

import "fmt"

// Sizes of attention over prompts, see attendtiles.hip.
const (
	tileRows      = 64
	tilePositions = 32
	tileThreads   = 256
)

// prompt is Attend for many rows.
func (o *Attend) prompt(Target) []Call {
	args := []Arg{Ptr(o.Q), Ptr(o.Out), I32(o.T), I32(o.Heads), I32(o.KV.Heads), I32(o.Window), F32(o.Scale), F32(o.Softcap)}
	args = append(append(args, o.KV.args()...), o.Rows.args()...)
	return []Call{{
		Unit:   Unit{"attendtiles.hip", fmt.Sprintf("%s ATTEND_CAP=%d", o.KV.defines(), flag(o.Softcap != 0))},
		Symbol: "nstf_attend_tiles",
		Grid:   [3]uint32{uint32(ceil(o.T, tileRows)), uint32(o.Heads), 1},
		Block:  [3]uint32{tileThreads, 1, 1}, Args: args,
	}}
}
