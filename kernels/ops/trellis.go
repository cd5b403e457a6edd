package ops

import "github.com/nstf/nstf/formats/scheme"

// A TrellisJob is a matrix of rotated weights to be given trellis codes, from the last
// tile of 16 columns to the first, each answering the errors behind it. Rows go by strips
// of 16, which do not depend on one another.
type TrellisJob struct {
	Bits      int
	Codebook  scheme.TCQCodebook
	Deviation float32 // of the codebook
	Seam      int     // effort, 1 to 128
	N, K      int     // multiples of 16
	W         []float32
	Units     []float32 // [N/16]: the value of a codeword of 1; 0: the strip is left alone
	// Panel returns what errors owe to columns 128*p and on, 128 or as many as there
	// are: those behind them, [width][K-to], and their own, [width][width]. nil: nothing
	// is answered.
	Panel func(p int) (behind, within []float32)
	Codes []byte // [N/16][K/16][32*Bits], to be filled in
}
