// Package driver talks to the GPU's vendor libraries: libamdhip64 with hiprtc,
// and libcuda with NVRTC, loaded at run time without cgo.
//
// Load finds the libraries and binds them symbol by symbol, so that what an
// older runtime lacks disables one feature and not the program. A [Library]
// opens [Device]s; a device compiles units of kernels/hip, loads code, owns
// memory and makes [Stream]s, which carry out [hip.Call]s in order.
//
// Invariants:
//
//   - One operating system thread owns a device; every call of the vendor's
//     library that changes anything runs there. Only waiting happens on the
//     caller's thread. Methods may be called from any goroutine. Launch, Replay,
//     Copy and Fill only queue, without allocating; what fails later is reported
//     by the next call that waits: Wait, Download, or Capture, on its stream and on
//     those that wait for it.
//   - After an error that leaves the device unusable every call fails at once
//     with that same error. Nothing hangs, and Close still works; it may be
//     called twice.
//   - A buffer is a byte range of an allocation. Ranges are checked on the host
//     in copies; what kernels touch is the caller's business.
//
// This is the only package that uses unsafe and purego, and it imports no
// operation: to it a kernel is a symbol with a grid and arguments.
//
// Compatibility: experimental; it serves runtime/gpu and nstf doctor.
package driver
