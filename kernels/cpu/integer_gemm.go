package cpu

import (
	"encoding/binary"
	"math"
)

// An IntegerScratch is the memory that one worker of Integer.MatMul works in.
// The zero value is ready; it grows to the largest shape met and is never
// shared by goroutines.
type IntegerScratch struct {
	rows  []byte                 // unpacked rows, [panelRows/2][runs][unpackedBytes]
	panel []byte                 // interleaved rows, [panels][runs][panelBytes]
	sums  []float32              // products of a block of tokens, [tokens][panelGroup*panelRows]
	edge  [4 * 16]float32        // products of the ends of rows, [tokens][rows]
	run   unpacked               // of the plain program
	last  [16 * maxRunBytes]byte // the ends of rows, padded with zeros
}

// Bytes returns the memory held beside the scratch itself.
func (sc *IntegerScratch) Bytes() int { return cap(sc.rows) + cap(sc.panel) + 4*cap(sc.sums) }

// A tileKernel multiplies m tokens, 1 <= m <= Integer.tileTokens, by the panelRows rows
// of a panel over one run:
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
	blockTokens = 512                       // whose records of a run and sums stay in L2
)

// multiply unpacks rows once and runs all tokens over them, a block of tokens at a
// time and in it a run after the other: the run of panelGroup panels stays in L1
// while the tokens pass by, and their records and sums stay in L2.
func (k *Integer) multiply(c []float32, ldc int, w []byte, a *Activations, n0, n1 int, sc *IntegerScratch) {
	const group = panelGroup * panelRows
	blocks := (a.t + blockTokens - 1) / blockTokens
	for n := n0; n < n1; n += group {
		here := min(group, n1-n)
		k.packPanels(sc, w, a, n, here)
		for b := range blocks {
			lo, hi := b*a.t/blocks, (b+1)*a.t/blocks
			sc.sums = grown(sc.sums, (hi-lo)*group)
			k.multiplyBlock(a, lo, hi, here, sc)
			for t := lo; t < hi; t++ {
				copy(c[t*ldc+n:t*ldc+n+here], sc.sums[(t-lo)*group:])
			}
		}
	}
}

// multiplyBlock runs tokens lo to hi against the packed panels.
func (k *Integer) multiplyBlock(a *Activations, lo, hi, here int, sc *IntegerScratch) {
	const group = panelGroup * panelRows
	tiles := (hi - lo + k.tileTokens - 1) / k.tileTokens
	for i := range a.records {
		for j := range tiles {
			from, to := lo+j*(hi-lo)/tiles, lo+(j+1)*(hi-lo)/tiles
			for p := 0; p < here; p += panelRows {
				panel := sc.panel[(p/panelRows*a.records+i)*panelBytes:][:panelBytes]
				k.tile(to-from, a.at(from, i), panel, sc.sums[(from-lo)*group+p:], group, i > 0)
			}
		}
	}
}

// packPanels unpacks rows n to n+here of w. What the last panel holds for rows
// beyond is left over from earlier ones, and its products are dropped.
func (k *Integer) packPanels(sc *IntegerScratch, w []byte, a *Activations, n, here int) {
	const half = panelRows / 2
	size, runs := k.rowBytes(a.k), a.records
	line := runs * unpackedBytes
	sc.rows = grownBytes(sc.rows, half*line)
	sc.panel = grownBytes(sc.panel, panelGroup*runs*panelBytes)
	for j := 0; j < here; j += half {
		for r := range min(half, here-j) {
			row := w[(n+j+r)*size : (n+j+r+1)*size]
			k.unpackWhole(sc.rows[r*line:(r+1)*line], row, sc)
		}
		for i := range runs {
			dst := sc.panel[(j/panelRows*runs+i)*panelBytes+j%panelRows*4:]
			k.set.interleave(dst, sc.rows[i*unpackedBytes:], line, k.columns())
		}
	}
}

// columns is how much of an unpacked run is in use, in pieces of panelColumn.
func (k *integerScheme) columns() int {
	if k.group == 16 && k.mins {
		return 6
	}
	return 5
}

// unpackWhole unpacks a row, padding its end.
func (k *Integer) unpackWhole(dst, row []byte, sc *IntegerScratch) {
	run := k.runBytes()
	whole := len(row) / run
	if whole > 0 {
		k.unpackRuns(dst, row, whole, sc)
	}
	if rest := row[whole*run:]; len(rest) > 0 {
		clear(sc.last[copy(sc.last[:], rest):run])
		k.unpackRuns(dst[whole*unpackedBytes:], sc.last[:run], 1, sc)
	}
}

