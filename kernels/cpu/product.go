package cpu

import (
	"encoding/binary"
	"math"
)

// An IntegerScratch is the memory that one worker of Integer.MatMul works in.
// The zero value is ready; it grows to the largest shape met and is never
// shared by goroutines.
type IntegerScratch struct {
	BlockTokens int // of [Tiles]; 0: 512

	rows   []byte          // unpacked rows, [panelRows/2][runs][unpackedBytes]
	panel  []byte          // interleaved rows, [panels][runs][panelBytes]
	sums   []float32       // products of a block of tokens, [tokens][panelGroup*panelRows]
	edge   [8 * 16]float32 // products of the ends of rows, [tokens][rows]
	run    unpacked        // of the plain program
	whole  integerRows     // what is multiplied, or
	affine affineRows
	group  [2][]float32           // scales and zero points of a row's groups
	last   [16 * maxRunBytes]byte // the ends of rows, padded with zeros
}

// Bytes returns the memory held beside the scratch itself.
func (sc *IntegerScratch) Bytes() int {
	return cap(sc.rows) + cap(sc.panel) + 4*(cap(sc.sums)+cap(sc.group[0])+cap(sc.group[1]))
}

// A product is a level's kernels for weights of one unpacked form: in groups of 32 or
// 16, with minimums or without. Unpacked codes are those of [unpacked], and where the
// set is signed 128 less, but for groups of 32 with minimums, whose codes are below
// 128 at every level.
type product struct {
	set   *Set
	group int
	mins  bool

	strip      [5]matVecKernel // of unpacked rows, by tokens; nil: this level has none
	tile       tileKernel      // nil: this level has none
	tileTokens int             // that tile takes at once
}

// A rowSource unpacks row n, of as many runs as activations have records, to
// unpackedBytes each. What the last run lacks is zero times anything.
type rowSource interface {
	unpackRow(dst []byte, n int, sc *IntegerScratch)
}

// A tileKernel multiplies m tokens, 1 <= m <= product.tileTokens, by the panelRows
// rows of a panel over one run:
//
//	c[i*ldc+j] = the product of token i, whose record is a[i*recordBytes:], and
//	row j, added to what c holds where add is set.
//
// The products of a group are exact; each is scaled and added in float32, in
// the order of the groups.
type tileKernel func(m int, a, panel []byte, c []float32, ldc int, add bool)

const (
	panelRows   = 32
	panelGroup  = 2                         // panels that a token's record is read for
	panelBytes  = unpackedBytes * panelRows // of a run
	panelColumn = 16 * 4                    // bytes of a run that are interleaved at once
)

// many unpacks rows once and runs all tokens over them, a block of tokens at a time
// and in it a run after the other: the run of panelGroup panels stays in L1 while
// the tokens pass by, and their records and sums stay in L2.
func (p *product) many(c []float32, ldc int, w rowSource, a *Activations, n0, n1 int, sc *IntegerScratch) {
	const group = panelGroup * panelRows
	most := sc.BlockTokens
	if most == 0 {
		most = TilesFor(0).BlockTokens
	}
	blocks := (a.t + most - 1) / most
	for n := n0; n < n1; n += group {
		here := min(group, n1-n)
		p.packPanels(sc, w, a.records, n, here)
		for b := range blocks {
			lo, hi := b*a.t/blocks, (b+1)*a.t/blocks
			sc.sums = grown(sc.sums, (hi-lo)*group)
			p.multiplyBlock(a, lo, hi, here, sc)
			for t := lo; t < hi; t++ {
				copy(c[t*ldc+n:t*ldc+n+here], sc.sums[(t-lo)*group:])
			}
		}
	}
}

// multiplyBlock runs tokens lo to hi against the packed panels.
func (p *product) multiplyBlock(a *Activations, lo, hi, here int, sc *IntegerScratch) {
	const group = panelGroup * panelRows
	tiles := (hi - lo + p.tileTokens - 1) / p.tileTokens
	for i := range a.records {
		for j := range tiles {
			from, to := lo+j*(hi-lo)/tiles, lo+(j+1)*(hi-lo)/tiles
			for n := 0; n < here; n += panelRows {
				panel := sc.panel[(n/panelRows*a.records+i)*panelBytes:][:panelBytes]
				p.tile(to-from, a.at(from, i), panel, sc.sums[(from-lo)*group+n:], group, i > 0)
			}
		}
	}
}

// packPanels unpacks rows n to n+here. What the last panel holds for rows beyond is
// left over from earlier ones, and its products are dropped.
func (p *product) packPanels(sc *IntegerScratch, w rowSource, runs, n, here int) {
	const half = panelRows / 2
	line := runs * unpackedBytes
	sc.rows = grownBytes(sc.rows, half*line)
	sc.panel = grownBytes(sc.panel, panelGroup*runs*panelBytes)
	for j := 0; j < here; j += half {
		for r := range min(half, here-j) {
			w.unpackRow(sc.rows[r*line:(r+1)*line], n+j+r, sc)
		}
		for i := range runs {
			dst := sc.panel[(j/panelRows*runs+i)*panelBytes+j%panelRows*4:]
			p.set.interleave(dst, sc.rows[i*unpackedBytes:], line, p.columns())
		}
	}
}

// columns is how much of an unpacked run is in use, in pieces of panelColumn.
func (p *product) columns() int {
	if p.group == fineGroup && p.mins {
		return 6
	}
	return 5
}

// few unpacks row after row and multiplies each by all tokens while it is in L1.
func (p *product) few(c []float32, ldc int, w rowSource, a *Activations, n0, n1 int, sc *IntegerScratch) {
	step := a.pitch * recordBytes
	sc.rows = grownBytes(sc.rows, a.records*unpackedBytes)
	for n := n0; n < n1; n++ {
		w.unpackRow(sc.rows, n, sc)
		for t := 0; t < a.t; {
			m := tokensAtOnce(a.t-t, 4)
			p.strip[m](c[t*ldc+n:], ldc, 1, sc.rows, len(sc.rows), a.at(t, 0), step, a.records)
			t += m
		}
	}
}

// put writes a run as the product's kernels read it.
func (p *product) put(dst *[unpackedBytes]byte, u *unpacked) {
	if p.set.signed && !p.mins {
		for i := range u.codes {
			u.codes[i] ^= 128
		}
	}
	copy(dst[:], u.codes[:])
	groups := recordValues / p.group
	for g, s := range u.s[:groups] {
		binary.LittleEndian.PutUint32(dst[recordValues+4*g:], math.Float32bits(s))
	}
	if !p.mins {
		return
	}
	for g, m := range u.m[:groups] {
		binary.LittleEndian.PutUint32(dst[recordValues+4*groups+4*g:], math.Float32bits(m))
	}
}

func grownBytes(b []byte, n int) []byte {
	if n <= cap(b) {
		return b[:n]
	}
	return make([]byte, n)
}
