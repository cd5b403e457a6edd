package form

import (
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
)

// Unit returns how many neighbouring rows and columns of a tensor lie together: where [Rows]
// and [Columns] cut.
func Unit(t *formats.Tensor) (rows, columns int64) {
	if t.Form == "" {
		return scheme.Unit(t)
	}
	rows, columns = 1, 1
	f, ok := ByName(t.Form)
	for i := range t.Factors {
		if !ok || f.layout == nil {
			break
		}
		x := &t.Factors[i]
		r, c := scheme.Unit(x)
		if slices.Contains(f.layout.rows(), x.Name) {
			rows = multiple(rows, r)
		}
		if slices.Contains(f.layout.columns(), x.Name) {
			columns = multiple(columns, max(c, 1))
		}
	}
	return rows, columns
}

// multiple is the least one of two numbers.
func multiple(a, b int64) int64 {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// Rows returns some rows of t, or of each of its matrices: what of a dense tensor is cut.
func Rows(t formats.Tensor, cut func(t formats.Tensor) (formats.Tensor, error)) (formats.Tensor, error) {
	return cutFactors(t, cut, layout.rows)
}

// Columns is Rows of columns. What products with all parts of t give is a sum: that of t.
func Columns(t formats.Tensor, cut func(t formats.Tensor) (formats.Tensor, error)) (formats.Tensor, error) {
	return cutFactors(t, cut, layout.columns)
}

// cutFactors cuts the factors that have what is cut, and leaves the others. It fails with an
// UnsupportedError where no factors have rows, or columns, of t.
func cutFactors(t formats.Tensor, cut func(t formats.Tensor) (formats.Tensor, error), which func(layout) []string) (formats.Tensor, error) {
	if t.Form == "" {
		return cut(t)
	}
	if err := Check(&t); err != nil {
		return formats.Tensor{}, err
	}
	f, _ := ByName(t.Form)
	names := which(f.layout)
	if len(names) == 0 {
		return formats.Tensor{}, formats.Unsupportedf("", t.Name, "a part of a matrix of the form %s", t.Form)
	}
	factors, shape := slices.Clone(t.Factors), slices.Clone(t.Shape)
	for i := range factors {
		name := factors[i].Name
		if !slices.Contains(names, name) {
			continue
		}
		own, err := cut(factors[i])
		if err != nil {
			return formats.Tensor{}, within(t.Name, name, err)
		}
		own.Name = name
		factors[i] = own
		last := len(shape) - 1
		switch name {
		case "a": // rows of W
			shape[last-1] = own.Shape[last-1]
		case "b":
			shape[last] = own.Shape[last]
		default:
			copy(shape[last-1:], own.Shape[last-1:])
		}
	}
	return New(t.Name, f.ID, shape, t.Params, factors...)
}
