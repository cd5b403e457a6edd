// Package kerneltest is the one table of cases that every backend's kernels are
// held to: all tail sizes, odd strides and addresses, NaN, infinities,
// subnormals, guard words around inputs and outputs, and ten repeats that must
// agree bit for bit.
//
// A [Backend] is a struct of functions over plain slices; what a backend lacks
// it leaves nil, and its tests are skipped by name. Test compares each with a
// float64 reference: the error may be twice that of a plain float32 loop, plus a
// floor that each operation states. Bench validates a kernel and then times it,
// in GB/s or GFLOP/s.
//
// The package belongs to tests. What ships imports it in one place, where kernels
// are timed for a user: [Validate] comes before [Timings] there.
package kerneltest

import (
	"github.com/nstf/nstf/kernels/ops"
)

// A Backend is the kernels of one device or instruction-set level. Signatures
// and meanings are those of package cpu; a nil field is not offered.
type Backend struct {
	Name string
	// Takes, where given, says which of an operation's problems are run, by number.
	Takes func(number int) bool

	Dot        func(a, b []float32) float32
	DotRows    func(y, w []float32, stride int, x []float32)
	MatVecF32  func(y, w, x []float32)
	MatVecBF16 func(y []float32, w []byte, x []float32)
	MatVecF16  func(y []float32, w []byte, x []float32)
	// Gemm is C[T][n0:n1] = or += A[T][K] W[n0:n1][K]^T, W by rows.
	Gemm func(c []float32, ldc int, a []float32, lda, t, n0, n1, k int, rows func(dst []float32, row int), add bool)

	Axpy               func(dst []float32, a float32, x []float32)
	AccumRows          func(dst, p, v []float32, stride int)
	Scale              func(x []float32, a float32)
	Add, Mul           func(dst, x []float32)
	MulAdd             func(dst, a, b []float32)
	DeltaStep          func(memory, q, k, v []float32, fade, rate float32)
	DeltaStepByChannel func(memory, q, k, v, fade []float32, rate float32)
	ScanStep           func(memory, q, k, v []float32, fade, rate, skip float32)

	// The panels compute C[M][N] = or += A[M][K] B[K][N].
	PanelF32 func(c []float32, ldc int, a []float32, lda int, b []float32, ldb, m, n, k int, add bool)
	PanelF16 func(c []float32, ldc int, a []float32, lda int, b []byte, ldb, m, n, k int, add bool)
	PanelQ8  func(c []float32, ldc int, a []float32, lda int, b []byte, ldb, m, n, k int, add bool)
	// Attend stores the keys and values and returns what attends to them and
	// writes out[T*Group][Value].
	Attend func(a *Attention) func(out []float32)
	// SameWidth says that its values are as wide as keys.
	SameWidth bool

	DecodeF16, DecodeBF16 func(dst []float32, src []byte)
	EncodeF16, EncodeBF16 func(dst []byte, src []float32)

	Softmax         func(x []float32)
	SoftCap         func(x []float32, limit float32)
	RMSNorm         func(dst, x, w []float32, eps, offset float32)
	LayerNorm       func(dst, x, w, b []float32, eps float32)
	RopeHalf        func(x, cos, sin []float32)
	RopeInterleaved func(x, cos, sin []float32)
	// Activate has one function for each of silu, gelu, gelu_tanh, quick_gelu,
	// relu and relu2.
	Activate map[string]func(dst, x []float32)
	SiLUMul  func(dst, gate, up []float32)
	SwiGLU   func(o ops.Gating, dst, gate, up []float32)
	XIELU    func(o ops.XIELU, dst, x []float32)
	// SigmoidMul overwrites gate.
	SigmoidMul func(dst, gate []float32)
}
