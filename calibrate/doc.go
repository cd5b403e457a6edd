// Package calibrate says what a model's linears read on real text: windows of
// tokens go in, and for each distinct input the second moments that error
// feedback and importance need come out ([Measure]), and how much an error in
// each matrix costs ([Sensitivities]).
//
// It measures one run of blocks at a time (exec.Walker), so that memory is
// bounded by a block: [Hidden] carries the hidden states of all windows from
// block to block, [Gather] has a walker sum up what its linears read.
//
// Moments of one SIMD level, or of one GPU, have the same bits at any number of threads;
// levels and devices differ in the last bits of float32 sums over a window, which are
// added up in float64.
//
// Compatibility: experimental; the file is formats/stats.
package calibrate
