// Package hf reads Hugging Face model directories: configuration, tokenizer
// and template files verbatim, and the weights of safetensors files.
//
// In: a directory as transformers writes it. Out: a [Config] with typed
// access that never defaults silently, the small files byte for byte, and
// [formats.Tensor] values. What a quantization tool stored as a group of
// tensors (packed codes, scales, zero points, ...) comes out as one tensor
// named like the plain weight, with a scheme of formats/scheme, without loss;
// see quantized.go for the tools known.
//
// Invariants: a Dir is immutable; all its methods but Close may be called
// from any number of goroutines. Weights are read when asked for. Opening
// reads the small files and, of quantized checkpoints, shapes and group
// indices.
package hf
