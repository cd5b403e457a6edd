// Package runtime turns a graph and its weights into tokens. Code lives below
// it: runtime/device says what a device has to do, runtime/load opens weights for
// it, runtime/cpu and runtime/gpu are the executors, runtime/exec joins their stages
// and drives sequences, runtime/cache counts pages of keys and values; runtime/sample
// and runtime/grammar say which token is next and which may be. On top of them
// runtime/generate writes one text, runtime/schedule and runtime/serve many,
// runtime/eval and runtime/bench measure, and runtime/place knows the machine. The
// standard library has a package of the same name, so nothing but this comment lies
// here.
package runtime
