// Package serve answers HTTP requests about models in the words of those whose programs
// people have: OpenAI's, Anthropic's, Ollama's and llama.cpp's.
//
// A [Server] is an http.Handler over [Models]. A request becomes a prompt by the model's
// chat template, the prompt a request to the model's scheduler (runtime/schedule), and
// the tokens that come become text, reasoning and calls of tools (formats/answer), which
// each protocol writes in its own way, whole or as a stream.
//
// Invariants: what a user types never becomes a special token. Bodies, prompts and counts
// are bounded before anything is done with them. Every error is one of the protocol's own
// shape, 4xx where the request is at fault. Keys are compared in constant time. Prompts and
// answers are in no log unless [Options.LogPrompts] is set. A client that goes away ends
// its request.
//
// Compatibility: the protocols are their owners'; the Go API is experimental.
package serve