// unpackRuns unpacks whole runs, with the level's assembly where it has some.
func (k *Integer) unpackRuns(dst, w []byte, runs int, sc *IntegerScratch) {
	if k.unpackRow != nil {
		k.unpackRow(dst, w, runs)
		return
	}
	run := k.runBytes()
	for i := range runs {
		k.unpack(&sc.run, w[i*run:(i+1)*run])
		if k.set.signed {
			sc.run.sign(k.mins)
		}
		sc.run.put((*[unpackedBytes]byte)(dst[i*unpackedBytes:]), k.group, k.mins)
	}
}

// sign turns codes into signed bytes.
func (u *unpacked) sign(mins bool) {
	for i := range u.codes {
		u.codes[i] ^= 128
	}
	if mins {
		for g, s := range u.s {
			u.m[g] -= float32(128 * s)
		}
	}
}

// put writes a run as kernels read it.
func (u *unpacked) put(dst *[unpackedBytes]byte, group int, mins bool) {
	copy(dst[:], u.codes[:])
	groups := recordValues / group
	for g, s := range u.s[:groups] {
		binary.LittleEndian.PutUint32(dst[recordValues+4*g:], math.Float32bits(s))
	}
	if !mins {
		return
	}
	for g, m := range u.m[:groups] {
		binary.LittleEndian.PutUint32(dst[recordValues+4*groups+4*g:], math.Float32bits(m))
	}
}

// multiplyFew multiplies up to FewTokens tokens by rows of w, a handful of rows
// at a time, so that they are read from memory once.
func (k *Integer) multiplyFew(c []float32, ldc, rows int, w []byte, a *Activations, sc *IntegerScratch) {
	size := k.rowBytes(a.k)
	step := rows
	if a.t != 1 && a.t != 2 && a.t != 4 {
		step = max(rowsInL1/size, 1)
	}
	for n := 0; n < rows; n += step {
		here := min(step, rows-n)
		for t := 0; t < a.t; {
			m := tokensAtOnce(a.t - t)
			k.multiplyRows(c[t*ldc+n:], ldc, here, w[n*size:], a, t, m, sc)
			t += m
		}
	}
}

// rowsInL1 is how many bytes of weights are read again for the next tokens.
const rowsInL1 = 16 << 10

func tokensAtOnce(left int) int {
	switch {
	case left >= 4:
		return 4
	case left >= 2:
		return 2
	}
	return 1
}

// multiplyRows multiplies tokens t to t+m by rows of w.
func (k *Integer) multiplyRows(c []float32, ldc, rows int, w []byte, a *Activations, t, m int, sc *IntegerScratch) {
	size, run, step := k.rowBytes(a.k), k.runBytes(), a.t*recordBytes
	whole := size / run
	if whole > 0 {
		k.matVec[m](c, ldc, rows, w, size, a.at(t, 0), step, whole)
	}
	if whole == a.records {
		return
	}
	const batch = len(sc.last) / maxRunBytes
	for n := 0; n < rows; n += batch {
		here := min(batch, rows-n)
		clear(sc.last[:])
		for r := range here {
			row := w[(n+r)*size : (n+r+1)*size]
			copy(sc.last[r*run:], row[whole*run:])
		}
		k.matVec[m](sc.edge[:], batch, here, sc.last[:], run, a.at(t, whole), step, 1)
		for i := range m {
			put(c[i*ldc+n:i*ldc+n+here], sc.edge[i*batch:], whole > 0)
		}
	}
}

// stripKernels are matrix-vector kernels of unpacked rows, which lie in a cache:
// by groups of 16 or 32, without minimums and with.
type stripKernels struct{ fine, fineMins, coarse, coarseMins [5]matVecKernel }

// strip returns the kernels for what the scheme unpacks to.
func (k *Integer) strip() *[5]matVecKernel {
	s := &k.set.strips
	switch {
	case k.group == fineGroup && k.mins:
		return &s.fineMins
	case k.group == fineGroup:
		return &s.fine
	case k.mins:
		return &s.coarseMins
	}
	return &s.coarse
}

// multiplyStrips unpacks row after row and multiplies each by all tokens while it
// is in L1.
func (k *Integer) multiplyStrips(c []float32, ldc int, w []byte, a *Activations, n0, n1 int, sc *IntegerScratch) {
	size, step, strip := k.rowBytes(a.k), a.t*recordBytes, k.strip()
	sc.rows = grownBytes(sc.rows, a.records*unpackedBytes)
	for n := n0; n < n1; n++ {
		k.unpackWhole(sc.rows, w[n*size:(n+1)*size], sc)
		for t := 0; t < a.t; {
			m := tokensAtOnce(a.t - t)
			strip[m](c[t*ldc+n:], ldc, 1, sc.rows, len(sc.rows), a.at(t, 0), step, a.records)
			t += m
		}
	}
}

func grownBytes(b []byte, n int) []byte {
	if n <= cap(b) {
		return b[:n]
	}
	return make([]byte, n)
}
