// Package safetensors reads and writes safetensors files, single ones and
// sharded ones with their index.
//
// In: the path of a .safetensors file or of a model.safetensors.index.json.
// Out: [formats.Tensor] values of the plain schemes whose one part, "data",
// lies in the file unread, in the order of their data, plus the string
// metadata.
//
// Invariants: a File is immutable; all its methods but Close may be called
// from any number of goroutines. The rules are those of the reference
// implementation and none is relaxed: a header of at most 100,000,000 bytes
// that starts with '{'; tensor data that covers the rest of the file without
// a hole or an overlap; sizes that follow from dtype and shape. Beyond it,
// duplicate names and unknown fields are refused, a tensor has at most 64
// dimensions and a file at most 131072 tensors. Shards named by an index must
// be plain names in the index's own folder. Opening takes at most twice the
// file and 32 MiB for tables, 64 MiB for those of an index.
//
// Source: safetensors/src/tensor.rs of huggingface/safetensors 0.8. What is
// read stays readable in every release.
package safetensors
