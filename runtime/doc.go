// Package runtime turns a graph and its weights into tokens. Code lives below
// it: runtime/device says what a device has to do, runtime/cpu is the
// processor's executor, runtime/exec drives steps and sequences, runtime/cache
// keeps keys and values, runtime/sample picks tokens. The standard library has
// a package of the same name, so nothing but this comment lies here.
package runtime
