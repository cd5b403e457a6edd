// Package pipeline walks a model block by block: it measures what the linears
// of a block read behind the blocks that are compressed already, fits them to
// trellis codes that answer those second moments, and carries the hidden states
// of the calibration text through the compressed block to the next.
//
// A model, windows of tokens and a number of bits go in; fitted tensors come
// out, for quantize/encode to write. It is the one package that joins
// calibrate, quantize/fit and runtime/exec.
//
// Memory: the hidden states, the moments and one block in float32, and the
// fitted tensors. The same model, windows and options give the same tensors at
// any number of threads on one SIMD level.
//
// Compatibility: experimental.
package pipeline
