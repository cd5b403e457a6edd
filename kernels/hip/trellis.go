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
	Codes     Address // u16[Tiles][16*Bits]
	Failed    Address // i32[Tiles]: 1 where the processor has to do it
	Scratch   Address // ScratchBytes, at a multiple of 4 bytes
	Blocks    int     // that run at once
}

// trellisUnit is kernels/cpu's: what a deviation becomes.
const trellisUnit = 8192

// ScratchBytes returns the work space: the costs of every step, for each block.
func (o *TrellisSearch) ScratchBytes() int64 {
	return int64(o.Blocks) * 257 << (scheme.TCQState - o.Bits) * 2
}

// Calls returns the launch.
func (o *TrellisSearch) Calls(Target) []Call {
	factor, addend, paired := o.Codebook.Hash()
	return []Call{{
		Unit:   Unit{"trellis.hip", fmt.Sprintf("TCQ_BITS=%d TCQ_FACTOR=%#xu TCQ_ADDEND=%#xu TCQ_PAIRED=%d", o.Bits, factor, addend, digit(paired))},
		Symbol: "nstf_trellis", Grid: [3]uint32{uint32(min(o.Blocks, o.Tiles)), 1, 1}, Block: [3]uint32{512, 1, 1},
		Args: []Arg{Ptr(o.Z), Ptr(o.Codes), Ptr(o.Failed), Ptr(o.Scratch), I64(int64(o.Tiles)), I32(o.Seam), F32(trellisUnit / o.Deviation)},
	}}
}
