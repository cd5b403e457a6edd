package cpu

import (
	"encoding/binary"
	"math"
)

// ReadWords reads p once and returns the exclusive or of its little-endian
// 64-bit words, the last one padded with zeros. It does next to nothing else:
// how fast it goes over memory is what bandwidth is measured with.
func (s *Set) ReadWords(p []byte) uint64 {
	read, step := readerFor(s.level)
	whole := len(p) / step * step
	x := read(p[:whole])
	for p = p[whole:]; len(p) >= 8; p = p[8:] {
		x ^= binary.LittleEndian.Uint64(p)
	}
	var last [8]byte
	copy(last[:], p)
	return x ^ binary.LittleEndian.Uint64(last[:])
}

// A Peak is a loop that multiplies and adds on registers alone, as often as the
// processor can: the bound of what kernels with that multiplication reach.
type Peak struct {
	kind     string
	sums     int  // accumulators that one round adds to
	products int  // products that one round adds to each, all of them 1*1
	integers bool // sums are int32
	run      func(dst []float32, rounds int)
}

// The kinds of multiplication.
const (
	PeakF32  = "f32"  // float32 times float32 into float32
	PeakInt8 = "int8" // bytes times bytes into int32
	PeakBF16 = "bf16" // bfloat16 times bfloat16 into float32
	// On tiles (Intel AMX): what those who use them may reach. No kernel here does.
	PeakTileInt8 = "amx_int8"
	PeakTileBF16 = "amx_bf16"
)

// Peaks lists the multiplications that this level has and this machine runs,
// float32 first.
func (s *Set) Peaks() []Peak { return peaksFor(s.level) }

// Kind returns one of PeakF32 and its neighbours.
func (p *Peak) Kind() string { return p.kind }

// Ops returns the operations of one round: a multiplication and the addition
// that follows it are two.
func (p *Peak) Ops() int { return 2 * p.sums * p.products }

// maxPeakSums is the most accumulators of any peak loop.
const maxPeakSums = 1024

// Run does so many rounds and returns the sum over the accumulators: rounds *
// Ops/2, as long as no accumulator has left the integers that float32 holds, 2^24.
// Several goroutines may run it at once.
func (p *Peak) Run(rounds int) float64 {
	var dst [maxPeakSums]float32
	p.run(dst[:p.sums], rounds)
	sum := 0.0
	for _, v := range dst[:p.sums] {
		if p.integers {
			sum += float64(int32(math.Float32bits(v)))
		} else {
			sum += float64(v)
		}
	}
	return sum
}
