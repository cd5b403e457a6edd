// Package nstf reads, writes and verifies NSTF packages: one file with a
// model's graph, its tensors in storage form, its tokenizer and other files
// byte for byte, and its provenance. docs/nstf.md is the specification; in
// short:
//
//	package    = preamble header zeros data        ; data begins on a page of 4096 bytes
//	preamble   = magic version reserved header-size file-size root-hash
//	magic      = 89 "NSTF" 0d 0a 1a                ; 8 bytes
//	version    = 01 00 00 00                       ; little-endian, as all that follow
//	reserved   = 00 00 00 00
//	header-size, file-size = 8 bytes each
//	root-hash  = BLAKE3(the 32 bytes before it, header)
//	header     = { "requires": [id...], "provenance": {...}, "files": [file...],
//	               "model": {...}, "tensors": [tensor...] }
//	file       = { "name", "encoding": "zstd" | "none", "decoded", "offset", "size", "hash" }
//	tensor     = { "name", "shape": [int...], "scheme", "params": {id: int...}, "form",
//	               "passthrough": true, "parts": [part...], "hash" }
//	part       = { "name", "dtype", "shape": [int...], "offset", "size" }
//	data       = extents, each at the first multiple of its alignment behind the
//	             one before: 4096 for tensors of 64 KiB or more, 64 for all else
//
// [Write] takes a [Meta] and [Item]s and streams a file; [Open] maps one
// lazily and trusts no byte of its header; [Package.Verify] hashes the rest.
// The model's JSON is opaque here and belongs to formats/model; what parts
// mean belongs to formats/scheme, which is asked to approve each tensor, both
// when reading and when writing.
//
// Invariants: an open Package is immutable and may be used from several
// goroutines until Close. Same input gives same bytes. Any release opens every
// package that an earlier stable release wrote.
package nstf
