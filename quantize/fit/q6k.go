package fit

import (
	"math"

	"github.com/nstf/nstf/formats/tensor"
)

// ends16 is ends32 for groups of 16 with 6-bit codes, where less is to gain.
var ends16 = []float32{-1, -0.5, 0, 0.5, 1}

// fitQ6K packs a block of q6_k; the layout is that of docs/schemes/q6k.md.
//
// Each group of 16 gets its own best scale; the scale of scales follows from
// the largest; then whole scales near the ideal ones and the scale of scales
// are improved in turn.
func fitQ6K(dst []byte, x, w []float32) {
	var ideal [16]float32
	for g := range ideal {
		xs, ws := x[16*g:16*g+16], w[16*g:16*g+16]
		ideal[g] = refine(xs, ws, searchScale(xs, ws, -32, 31, ends16), -32, 31, 1)
	}
	best := q6kBlock{err: math.Inf(1)}
	top := extreme(ideal[:])
	for _, code := range [2]float32{-128, 127} {
		b := q6kBlock{h: finiteHalf(top / code)}
		for range 2 {
			b.pickScales(x, w, &ideal)
			if b.err < best.err {
				best = b
			}
			b.h = b.bestD(x, w)
		}
	}
	best.pack(dst, x)
}

// q6kBlock is a block in the making.
type q6kBlock struct {
	h   uint16 // f16 scale of scales
	sc  [16]int8
	err float64
}

// pickScales chooses each group's whole scale among those nearest the ideal.
func (b *q6kBlock) pickScales(x, w []float32, ideal *[16]float32) {
	d := tensor.F16ToF32(b.h)
	inv := inverse(d)
	b.err = 0
	for g := range b.sc {
		xs, ws := x[16*g:16*g+16], w[16*g:16*g+16]
		at := round(clamp(ideal[g]*inv, -128, 127))
		least := float32(math.MaxFloat32)
		for _, s := range [3]float32{at, at - 1, at + 1} {
			if s < -128 || s > 127 {
				continue
			}
			if e := distortion(xs, ws, d*s, -32, 31); e < least {
				least, b.sc[g] = e, int8(s)
			}
		}
		b.err += float64(least)
	}
}

// bestD returns the scale of scales that suits the codes best.
func (b *q6kBlock) bestD(x, w []float32) uint16 {
	d := tensor.F16ToF32(b.h)
	var xq, qq float64
	for g, s := range b.sc {
		p, r := moments(x[16*g:16*g+16], w[16*g:16*g+16], inverse(d*float32(s)), -32, 31)
		xq += float64(float64(p) * float64(s))
		qq += float64(float64(float64(r)*float64(s)) * float64(s))
	}
	if qq == 0 {
		return b.h
	}
	return finiteHalf(float32(xq / qq))
}

// finiteHalf rounds to f16, stays finite, and does not lose a small number to
// zero: whole scales make up for a scale of scales that is too large.
func finiteHalf(d float32) uint16 {
	h := tensor.F32ToF16(clamp(d, -maxHalf, maxHalf))
	if h&0x7FFF == 0 && d != 0 {
		h |= 1
	}
	return h
}

func (b *q6kBlock) pack(dst []byte, x []float32) {
	clear(dst[:192])
	d := tensor.F16ToF32(b.h)
	for g, s := range b.sc {
		inv := inverse(d * float32(s))
		for j, v := range x[16*g : 16*g+16] {
			q := uint8(clamp(round(v*inv), -32, 31) + 32)
			half, at := g/8, 16*(g%8)+j // at is in [0, 128)
			part, col := at/32, at%32
			dst[64*half+32*(part&1)+col] |= q & 15 << (4 * (part >> 1))
			dst[128+32*half+col] |= q >> 4 << (2 * part)
		}
		dst[192+g] = uint8(s)
	}
	le.PutUint16(dst[208:], b.h)
}
