// Package cpu is the arithmetic of the processor: dot products, matrix-vector
// and matrix-matrix multiplication, conversions, normalisations, activations,
// rotary embedding, and the worker pool that spreads them over the cores.
//
// In and out are plain slices, float32 or little-endian 16-bit floats. The
// package knows no model and no policy: a weight matrix is W[N][K], a row per
// output feature, and whoever stores it in another form hands Gemm a RowDecoder.
// All of ggml's coded schemes have an [Integer], and affine codes an [Affine], whose
// kernels multiply them as they are stored with [Activations] rounded to int8; Dots
// multiplies weights that are floats of 8 or 4 bits. [Set.Coded] finds what a matrix
// has.
//
// A [Set] is the kernels of one instruction-set [Level]. [Best] takes the
// highest level that this machine runs, [ForLevel] forces one; there is no
// other switch. With the build tag noasm, and on machines without assembly,
// only LevelGeneric exists and everything works, more slowly.
//
// Invariants. A Set is immutable and may be shared by goroutines. Destinations
// must not overlap sources unless they are the same slice. No kernel reads or
// writes outside the slices given, and none allocates, except a [GemmScratch],
// an [IntegerScratch] or [Activations] that grows when a larger shape is first met. Slices of the wrong length are
// a caller's bug and panic.
//
// Determinism. Each output element is computed by one worker in an order that
// depends only on the shapes and the level, never on the number of threads,
// the split, or the address of a slice; repeating a call repeats its bits.
// Levels differ from each other by rounding, within the tolerance that each
// kernel states: within twice the error of a plain float32 loop against
// float64, unless it says something tighter.
//
// Compatibility: signatures may grow between releases; stated tolerances are
// only ever tightened.
package cpu
