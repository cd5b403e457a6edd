// Package generate turns prompts into text: the loop of prefill, sample, step
// and decode, and conversations on top of it.
//
// In: an opened model and a prompt, as text, ids or messages. Out: the
// continuation's text piece by piece as it is certain, and [Stats]. A piece
// never holds half a UTF-8 sequence, a special token or a stop string's
// beginning.
//
// A [Generator] holds one sequence and is used by one goroutine. What is
// already computed of a prompt is not computed again, so a conversation costs
// only what is new in it. What a user types in a [Chat] can never become a
// special token.
//
// Invariants: with the same options and seed the same text comes out. The
// loop ends at a token that ends a generation (the model's configuration and
// its tokenizer name them), at a stop string, after MaxTokens, or when the
// context is full: the last is an error that matches exec.ErrContextFull,
// unless Shift is set.
package generate
