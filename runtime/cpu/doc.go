// Package cpu is the processor's executor: it implements device.Stage with
// the kernels of kernels/cpu over weights mapped from the checkpoint.
//
// A graph and its stored tensors go in; for each device.Batch, hidden states
// are computed block by block in float32 and logits come out. Weights are read
// where they lie: plain ones by the dot products directly, coded ones by integer
// kernels where the level has them, with activations rounded to int8 in groups
// of 32 or 16 (kernels/cpu.Activations states what that costs; Options.Exact avoids
// it), or else row by row through the scheme's decoder, never expanded as a
// whole.
//
// Invariants: the bits of every number depend on the graph, the weights, the
// SIMD level and the sizes of the batch, and not on the number of threads: work
// is cut by shape, and each number is summed by one worker. After the first
// passes of a size nothing is allocated, except pages of the cache and work
// space that doubles. An Engine serves one goroutine at a time and owns its
// threads; Close ends them. The tensors' file outlives the Engine.
//
// Compatibility: the exported API may grow; numbers may move within the stated
// tolerance (with Options.Exact, 2e-4 of the logits' range from float32 reference
// logits).
package cpu
