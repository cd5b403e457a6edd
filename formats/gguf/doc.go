// Package gguf reads and writes GGUF, the container of ggml and llama.cpp:
// versions 2 and 3, little-endian, single files and split ones.
//
// In: a path or bytes. Out: typed metadata in file order and
// [formats.Tensor] values whose one part, "data", lies in the file unread.
// GGUF counts dimensions from the innermost outwards; a Tensor's Shape here is
// outermost first, as everywhere in this program.
//
// Invariants: a File is immutable; all its methods but Close may be called
// from any number of goroutines. Metadata is held in memory, so it outlives
// Close; tensors do not. Nothing is trusted: every count is checked against
// the bytes that are left before memory is taken for it, offsets must be
// aligned, inside the file and free of overlap, and a key or a tensor name may
// occur once.
//
// Strings are byte strings: GGUF says UTF-8, and vocabularies break that, so
// nothing is checked or replaced. Limits of this reader: keys of 65535 bytes
// (the format's own), tensor names of 1024 bytes (the format says 64, some
// tools write more), 16384 keys, 65536 tensors a file, arrays nested 4 deep.
// With these, opening takes at most twice the file and 20 MiB for tables.
//
// Source of the layout: docs/gguf.md of the ggml repository, and what its
// gguf.cpp accepts. What is read stays readable in every release.
package gguf
