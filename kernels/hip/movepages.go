package hip

import "encoding/binary"

// MovePages has pages of keys and values change places, with their summaries, in all layers of a pool:
// movepages.hip. No page is in two moves.
type MovePages struct {
	Planes Address // what [AppendMovePlanes] makes of the layers
	Count  int     // planes
	Pages  int     // on the card
	Moves  Address // i32[N][4]: what [Move.Append] makes of each
	N      int
}

// A Move is two pages, the first's content going to the second where Out is set, and the second's
// to the first where In is.
type Move struct {
	From, To int32
	Out, In  bool
}

// Append appends the move's words.
func (m *Move) Append(words []int32) []int32 {
	return append(words, m.From, m.To, int32(flag(m.Out)+2*flag(m.In)), 0)
}

// MovePlaneBytes is the size of one of the planes that a [MovePages] reads.
const MovePlaneBytes = 24

// AppendMovePlanes appends the planes of layers: those of their pages, and their summaries, all of which lie on
// the card.
func AppendMovePlanes(dst []byte, layers []KV) []byte {
	put := func(card, host Address, bytes int64) {
		for _, v := range []uint64{uint64(card), uint64(host), uint64(bytes)} {
			dst = binary.LittleEndian.AppendUint64(dst, v)
		}
	}
	for i := range layers {
		l := &layers[i]
		card, host := l.Base, l.hostPlanes()
		for j, bytes := range l.Planes() {
			if bytes > 0 {
				put(card, host[j], bytes)
			}
			card += Address(bytes * int64(l.Pages))
		}
		if l.Summarized {
			put(l.Summaries(), l.Summaries(), l.SummaryBytes())
		}
	}
	return dst
}

const moveBlocks = 4 // that share a page

// Calls returns the launch.
func (o *MovePages) Calls(Target) []Call {
	return []Call{{
		Unit: Unit{"movepages.hip", ""}, Symbol: "nstf_move_pages",
		Grid: [3]uint32{moveBlocks, uint32(o.N), uint32(o.Count)}, Block: [3]uint32{256, 1, 1}, Args: []Arg{Ptr(o.Planes), Ptr(o.Moves), I32(o.Pages)},
	}}
}
