// Package tokenizer turns text into token ids and back, and messages into
// prompts.
//
// In: the tokenizer files of a Hugging Face directory (tokenizer.json and its
// configuration, or a SentencePiece tokenizer.model when that is all there
// is), or the tokenizer.ggml.* metadata of a GGUF file. Out: one [Tokenizer],
// whatever the source, made of five stages:
//
//	text -> added tokens -> normalizer -> pre-tokenizer -> model -> post-processor -> ids
//	ids  -> pieces -> decoder -> text
//
// The models are byte-level BPE, SentencePiece BPE with byte fallback and
// Unigram. The stages are the ones tokenizer.json can name; a stage or an
// option that is not implemented is refused by name with a
// [formats.UnsupportedError], damage is a [formats.FormatError], and nothing
// is guessed: a regular expression that cannot be run exactly is refused too.
//
// Invariants: a Tokenizer is immutable and safe for concurrent use; its word
// cache is bounded. Ids are those of Hugging Face's own library for
// tokenizer.json, of SentencePiece for tokenizer.model and of llama.cpp for
// GGUF, which means: GGUF vocabularies carry no Unicode normalizer, and none
// is applied. Bytes of the input that are not UTF-8 count as U+FFFD, one each.
// Encoding takes time linear in the text (times a logarithm for a text
// without a place to split).
//
// What a user types never becomes a special token where the caller says that it
// is plain text ([EncodeOptions].NoParseSpecial, [Tokenizer.EncodeRendered]).
// The exception is a special token that is an ordinary piece as well, such as a
// padding token spelled "!": the text "!" has no other id.
//
// Compatibility: the exported API follows the module's version; the bytes
// [Tokenizer.JSON] writes may gain optional keys, never change meaning.
package tokenizer
