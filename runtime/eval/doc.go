// Package eval measures how well a model predicts a text, and how far it is
// from a reference: perplexity, KL divergence, agreement of the most likely
// token, each with its standard error.
//
// In: an opened model, a text file and [Options]; out: a [Result] of plain
// data, and on request the log-probabilities as a file that later runs are
// compared with (formats/logprob), or raw logits ([DumpLogits]).
//
// The text becomes windows of one size by a [Protocol]. Row i of a window's
// logits predicts its token i+1. With l the log-softmax of a row in float64:
//
//	NLL = -mean l[token that follows]      perplexity = exp(NLL)
//	KL  = mean over rows of sum_v exp(ref[v]) * (ref[v] - l[v])
//
// Standard errors take the scored positions as independent, as the peers do;
// neighbouring tokens are not quite, so the truth is somewhat wider.
//
// Invariants: figures do not depend on the number of threads: rows are
// computed in parallel and summed in order. Two models are run side by side,
// a few rows at a time, so memory does not grow with window times vocabulary.
package eval
