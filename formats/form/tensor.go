package form

import (
	"fmt"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
)

// A layout is what a form asks of its factors and how it decodes them. Its
// methods may rely on each factor having passed [scheme.Check], and open on
// check.
type layout interface {
	// check holds the names and shapes of factors to the tensor's shape and
	// parameters.
	check(t *formats.Tensor) error
	// open returns the decoder of opened factors, in their order.
	open(t *formats.Tensor, factors []*scheme.Matrix) decoder
	// matrix returns matrix i of a stack.
	matrix(t *formats.Tensor, i int64) (formats.Tensor, error)
	// rows and columns name the factors that have a row, or a column, for each of W.
	rows() []string
	columns() []string
}

// A decoder decodes a row into dst, which has K elements.
type decoder interface {
	decodeRow(dst []float32, row int64)
}

// SchemeName stands where a dense tensor has its scheme: factors have schemes
// of their own.
const SchemeName = "factors"

// New makes a tensor of a form other than dense from its factors, which carry
// their short names, such as "a", and checks it. params are the form's own,
// nil for most.
func New(name string, id ID, shape []int64, params map[string]int64, factors ...formats.Tensor) (formats.Tensor, error) {
	f, ok := ByID(id)
	if !ok || f.layout == nil {
		panic(fmt.Sprintf("form: %d has no factors", id))
	}
	t := formats.Tensor{Name: name, Shape: slices.Clone(shape), Scheme: SchemeName, Form: f.Name, Params: params, Factors: factors}
	for i := range factors {
		for _, p := range factors[i].Parts {
			p.Name = factors[i].Name + "." + p.Name
			t.Parts = append(t.Parts, p)
		}
	}
	return t, Check(&t)
}

// Check says whether t is what its form and the schemes of its factors allow.
// Its errors are a *formats.FormatError that names the tensor, or a
// *formats.UnsupportedError for an unknown form or scheme.
func Check(t *formats.Tensor) error {
	if t.Form == "" {
		return scheme.Check(t)
	}
	f, ok := ByName(t.Form)
	if !ok || f.layout == nil {
		return formats.Unsupportedf("", t.Name, "form %q", t.Form)
	}
	if t.Scheme != SchemeName {
		return formats.Errorf("", t.Name, "scheme %q where a tensor of form %q has %q", t.Scheme, t.Form, SchemeName)
	}
	parts := t.Parts
	for i := range t.Factors {
		x := &t.Factors[i]
		if x.Form != "" {
			return formats.Errorf("", t.Name, "factor %q has a form of its own, %q", x.Name, x.Form)
		}
		if err := scheme.Check(x); err != nil {
			return within(t.Name, x.Name, err)
		}
		for _, p := range x.Parts {
			if len(parts) == 0 || parts[0].Name != x.Name+"."+p.Name || parts[0].Data.Len() != p.Data.Len() {
				return formats.Errorf("", t.Name, "parts are not those of its factors: %q is missing", x.Name+"."+p.Name)
			}
			parts = parts[1:]
		}
	}
	if len(parts) > 0 {
		return formats.Errorf("", t.Name, "part %q belongs to no factor", parts[0].Name)
	}
	return f.layout.check(t)
}

// within puts the name of a tensor before that of its factor.
func within(name, factor string, err error) error {
	switch e := err.(type) {
	case *formats.FormatError:
		c := *e
		c.Tensor, c.Reason = name, fmt.Sprintf("factor %q: %s", factor, e.Reason)
		return &c
	case *formats.UnsupportedError:
		c := *e
		c.Tensor, c.Feature = name, fmt.Sprintf("%s of factor %q", e.Feature, factor)
		return &c
	}
	return err
}

// Factor returns the factor of that short name.
func Factor(t *formats.Tensor, name string) (formats.Tensor, bool) {
	for _, f := range t.Factors {
		if f.Name == name {
			return f, true
		}
	}
	return formats.Tensor{}, false
}

// MatrixOf returns matrix i of a stack [E][N][K] as a tensor [N][K], reading
// nothing. It panics where there is no such matrix, and fails with an
// UnsupportedError where a scheme cannot be cut there, or where the form keeps
// what matrices share and cannot give one alone.
func MatrixOf(t formats.Tensor, i int64) (formats.Tensor, error) {
	rows, _ := t.Rows()
	n := t.Shape[len(t.Shape)-2]
	if i < 0 || (i+1)*n > rows {
		panic(fmt.Sprintf("form: matrix %d of %v", i, t.Shape))
	}
	if t.Form == "" {
		return scheme.Slice(t, i*n, n)
	}
	if err := Check(&t); err != nil {
		return formats.Tensor{}, err
	}
	f, _ := ByName(t.Form)
	return f.layout.matrix(&t, i)
}

// names holds the factors of t to be these, in order.
func names(t *formats.Tensor, want ...string) error {
	if len(t.Factors) != len(want) {
		return formats.Errorf("", t.Name, "%d factors, but the form %q has %d here", len(t.Factors), t.Form, len(want))
	}
	for i, name := range want {
		if got := t.Factors[i].Name; got != name {
			return formats.Errorf("", t.Name, "factor %q stands where %q belongs", got, name)
		}
	}
	return nil
}

// shaped holds a factor to a shape.
func shaped(t *formats.Tensor, name string, want ...int64) error {
	f, _ := Factor(t, name)
	if !slices.Equal(f.Shape, want) {
		return formats.Errorf("", t.Name, "factor %q has shape %v instead of %v", name, f.Shape, want)
	}
	return nil
}

// noParams refuses parameters.
func noParams(t *formats.Tensor) error {
	for key := range t.Params {
		return formats.Errorf("", t.Name, "the form %q has no parameter %q", t.Form, key)
	}
	return nil
}

// dims holds t to have at least n dimensions, none of them empty.
func dims(t *formats.Tensor, n int) error {
	if len(t.Shape) < n || slices.Min(t.Shape) < 1 {
		return formats.Errorf("", t.Name, "shape %v does not suit the form %q", t.Shape, t.Form)
	}
	return nil
}
