// Package hip holds the GPU kernels: their sources, embedded, and for each
// operation a Go type that says which source to compile with which defines and
// how to launch it.
//
// One source serves AMD (hiprtc, clang) and NVIDIA (NVRTC): the common subset
// of HIP and CUDA C++, with common.hip for what differs. An operation's type
// ([Matvec], [Attend] ...) is filled in by the executor; its Calls method gives
// the [Call]s that carry it out on a [Target]. A Call is data: which [Unit] to
// compile, which symbol of it to launch, grid, block, dynamic LDS and arguments.
// This package imports no driver, so that the same Calls run through HIP, CUDA
// and the emulator, and can be compiled ahead for a report.
//
// Invariants: addresses are the caller's and stay valid until the call has run;
// whatever changes from step to step of a decoding loop (positions, token ids,
// expert ids) is read from device memory, never from an argument, so that a
// captured graph of Calls can be replayed. Calls of one operation run in order.
// Results have the same bits on every run on one target.
//
// Compatibility: experimental; it serves runtime/gpu.
package hip
