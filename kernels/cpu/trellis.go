package cpu

import (
	"fmt"
	"math"
	"slices"
)

// Sizes of the trellis code that formats/scheme calls tcq.
const (
	trellisState   = 16  // bits of a state
	trellisWeights = 256 // weights of a tile, whose states form a ring
	trellisUnit    = 8192
	trellisClip    = 27000 // weights are no farther out than codewords, ...
	trellisClear   = 4     // ... but where they were halved more than so many times
)

// A Trellis searches the codes of tiles: of all rings of 16-bit states that
// move on by a number of bits a weight, nearly the one whose codewords have
// the least squared distance from 256 given values. The bits that cross the
// ring's seam are found first, from the weights around it; with them fixed the
// search is the Viterbi algorithm (Forney, 1973) over all 65536 states.
//
// Costs are integers: the result is the same at every level. A Trellis keeps
// 0.8 to 8.3 MiB of work space, up to 2.8 more once tiles were far from all codewords,
// and serves one goroutine at a time.
type Trellis struct {
	bits    int
	seam    int // weights on each side of the seam that decide what crosses it
	unit    float32
	lanes   int // of a step
	step    trellisStep
	words   *[1 << trellisState]int16
	scales  []trellisScale               // by how often values are halved; made when needed
	history [trellisWeights + 1][]uint16 // costs by overlap before weight t
}

// A trellisScale is codewords in the unit that costs are counted in.
type trellisScale struct {
	unit    float32 // of a codeword's
	ordered []int16 // as the step reads them
	byState *[1 << trellisState]int16
}

// A trellisStep fills next from prev; see the generated stubs.
type trellisStep func(next, prev []uint16, code []int16, z int16)

// NewTrellis prepares the search for states that move on by bits, 2 to 6, and
// codewords by state whose standard deviation is given. seam, 1 to 128, is how
// many weights on each side decide which bits cross the ring's seam: 128 takes
// a third longer than 64 and leaves 0.6 % less error at 2 bits.
func (s *Set) NewTrellis(bits int, codewords *[1 << trellisState]int16, deviation float32, seam int) *Trellis {
	if bits < 2 || bits > 6 || seam < 1 || seam > trellisWeights/2 {
		panic(fmt.Sprintf("cpu: trellis of %d bits with a seam of %d", bits, seam))
	}
	t := &Trellis{bits: bits, seam: seam, unit: trellisUnit / deviation, words: codewords}
	t.step, t.lanes = s.trellis(bits)
	t.scale(0)
	overlaps := 1 << (trellisState - bits)
	for i := range t.history {
		t.history[i] = make([]uint16, overlaps, overlaps+32) // steps read up to 64 bytes at once
	}
	return t
}

// scale returns the codewords with values halved so many times.
func (t *Trellis) scale(halvings int) *trellisScale {
	for h := len(t.scales); h <= halvings; h++ {
		c := trellisScale{unit: float32(math.Ldexp(float64(t.unit), -h)), byState: new([1 << trellisState]int16)}
		for i, w := range t.words {
			c.byState[i] = int16(math.RoundToEven(float64(float32(w) * c.unit)))
		}
		c.ordered = trellisOrder(c.byState, t.bits, t.lanes)
		t.scales = append(t.scales, c)
	}
	return &t.scales[halvings]
}

// values are a tile's weights in the unit of the codewords.
func (c *trellisScale) values(z *[trellisWeights]float32, halvings int) (v [trellisWeights]int16) {
	clip := float32(math.Ldexp(trellisClip, -max(0, halvings-trellisClear)))
	for i, x := range z {
		v[i] = int16(math.RoundToEven(float64(min(max(x*c.unit, -clip), clip))))
	}
	return v
}

// trellisOrder returns the codewords in the order in which a step of vectors
// of so many lanes reads them: for each vector of overlaps, the states that
// end in them by the bits on top.
func trellisOrder(byState *[1 << trellisState]int16, bits, lanes int) []int16 {
	out := make([]int16, 0, len(byState))
	for p := 0; p < 1<<(trellisState-bits); p += lanes {
		for i := range 1 << bits {
			at := i<<(trellisState-bits) | p
			out = append(out, byState[at:at+lanes]...)
		}
	}
	return out
}

// Encode searches the states of a tile. z holds its weights in units of a
// codeword, in the order of the ring; tile gets 32*bits bytes.
func (t *Trellis) Encode(tile []byte, z *[trellisWeights]float32) {
	want(len(tile) == 2*trellisState*t.bits, "trellis", len(tile))
	var seam uint16
	var states [trellisWeights]uint16
	crosses, ok := false, false
	for h := 0; !ok; h++ { // again where a tile is so far from all codewords that costs leave their range; 12 always suffice
		c := t.scale(h)
		v := c.values(z, h)
		if !crosses {
			if seam, crosses = t.crossing(&v, c); !crosses {
				continue
			}
			if t.seam == trellisWeights/2 { // fewer weights save less than is lost where it fails
				if states, ok = t.joined(&v, seam, c); ok {
					break
				}
			}
		}
		states, ok = t.ring(&v, seam, c)
	}
	clear(tile)
	for i, s := range states {
		at := i * t.bits
		low := uint32(s) & (1<<t.bits - 1) << (at % 8)
		tile[at/8] |= byte(low)
		if low > 0xff {
			tile[at/8+1] |= byte(low >> 8)
		}
	}
}

