package cpu

import (
	"encoding/binary"

	"github.com/nstf/nstf/formats/scheme"
)

// A TCQ is the codewords C[N][K] of a matrix of the scheme tcq, times their
// scales: what rotated activations are multiplied with. It is immutable and
// reads codes and scales where they lie.
type TCQ struct {
	n, k          int
	bits          int
	factor        uint32
	codes, scales []byte
	table         *[1 << scheme.TCQState]int16
	product       tcqKernel // nil: this level, codebook or shape has none
}

// A tcqKernel adds the products of 16 rows with groups of 32 columns of one
// record; see the generated stubs.
type tcqKernel func(acc *[scheme.TCQTile]float32, tiles, record *byte, groups int, factor uint32)

// NewTCQ takes the parts codes and scales of n rows of k columns.
func (s *Set) NewTCQ(p scheme.TCQ, n, k int, codes, scales []byte) *TCQ {
	want(n%scheme.TCQTile == 0 && k%scheme.TCQTile == 0 && len(codes) == n/scheme.TCQTile*k/scheme.TCQTile*32*p.Bits && len(scales) == n/scheme.TCQTile*2,
		"TCQ", n, k, len(codes), len(scales))
	q := &TCQ{n: n, k: k, bits: p.Bits, codes: codes, scales: scales, table: p.Codebook.Table()}
	factor, _, paired := p.Codebook.Hash()
	if s.tcq != nil && !paired {
		q.product, q.factor = s.tcq(p.Bits), factor
	}
	return q
}

// Tuned reports whether MatVec can be called.
func (q *TCQ) Tuned() bool { return q.product != nil }

func (q *TCQ) tileBytes() int { return 2 * scheme.TCQTile * q.bits }

// scale returns the value of a codeword of 1 in 16 rows.
func (q *TCQ) scale(strip int) float32 {
	return halfOf(q.scales, strip) / 128
}

// Row writes row r of C to dst[K], for [Set.Gemm].
func (q *TCQ) Row(dst []float32, r int) {
	const tile = scheme.TCQTile
	strip, scale, size := q.codes[r/tile*(q.k/tile)*q.tileBytes():], q.scale(r/tile), q.tileBytes()
	first, shift := r%tile*q.bits/16*2, r%tile*q.bits%16 // of column 0's state: a column is whole words of 16 bits
	for j := range q.k / tile {
		words, out := strip[j*size:][:size], (*[tile]float32)(dst[j*tile:])
		for c := range out {
			at := first + 2*c*q.bits
			next := at + 2
			if next == size { // the tile is a ring
				next = 0
			}
			state := uint16((uint32(binary.LittleEndian.Uint16(words[at:])) | uint32(binary.LittleEndian.Uint16(words[next:]))<<16) >> shift)
			out[c] = scale * float32(q.table[state])
		}
	}
}

// tcqAhead is how many bytes kernels read from where a window begins.
const tcqAhead = 64

// MatVec computes y[n0:n1] = C[n0:n1] x for row t of activations in groups of
// 32; n0 and n1 are multiples of 16, as K is. Products and their sums over a group are
// exact.
func (q *TCQ) MatVec(y []float32, a *Activations, t, n0, n1 int) {
	const tile = scheme.TCQTile
	want(a.group == coarseGroup && a.k == q.k && n0%tile == 0 && n1%tile == 0 && n1 <= q.n && len(y) >= n1, "TCQ.MatVec", a.group, a.k, q.k, n0, n1)
	group := 2 * q.tileBytes() // bytes of 32 columns
	groups, half := q.k/coarseGroup, q.k%coarseGroup != 0
	var edge [2*2*tile*scheme.TCQMaxBits + tcqAhead]byte
	var acc [tile]float32
	for strip := n0 / tile; strip < n1/tile; strip++ {
		clear(acc[:])
		codes := q.codes[strip*(q.k/tile)*q.tileBytes():]
		for r := range a.records {
			record := a.at(t, r)[:recordBytes]
			here := min(recordValues/coarseGroup, groups-r*recordValues/coarseGroup)
			at := codes[r*recordValues/coarseGroup*group:]
			if here*group+tcqAhead > len(at) {
				here--
				q.products(&acc, at, record, here)
				copy(edge[:], at[here*group:(here+1)*group])
				q.products(&acc, edge[:], record, -here-1)
				continue
			}
			q.products(&acc, at, record, here)
		}
		if half { // the other half meets activations that are zero
			copy(edge[:], codes[groups*group:][:q.tileBytes()])
			r := groups * coarseGroup / recordValues
			q.products(&acc, edge[:], a.at(t, r)[:recordBytes], -(groups%(recordValues/coarseGroup))-1)
		}
		scale := q.scale(strip)
		for i, v := range acc {
			y[strip*tile+i] = float32(scale * v)
		}
	}
}

// products runs the kernel over the first groups of a record, or, where groups
// is negative, over the one group -groups-1.
func (q *TCQ) products(acc *[scheme.TCQTile]float32, tiles []byte, record []byte, groups int) {
	if groups == 0 {
		return
	}
	if groups > 0 {
		q.product(acc, &tiles[0], &record[0], groups, q.factor)
		return
	}
	g := -groups - 1
	var one [recordBytes]byte
	copy(one[:coarseGroup], record[g*coarseGroup:])
	copy(one[atScale:], record[atScale+4*g:][:4])
	copy(one[atShift:], record[atShift+4*g:][:4])
	q.product(acc, &tiles[0], &one[0], 1, q.factor)
}

// RotateIn multiplies activations x[K] by the input side of a tensor of the
// scheme tcq: scales of columns, signs and Hadamard transforms, in place.
func RotateIn(x []float32, p scheme.TCQ, in []float32) {
	signs := scheme.NewTCQSigns(p.Seed)
	if in != nil {
		for i := range x {
			x[i] *= in[i]
		}
	}
	for at := 0; p.RotateIn > 1 && at < len(x); at += p.RotateIn {
		block := x[at : at+p.RotateIn]
		for i := range block {
			if signs.In(i) {
				block[i] = -block[i]
			}
		}
		scheme.Hadamard(block)
	}
}

// RotateOut multiplies sums y, rows from n0 on in whole blocks, by the output
// side: Hadamard transforms, signs and scales of rows, in place.
func RotateOut(y []float32, p scheme.TCQ, out []float32, n0 int) {
	signs := scheme.NewTCQSigns(p.Seed)
	for at := 0; p.RotateOut > 1 && at < len(y); at += p.RotateOut {
		block := y[at : at+p.RotateOut]
		scheme.Hadamard(block)
		for i := range block {
			if signs.Out(i) { // n0 is a multiple of the block
				block[i] = -block[i]
			}
		}
	}
	if out != nil {
		for i := range y {
			y[i] *= out[n0+i]
		}
	}
}
