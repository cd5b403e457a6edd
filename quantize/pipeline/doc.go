// Package pipeline executes plans: it walks a model block by block, measures
// what the linears of a block read behind the blocks that are compressed
// already, fits each tensor by its recipe under those second moments, and
// carries the hidden states of the calibration text through the compressed
// block to the next. It is the one package that joins calibrate, decompose,
// quantize/* and runtime/exec.
//
// [Run] takes a model, a plan and windows of tokens, and returns fitted tensors
// for quantize/encode to write. [Chosen] makes a plan of names.
//
// Memory: the hidden states, the moments of one block and two matrices in float32
// with what fitting them takes, one where [Options.Alone] says so. Finished tensors are mapped from the work folder
// where there is one (formats/work); a run that was killed goes on there.
//
// The same model, windows and plan give the same bytes at any number of threads
// on one SIMD level, interrupted or not.
//
// Compatibility: experimental.
package pipeline
