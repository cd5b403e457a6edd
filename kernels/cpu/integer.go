package cpu

import (
	"encoding/binary"
	"math"

	"github.com/nstf/nstf/formats/scheme"
)

// An Integer is the integer kernels of one scheme at one level: products of
// stored weights with quantized activations. It is immutable.
//
// Every scheme of blocks has one; its weights lie in runs of
// 256 (fewer at the end of a row, where blocks are shorter), and a weight is
//
//	w = S*(u-128)  or  w = S*u - M
//
// with a code u of 8 bits and float32 S and M of 16 or 32 neighbours, which share a
// scale of activations too. A product
// sums u*q exactly in int32 over the neighbours and scales in float32:
//
//	y = sum over groups of S * (d * sum of (u-128)*q)              and
//	y = sum over groups of S * (d * sum of u*q) - M * (d * sum of q)
//
// The error against float64 on the same quantized activations is at most 2^-23
// of the sum over k of |a_k| times twice the largest |w_k| of the row, less than
// half of that as measured: codes are summed with their offset, so that a small
// weight counts like the largest. A scale that is not finite makes its row's
// outputs NaN or infinite, and no others.
type Integer struct {
	integerScheme
	product *product

	// y[t*ldy+n] = the product of row n of w and row t of a, for n < rows, t < T
	// = 1, 2 or 4 by index, and 8 where there is one. ldw counts bytes from row to row; token t's records
	// are at a[t*recordBytes+i*step:] for i < runs.
	// Without one, rows are unpacked and given to the product's strip kernels.
	matVec  [9]matVecKernel
	ordered bool // matVec takes activations in the order of eightsGeneric or sixteensGeneric, by group
	// unpackAll writes runs records of unpackedBytes from one row; nil: plain Go.
	unpackAll func(dst, w []byte, runs int)
}

type matVecKernel func(y []float32, ldy, rows int, w []byte, ldw int, a []byte, step, runs int)

// An integerScheme is what is known of a scheme at every level: its row's facts and
// its definition.
type integerScheme struct {
	name  string
	block int // weights
	bytes int // of a block
	group int // weights that share S and M, and activations that share d: 16 or 32
	mins  bool
	// unpack expands one run of 256 weights; it is the definition.
	unpack func(u *unpacked, src []byte)
}

// unpacked is a run of 256 weights: codes, and S and M of its groups.
type unpacked struct {
	codes [256]uint8
	s, m  [16]float32
}

// unpackedBytes is the size of an unpacked run in memory: 256 codes and 16
// float32 S, then 16 M; where groups are 32 wide, 8 S, 8 M and nothing.
const unpackedBytes = 384

// runBytes returns the bytes of 256 weights.
func (k *integerScheme) runBytes() int { return recordValues / k.block * k.bytes }

// rowBytes returns the bytes of a row.
func (k *integerScheme) rowBytes(n int) int { return n / k.block * k.bytes }

// unpackers lists what defines the products of each scheme of blocks.
func unpackers() map[string]func(u *unpacked, src []byte) {
	return map[string]func(u *unpacked, src []byte){
		"q4_0":    unpackQ40,
		"q4_1":    unpackQ41,
		"q5_0":    unpackQ50,
		"q5_1":    unpackQ51,
		"q8_0":    unpackQ80,
		"q2_k":    unpackQ2K,
		"q3_k":    unpackQ3K,
		"q4_k":    unpackQ4K,
		"q5_k":    unpackQ5K,
		"q6_k":    unpackQ6K,
		"iq4_nl":  unpackIQ4NL,
		"iq4_xs":  unpackIQ4XS,
		"iq1_s":   unpackIQ1S,
		"iq1_m":   unpackIQ1M,
		"iq2_xxs": unpackIQ2XXS,
		"iq2_xs":  unpackIQ2XS,
		"iq2_s":   unpackIQ2S,
		"iq3_xxs": unpackIQ3XXS,
		"iq3_s":   unpackIQ3S,
		"tq1_0":   unpackTQ10,
		"tq2_0":   unpackTQ20,
		"mxfp4":   unpackMXFP4,
		"nvfp4":   unpackNVFP4,
		"q1_0":    unpackQ10,
		"q2_0":    unpackQ20,
	}
}

// integerTable lists the schemes of blocks, in the order of formats/scheme.
func integerTable() []integerScheme {
	var rows []integerScheme
	unpack := unpackers()
	for _, s := range scheme.Table() {
		if f, ok := unpack[s.Name]; ok {
			rows = append(rows, integerScheme{s.Name, s.Block, s.BlockBytes, s.Group, s.Mins, f})
		}
	}
	return rows
}

// Integers lists the schemes that have integer kernels, by name.
func Integers() []string {
	var names []string
	for _, k := range integerTable() {
		names = append(names, k.name)
	}
	return names
}

