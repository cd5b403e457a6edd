// Package stats reads and writes what calibration measured of a model: for
// each distinct input of its linears the second moments and largest values
// (of a mixture's experts too, with how many tokens came to each), and for its
// tensors how much an error in them costs.
//
// A .nstats file is a safetensors file. Its metadata holds "nstf.stats", a
// JSON object with everything but the numbers; its tensors are, all F32,
//
//	absmax:INPUT      [K]         largest magnitude of each feature
//	moments:INPUT     [K(K+1)/2]  lower triangle, row after row, of the mean of x x'
//	diagonal:INPUT    [K]         mean of squares, where there are no moments
//
// with INPUT as in [graph.Linear.Input], followed by #E for expert E of a
// mixture. Inputs are those of the model, so every number has a place that is
// known before it is read.
//
// Invariants: a File is immutable; it may be used by any number of goroutines
// until Close. Moments are read when they are asked for, one input at a time,
// so that the memory of a reader does not grow with the model. Sizes are
// checked against the file before memory is taken.
//
// Compatibility: experimental; the version stands in the file.
package stats
