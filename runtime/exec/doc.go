// Package exec drives a model: graph and weights in, tokens through it, logits
// out.
//
// An [Executor] holds an opened model on a device; a [Sequence] is a text in
// progress with its own states. Who generates goes by [Sequence.Decode] and
// [Executor.Advance], which take passes of many sequences, chosen tokens fed on where
// they are; who wants logits by Prefill, which takes many tokens at once, and Step,
// which takes one. A [Walker] runs texts through a span of blocks, for calibration;
// an [Opened] device is kept open between such spans. Every function of logits over
// positions is the same whichever of them computed it, within rounding; rotary
// embeddings that depend on the length of the sequence (dynamic, longrope) take the
// length of the call, see [Sequence.Prefill].
//
// Invariants: an Executor may be used by several goroutines, passes take
// turns; a Sequence by one at a time. Slices of logits are valid until the
// next call on the same Sequence. Steps allocate nothing, apart from pages and
// buffers that double. The model stays open and
// unchanged while the Executor lives.
//
// Compatibility: signatures may grow; figures are those of float32 arithmetic,
// within 2e-4 of the logits' range of transformers' float32 logits.
package exec
