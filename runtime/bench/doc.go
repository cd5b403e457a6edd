// Package bench measures how fast a model runs, beside how fast the machine
// could run it.
//
// In: an opened model and [Options]. Out: a [Result] of plain data. Every round
// times a prompt, then tokens one by one, then what the machine can do at that
// moment: the limits come from the same run as the figures, since a machine that
// others share gives other ones every minute.
//
//	prompt   tokens/s = Prompt / time; 10^9 operations/s of it, see [Cost.Operations]
//	decode   tokens/s = Gen / time; bytes/s of it, see [Cost.Bytes]
//	limits   bytes/s of reading memory, and of reading the weights where they
//	         lie; operations/s of multiplying on registers alone
//
// A model that fits the caches may exceed the limit of memory, which is why the
// weights are read in place as well: that limit holds for every size. Where a token
// takes long, memory is read between tokens, or the limit would be of another moment.
//
// Invariants: ids are the same in every run, and logits are not looked at, so
// that figures depend on shapes and stored types alone. Peak memory is read
// after the warm-up, before anything is allocated for the limits.
//
// Compatibility: fields may be added to results, none renamed.
package bench