// crossing returns the bits that cross the ring's seam in the best path through
// the weights around it; ok is false where its cost is too large to tell.
func (t *Trellis) crossing(v *[trellisWeights]int16, c *trellisScale) (seam uint16, ok bool) {
	clear(t.history[2*t.seam])
	for i := 2*t.seam - 1; i >= 0; i-- {
		t.step(t.history[i], t.history[i+1], c.ordered, v[(trellisWeights-t.seam+i)%trellisWeights])
	}
	p := argmin(t.history[0])
	if t.history[0][p] == math.MaxUint16 {
		return 0, false
	}
	seam = uint16(p)
	for i := range t.seam {
		seam = t.next(seam, v[trellisWeights-t.seam+i], t.history[i+1], c) >> t.bits
	}
	return seam, true
}

// joined is ring behind crossing, whose costs of the weights before the seam it takes
// for the ring's: they are those of all seams, so no larger than this one's. Where the
// best path by them ends at this seam, its cost is the ring's, and no other path costs
// less: the same states, of equals too. That holds for some seven tiles of eight; ok is
// false where it does not, or where costs are too large to tell.
func (t *Trellis) joined(v *[trellisWeights]int16, seam uint16, c *trellisScale) (states [trellisWeights]uint16, ok bool) {
	first := trellisWeights - t.seam // crossing's costs are those before this weight and later ones
	before := func(w int) []uint16 {
		if w < first {
			return t.history[t.seam+1+w] // where crossing went through the weights behind the seam
		}
		return t.history[w-first]
	}
	for w := first - 1; w >= 0; w-- {
		t.step(before(w), before(w+1), c.ordered, v[w])
	}
	if before(0)[seam] == math.MaxUint16 {
		return states, false
	}
	p := seam
	for w := range states {
		states[w] = t.next(p, v[w], before(w+1), c)
		p = states[w] >> t.bits
	}
	return states, p == seam
}

// ring returns the best states whose ring is closed by the given bits; ok is
// false where the cost is too large to tell.
func (t *Trellis) ring(v *[trellisWeights]int16, seam uint16, c *trellisScale) (states [trellisWeights]uint16, ok bool) {
	last := t.history[trellisWeights]
	for i := range last {
		last[i] = math.MaxUint16
	}
	last[seam] = 0
	for i := trellisWeights - 1; i >= 0; i-- {
		t.step(t.history[i], t.history[i+1], c.ordered, v[i])
	}
	if t.history[0][seam] == math.MaxUint16 {
		return states, false
	}
	p := seam
	for i := range states {
		states[i] = t.next(p, v[i], t.history[i+1], c)
		p = states[i] >> t.bits
	}
	return states, true
}

// next returns the best state that ends in the overlap p, the lowest of equals.
func (t *Trellis) next(p uint16, z int16, prev []uint16, c *trellisScale) uint16 {
	best, state := uint32(math.MaxUint32), uint16(0)
	for i := range uint16(1) << t.bits {
		s := i<<(trellisState-t.bits) | p
		if cost := trellisCost(t.bits, prev[s>>t.bits], z, c.byState[s]); uint32(cost) < best {
			best, state = uint32(cost), s
		}
	}
	return state
}

// doublings says how much finer than a step of 1/8192 of a deviation distances
// are told apart. More would cut off those of weights between the rare codewords
// far out: at 6 bits, 4 doublings leave 1.39 times the Shannon limit.
func doublings(bits int) int { return max(0, min(bits-3, 2)) }

// trellisCost is the cost of a state's weight on top of the rest: the square of
// its distance, doubled before as doublings says, with saturation. Costs of 2 bits
// are in units half as fine, since 256 of them have to fit.
func trellisCost(bits int, rest uint16, z, code int16) uint16 {
	d := saturated(int32(z) - int32(code))
	for range doublings(bits) {
		d = saturated(2 * int32(d))
	}
	square := uint32(int32(d) * int32(d))
	if bits == 2 {
		square >>= 16
	} else {
		square = (square + 1<<14) >> 15
	}
	return uint16(min(uint32(rest)+square, math.MaxUint16))
}

func saturated(x int32) int16 { return int16(min(max(x, math.MinInt16), math.MaxInt16)) }

func argmin(x []uint16) int { return slices.Index(x, slices.Min(x)) }
