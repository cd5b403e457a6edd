// Package encode turns an opened model into a package.
//
// In: a model.Model and [Options]. Out: a file under its final name, and a
// [Report] of what each tensor became. Without a dtype and a scheme nothing
// is changed: every stored block is copied as it is.
//
// Tensors go one at a time and in chunks of rows, each fitted by all cores,
// so memory does not grow with the model. The same source and options give
// the same bytes at any number of threads. The file appears by rename when it
// is whole; after an error, a full disk or the end of the context nothing is
// left.
//
// Which scheme a matrix gets is [Policy], data that may be overridden by
// role; what its rows do not fit falls back to the nearest scheme that they
// fit, and the report lists it.
//
// Compatibility: the choices may get better in every release; what they are
// stored as never changes its meaning.
package encode