// Integer returns the integer kernels of a scheme, nil where it has none.
func (s *Set) Integer(scheme string) *Integer {
	for _, k := range s.integers {
		if k.name == scheme {
			return k
		}
	}
	return nil
}

// genericIntegers are the kernels in plain Go.
func genericIntegers(s *Set) []*Integer {
	var ks []*Integer
	for _, row := range integerTable() {
		ks = append(ks, &Integer{integerScheme: row, product: s.product(row.group, row.mins)})
	}
	return ks
}

// Scheme returns the scheme's name.
func (k *Integer) Scheme() string { return k.name }

// Group returns the groups that activations must be quantized in for MatMul: 32,
// or 16 where weights share scales by 16 or hold 8 bits.
func (k *Integer) Group() int { return k.group }

// Fits reports whether the kernels take rows of n weights.
func (k *Integer) Fits(n int) bool { return n > 0 && n%k.block == 0 }

// Tuned reports whether this level has assembly for few tokens (matVec) and
// for many (matMul). Without, plain Go does it.
func (k *Integer) Tuned() (matVec, matMul bool) {
	return k.matVec[1] != nil || k.product.strip[1] != nil, k.product.tile != nil
}

// MatMul computes C[T][n0:n1] = A[T][K] W[n0:n1][K]^T for the rows of a, for
// one worker; the pool splits N. w is the whole matrix in the scheme's stored
// layout; c has rows at distance ldc, and c[0] is token 0 of output 0. An
// element's bits depend on k and on which kernels the activations are for (see
// [Activations.Reset]), and not on n0, n1, T or the other tokens.
func (k *Integer) MatMul(c []float32, ldc int, w []byte, a *Activations, n0, n1 int, scratch *IntegerScratch) {
	size := k.rowBytes(a.k)
	want(k.Fits(a.k) && k.group == a.group && 0 <= n0 && n0 <= n1 && len(w) >= n1*size && rowsFit(len(c), a.t, ldc, n1),
		"Integer.MatMul", a.k, a.group, n0, n1, len(w), len(c), a.t, ldc)
	if a.t == 0 || n0 == n1 {
		return
	}
	few, many := k.Tuned()
	scratch.whole = integerRows{k, w, a.k}
	switch {
	case a.many && many:
		k.product.many(c, ldc, &scratch.whole, a, n0, n1, scratch)
	case k.matVec[1] == nil && few:
		k.product.few(c, ldc, &scratch.whole, a, n0, n1, scratch)
	case k.matVec[1] != nil:
		k.multiplyFew(c[n0:], ldc, n1-n0, w[n0*size:n1*size], a, scratch)
	default:
		k.multiplyGeneric(c, ldc, w, a, n0, n1, scratch)
	}
}

// FewTokens is the most tokens that are few: those of a step, of sequences that are
// decoded together, of a draft that is verified. Few tokens are multiplied straight
// from where weights lie, each with the bits that it has alone; of many, a prompt's,
// rows are unpacked once for all tokens, with bits of their own. See
// docs/decisions/0014-width-independence.md.
const FewTokens = 16

// multiplyGeneric is the reference.
func (k *Integer) multiplyGeneric(c []float32, ldc int, w []byte, a *Activations, n0, n1 int, sc *IntegerScratch) {
	u, last := &sc.run, sc.last[:]
	size, run := k.rowBytes(a.k), k.runBytes()
	for n := n0; n < n1; n++ {
		row := w[n*size : (n+1)*size]
		for t := range a.t {
			c[t*ldc+n] = 0
		}
		for i := range a.records {
			src := row[i*run:]
			if len(src) < run { // whole blocks, then blocks of zeros
				clear(last[copy(last, src):run])
				src = last[:run]
			}
			k.unpack(u, src[:run])
			for t := range a.t {
				c[t*ldc+n] += k.dotRun(u, (*[recordBytes]byte)(a.at(t, i)))
			}
		}
	}
}

// maxRunBytes is the most that 256 weights take: those of q8_0.
const maxRunBytes = 272

// dotRun multiplies one run by one record.
func (k *integerScheme) dotRun(u *unpacked, r *[recordBytes]byte) (y float32) {
	float := func(at int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(r[at:])) }
	sums := atSum
	if k.group == fineGroup {
		sums = atSum16
	}
	for g := range recordValues / k.group {
		var sum, qs int32
		for j := g * k.group; j < (g+1)*k.group; j++ {
			q := int32(int8(r[j]))
			sum += int32(u.codes[j]) * q
			qs += q
		}
		if !k.mins {
			sum -= 128 * qs
		}
		d := float(atScale + 4*g)
		y += float32(float32(u.s[g]*d) * float32(sum))
		if k.mins {
			y -= float32(u.m[g] * float(sums+4*g))
		}
	}
	return y
}
