// Package decompose chooses the factors of the forms in formats/form: it finds
// what of a matrix, or of what a quantizer got wrong in it, a few numbers can
// say, under the norm that calibration gives.
//
// Weights W[N][K] in float32 and the second moments H[K][K] of what they are
// multiplied with go in. The loss of an error E is tr(E H E'), the expected
// squared error of the outputs. Factors in float32 come out, and the loss
// against their rank, from one factorization ([Factor]). [Correct] alternates
// between a quantizer, which the caller passes as a function, and a product of
// two thin factors; [Share] finds matrices that the experts of a mixture have
// in common; [Chain] makes a tensor train of a table. docs/decomposition.md
// has the formulas and their sources.
//
// Products are float32 by kernels/cpu; sums that decide something, and all
// small problems, are float64 by gonum. The same input gives the same factors
// at any number of threads on one SIMD level. Nothing here keeps state; a
// [Moments] may be shared by goroutines.
//
// Compatibility: experimental.
package decompose
