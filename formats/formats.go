// Package formats holds the vocabulary that every reader and writer of NSTF
// shares: the two families of errors, and [Tensor], a tensor as it is stored,
// not yet read.
//
// What bytes and models are lives below this folder; what is computed with
// them does not. Nothing under formats imports a package of ours outside
// formats, and nothing outside formats parses foreign bytes.
//
// Invariants: a Tensor is a value and immutable; its parts may be read from
// any number of goroutines while the file behind them is open.
package formats

import (
	"fmt"
	"slices"

	"github.com/nstf/nstf/formats/tensor"
)

// A Tensor is a named, lazily read tensor in storage form.
//
// Shape is the logical shape, outermost dimension first; the last dimension
// is K, the input features, and all others together are the N rows. Scheme
// names a row of formats/scheme's table, which says what the parts mean.
type Tensor struct {
	Name   string
	Shape  []int64
	Scheme string
	// Params are the scheme's own parameters (a group size, say), nil for
	// most. The keys and their meaning stand in the scheme's page.
	Params map[string]int64
	// Parts are in the order of the scheme's page. Every part's rows follow
	// the tensor's rows.
	Parts []Part
	// Form names a row of formats/form's table, "" for dense: the tensor is
	// one matrix. Any other form has Factors, matrices under short names with
	// schemes of their own; Scheme is then "factors", Params are the form's,
	// and Parts are those of all factors in order, named FACTOR.PART.
	Form    string
	Factors []Tensor
}

// A Part is one run of bytes of a stored tensor. Most schemes have one,
// "data"; others keep scales or zero points apart.
type Part struct {
	Name  string
	DType tensor.DType
	Shape []int64
	Data  tensor.Blob
}

// Elements returns the number of weights.
func (t *Tensor) Elements() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Rows returns N and K: K is the last dimension (1 for a scalar), N the
// product of all others.
func (t *Tensor) Rows() (n, k int64) {
	if len(t.Shape) == 0 {
		return 1, 1
	}
	k = t.Shape[len(t.Shape)-1]
	n = 1
	for _, d := range t.Shape[:len(t.Shape)-1] {
		n *= d
	}
	return n, k
}

// Size returns the stored bytes of all parts.
func (t *Tensor) Size() int64 {
	var n int64
	for _, p := range t.Parts {
		n += p.Data.Len()
	}
	return n
}

// Check reads what it must to know that the stored bytes are those that were written,
// where the container has hashes. What is damaged is a [FormatError].
func (t *Tensor) Check() error {
	for i := range t.Parts {
		if err := t.Parts[i].Data.Check(); err != nil {
			return err
		}
	}
	return nil
}

// Unchecked returns the same tensor, whose bytes are not checked when they are read or
// mapped: for running a model, not for making another of it.
func (t *Tensor) Unchecked() Tensor {
	out := *t
	out.Parts = slices.Clone(t.Parts)
	for i := range out.Parts {
		out.Parts[i].Data = out.Parts[i].Data.Unchecked()
	}
	out.Factors = slices.Clone(t.Factors)
	for i := range out.Factors {
		out.Factors[i] = out.Factors[i].Unchecked()
	}
	return out
}

// String gives name, scheme or form, and shape, for messages.
func (t *Tensor) String() string {
	how := t.Scheme
	if t.Form != "" {
		how = t.Form
	}
	return fmt.Sprintf("%s (%s %v)", t.Name, how, t.Shape)
}
