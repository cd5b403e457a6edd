// Package grammar says which tokens may come next, so that a text obeys a grammar, a JSON
// schema, a regular expression or a list of choices.
//
// In: a source of one of these kinds ([ParseGBNF], [ParseSchema], [JSON], [ParseRegex],
// [Choices]), and the tokens of a model as bytes ([NewVocabulary]). Out: a [Matcher] that
// follows a text token by token and gives the mask of those that are legal.
//
// A [Grammar] is a pushdown automaton over bytes: a deterministic automaton for each rule,
// whose calls enter those of others. Tokens need not end where characters or rules do. A
// matcher's place is a set of states with where their rules return to, made once for all
// matchers; where a byte leads is found once and kept. What a state makes of the
// vocabulary is found once, too, for all grammars in which the state reads the same: most
// tokens are legal or not whatever called the rule, and the mask has them as they are;
// those in which the rule ends are looked at again with what was left behind
// (docs/grammar.md). The division is that of XGrammar (Dong et al., arXiv 2411.15100).
//
// Invariants: a token is in the mask exactly where [Matcher.Accept] takes it; every text
// that masks lead to can be ended. The same source gives the same masks on every machine.
// Sources that would take more than a stated number of states or steps are refused with a
// [formats.UnsupportedError], sources that are wrong with a [formats.FormatError] that
// names the place; nothing hangs. A Vocabulary, a Grammar and a Compiled serve any number
// of goroutines; a Matcher serves one. What is kept is bounded, in bytes.
//
// Compatibility: what a grammar allows does not change between releases, but where a
// defect is mended; what a schema's texts look like (spaces, digits) may, with a note.
package grammar
