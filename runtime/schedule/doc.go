// Package schedule serves many requests on one model: continuous batching.
//
// A [Scheduler] owns an [exec.Executor]. [Scheduler.Submit] takes a [Request], a
// prompt's ids and how each of its choices goes on, and gives a [Stream] of tokens.
// Text, stop strings and protocols are the caller's: whoever has seen enough of a
// choice stops it.
//
// Each step of the scheduler reads some rows of the prompts that wait, and then lets every
// sequence that decodes choose one token: [Options.PromptRows] rows where tokens are
// decoded beside them, so that a step stays short, as many as a pass takes where none are.
// Half of them are the oldest request's, the others go to the prompts of which the fewest
// are left. Nobody starves: all go on in every step, or come first one day.
//
// A request is admitted when the pages that it needs to begin are not promised to
// those that run, in the order of arrival. Where sequences outgrow the pages of the
// pool, what is kept of old prompts goes first, the least recently used before
// others, then the sequence of the youngest request: its memory is given back, and its
// tokens are computed again when there is room. A request alone in the pool that
// outgrows it ends with the error.
//
// A prompt's own probabilities are told where a request asks for them ([Request.Scored]).
//
// What is kept of a prompt begins others that share its first tokens
// ([0019-answers-do-not-depend-on-the-load]).
//
// Invariants: a choice's tokens depend on the model, the prompt and the choice alone,
// to the bit of every logit: not on who else is served, how many rows a step took,
// whether a prompt was found, or how often the sequence had to yield. All methods may
// be called from any goroutine. A Stream holds what its reader has not taken: slow
// readers stop nobody. After [Scheduler.Close] every page is free.
//
// Compatibility: experimental.
//
// [0019-answers-do-not-depend-on-the-load]: docs/decisions/0019-answers-do-not-depend-on-the-load.md
package schedule
