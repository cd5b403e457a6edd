package cpu

import (
	"fmt"
	"slices"

	"github.com/nstf/nstf/formats"
)

// A Set holds the kernels of one level. It is immutable: make one at start
// with Best or ForLevel and hand it down.
type Set struct {
	level Level

	// Every field below is filled by genericSet; a level with assembly replaces
	// those that it has. Lengths were checked by the exported methods.

	dot func(a, b []float32) float32

	// y[n] = sum over k of w[n*ld+k] * x[k]; ld counts elements.
	dotRowsF32  func(y, w []float32, ld int, x []float32)
	dotRowsBF16 func(y []float32, w []byte, ld int, x []float32)
	dotRowsF16  func(y []float32, w []byte, ld int, x []float32)

	accumRows          func(dst, p, v []float32, ld int) // dst[d] += sum over t of p[t] * v[t*ld+d]
	axpy               func(dst []float32, a float32, x []float32)
	scale              func(x []float32, a float32)
	add                func(dst, x []float32)
	mul                func(dst, x []float32)
	mulAdd             func(dst, a, b []float32)
	deltaStep          func(memory, q, k, v []float32, fade, rate float32)
	deltaStepByChannel func(memory, q, k, v, fade []float32, rate float32)
	scanStep           func(memory, q, k, v []float32, fade, rate, skip float32)

	decodeF16  func(dst []float32, src []byte)
	decodeBF16 func(dst []float32, src []byte)
	encodeF16  func(dst []byte, src []float32)
	encodeBF16 func(dst []byte, src []float32)

	maximum func(x []float32) float32                // of at least one element; a NaN may be passed over
	expSum  func(x []float32, shift float32) float32 // x = exp(x - shift), returns the sum
	logAdd  func(dst, x []float32)                   // dst += log(x) of normal numbers; whole sixteens
	gated   func(dst, x []float32, a1, a3 float32)   // dst = x * sigmoid(a1*x + a3*x*x*x)

	// dst = g * sigmoid(alpha*g) * (u + offset) of g = gate at most limit, u = up within limit
	swiGLU func(dst, gate, up []float32, alpha, limit, offset float32)

	gelu    func(dst, x []float32)
	softCap func(x []float32, limit float32)

	gemm  gemmKernel
	fused gemmKernel   // gemm with fused multiply-adds at every level
	parts *partsKernel // many tokens in place of gemm; nil: not here
	lanes laneKernels
	fixed fixedKernel
	panel panelKernels
	norm  normKernels

	quantize, quantizeFine func(dst *[recordBytes]byte, x *[recordValues]float32)
	eights, sixteens       func(dst, src *[recordBytes]byte) // see eightsGeneric and sixteensGeneric
	integers               []*Integer
	signed                 bool          // unpacked codes are signed bytes, not 128 higher
	products               [2][2]product // by Set.product
	// Codes of 256 weights at distance unpackedBytes, from 4 bits, 8 and any width, and
	// scales, see the stub; nil: plain Go.
	spreadNibbles func(dst, src []byte, runs int)
	spreadBytes   func(dst, src []byte, runs int)
	spreadBits    func(dst, src []byte, runs, bits int)
	spreadScales  func(dst []byte, s, m []float32, index *[8]uint32, step, every, runs, parts int)
	// Weights as float32 and products with them, see the stubs; nil: the scheme's
	// reference decode.
	decodeF8E4M3 func(dst []float32, src []byte, scale float32)
	decodeLevels func(dst []float32, src []byte, levels *[16]float32, factors []float32, block int)
	dotF8E4M3    func(x []float32, codes []byte, scales []float32, block int) float32
	dotLevels    func(x []float32, codes []byte, levels *[16]float32, factors []float32, block int) float32
	// The same of weights decoded without their factors.
	dotFloats8, dotFloats4 func(x, w, factors []float32, block int) float32
	// dst[(16*b+c)*128+4*r:] = the 32-bit word at src[r*ld+64*b+4*c:], for r and
	// c < 16 and b < columns: half the rows of a panel.
	interleave func(dst, src []byte, ld, columns int)
	trellis    func(bits int) (step trellisStep, lanes int)
	decoding   decodeKernels
	tcq        func(bits int) tcqKernel // nil: none
}

// Best returns the kernels of the highest level that this machine runs.
func Best() *Set {
	ls := Levels()
	return newSet(ls[len(ls)-1])
}

// ForLevel returns the kernels of one level, or an UnsupportedError where the
// machine or the build (tag noasm, another architecture) has no such level.
func ForLevel(l Level) (*Set, error) {
	if l >= levelEnd || !runs(l) {
		err := formats.Unsupportedf("", "", "instruction-set level %q on this machine", l)
		err.Hint = fmt.Sprintf("this machine and build run %v", Levels())
		return nil, err
	}
	return newSet(l), nil
}

// Level says which kernels these are.
func (s *Set) Level() Level { return s.level }

// genericSet is the plain Go set: the reference that the others are held to.
func genericSet() *Set {
	s := &Set{
		level:              LevelGeneric,
		dot:                dotGeneric,
		dotRowsF32:         dotRowsF32Generic,
		dotRowsBF16:        dotRowsBF16Generic,
		dotRowsF16:         dotRowsF16Generic,
		accumRows:          accumRowsGeneric,
		axpy:               axpyGeneric,
		scale:              scaleGeneric,
		add:                addGeneric,
		mul:                mulGeneric,
		mulAdd:             mulAddGeneric,
		deltaStep:          deltaStepGeneric,
		deltaStepByChannel: deltaStepByChannelGeneric,
		scanStep:           scanStepGeneric,
		decodeF16:          decodeF16Generic,
		decodeBF16:         decodeBF16Generic,
		encodeF16:          encodeF16Generic,
		encodeBF16:         encodeBF16Generic,
		maximum:            maximumGeneric,
		expSum:             expSumGeneric,
		logAdd:             logAddGeneric,
		gated:              gatedGeneric,
		swiGLU:             swiGLUGeneric,
		gelu:               geluGeneric,
		softCap:            softCapGeneric,
		gemm:               gemmGeneric(),
		fused:              gemmFusedGeneric(),
		lanes:              genericLanes(),
		fixed:              genericFixed(),
		panel:              genericPanel(),
		norm:               genericNorms(),
		quantize:           quantizeGeneric,
		trellis:            genericTrellis,

		quantizeFine: quantizeFineGeneric,
		eights:       eightsGeneric,
		sixteens:     sixteensGeneric,
	}
	for _, group := range []int{coarseGroup, fineGroup} {
		for _, mins := range []bool{false, true} {
			*s.product(group, mins) = product{set: s, group: group, mins: mins}
		}
	}
	s.integers = genericIntegers(s)
	return s
}

// product returns the kernels for weights in groups of 32 or 16.
func (s *Set) product(group int, mins bool) *product {
	row := &s.products[group/coarseGroup]
	if mins {
		return &row[1]
	}
	return &row[0]
}

// want panics with the caller's mistake. The sizes are copied only then, so that
// they cost the good calls no allocation.
func want(ok bool, kernel string, sizes ...int) {
	if !ok {
		panic(fmt.Sprintf("cpu: %s: slices do not fit together: %v", kernel, slices.Clone(sizes)))
	}
}
