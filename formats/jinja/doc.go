// Package jinja evaluates chat templates: what transformers renders with
// Python's jinja2, to the byte, within budgets.
//
// In: a template's source ([Parse]) and variables as JSON has them
// ([Template.Render]). Out: the text, or an [*Error] that names template and
// line, and the budget where one was exceeded. A template is part of a model
// file, that is, of what strangers wrote: it may loop, recurse and grow as it
// likes, and ends within [Limits] or with its context, whichever comes first.
// Nothing outside its variables is within its reach.
//
// # What it has
//
// The language of Jinja 3.1 in the environment that transformers makes
// (ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks and
// loopcontrols): all expressions; for with else, filter, recursion and
// the whole of loop; if, set, set blocks, with, macro, call, filter, raw,
// print, break, continue, generation (whose body is rendered), and block,
// which stands for its body. Undefined values are Jinja's default ones: they
// print as nothing, are false and empty, and fail when they are used. Names of
// attributes with an underscore before them, and methods that change a list or
// dictionary, do not exist: that is the sandbox.
//
// All filters of Jinja 3.1 but pprint, random and urlize; all tests; the
// globals range, dict, namespace, cycler, joiner, raise_exception and
// strftime_now, but not lipsum. tojson is transformers' own: json.dumps with
// ensure_ascii off, and no escaping of HTML.
//
// Of Python: None, bool, int (to 65536 bits), float with its repr, str with
// its methods but encode, translate and maketrans, list, tuple, dict and its
// views, range, % formatting, str.format, slices, and the errors where these
// raise. Generators are consumed once and have no length. Safe strings are
// markupsafe's.
//
// What is valid and missing fails with Unsupported set: the tags autoescape
// and block with scoped or required, self and super, wordwrap of texts with
// hyphens, complex numbers, lone surrogates, and printing what shows an
// address of memory. include, import and extends fail when they are reached:
// there is nothing to load.
//
// One habit of Jinja is not followed: it folds constants before it renders, and
// then a slice of a constant that has none, 5[1:], is undefined where it
// otherwise is an error. Here it is an error.
//
// # Invariants
//
// A Template is immutable and safe for concurrent use; variables are never
// changed. Within the package errors unwind as panics of one private type,
// which Parse and Render recover; any other panic is a bug.
//
// Sources of the rules: the documentation of Jinja 3.1 and Python 3.11, and
// what both do with the cases in testdata/jinja, which a script makes.
package jinja
