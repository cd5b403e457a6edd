package hip

import (
	"fmt"

	"github.com/nstf/nstf/formats/scheme"
)

// A TrellisSearch finds the codes of tiles of the scheme tcq, the same bits as
// kernels/cpu's Trellis: see trellis.hip. Tiles that follow one another in a row of
// tiles depend on the codes of the ones before by feedback; those of different rows
// do not, and are searched together.
type TrellisSearch struct {
	Bits      int
	Codebook  scheme.TCQCodebook
	Deviation float32 // of the codebook
	Seam      int     // 1 to 128, as for the processor
	Tiles     int
	Z         Address // f32[Tiles][256], in units of a codeword
	Codes     Address // u16[Tiles][16*Bits], each tile at a multiple of Stride
	Stride    int64   // bytes, a multiple of 4; 0: tiles follow one another
	Scratch   Address // ScratchBytes, at a multiple of 16 bytes
	Blocks    int     // that run at once
}

// trellisUnit is kernels/cpu's: what a deviation becomes.
const trellisUnit = 8192

// trellisHistory is the levels of costs that a block keeps: SEARCH_HISTORY.
const trellisHistory = 255 + 128

// ScratchBytes returns the work space: the costs of the steps, for each block.
func (o *TrellisSearch) ScratchBytes() int64 {
	return int64(o.Blocks) * trellisHistory << (scheme.TCQState - o.Bits) * 2
}

// trellisUnitOf is the unit of the kernels of trellis codes.
func trellisUnitOf(file string, bits int, book scheme.TCQCodebook) Unit {
	factor, addend, paired := book.Hash()
	return Unit{file, fmt.Sprintf("TCQ_BITS=%d TCQ_FACTOR=%#xu TCQ_ADDEND=%#xu TCQ_PAIRED=%d", bits, factor, addend, digit(paired))}
}

// Calls returns the launch.
func (o *TrellisSearch) Calls(t Target) []Call {
	stride := o.Stride
	if stride == 0 {
		stride = int64(32 * o.Bits)
	}
	return []Call{{
		Unit:   trellisUnitOf("trellis.hip", o.Bits, o.Codebook),
		Symbol: "nstf_trellis", Grid: [3]uint32{uint32(min(o.Blocks, o.Tiles)), 1, 1}, Block: [3]uint32{uint32(512 + t.Wave), 1, 1},
		Args: []Arg{Ptr(o.Z), Ptr(o.Codes), I64(stride), Ptr(o.Scratch), I32(o.Tiles), I32(o.Seam), F32(trellisUnit / o.Deviation)},
	}}
}
