// Package gpu is the GPU's executor: it implements device.Stage with the
// kernels of kernels/hip, on whatever driver runtime/gpu/driver finds.
//
// A graph and its stored tensors go in; the weights are copied to the device
// once, in the order of bytes that its kernels like, and stay coded there. A
// pass is a list of hip.Calls over device memory: tokens go up, logits or token
// ids come down, hidden states, keys, values and what changes from step to step
// stay. A step of few tokens is captured in a graph and replayed.
//
// Invariants: the bits of every number depend on the graph, the weights, the
// device's target and the sizes of the batch. Memory is planned before anything
// is placed: see [Plan]. An Engine serves one goroutine at a time. The tensors'
// file is not needed once New has returned, but for tables that are read row by
// row (inputs of each layer by token).
//
// Compatibility: the exported API may grow; numbers may move within the stated
// tolerance (with Options.Exact, 2e-4 of the logits' range from float32 reference
// logits).
package gpu
