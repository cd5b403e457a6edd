package export

import (
	"fmt"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/arch"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
)

// An unbinder is a binder backwards: it gives a graph's tensors the names,
// the order of rows and the grouping of a foreign world.
type unbinder struct {
	m     *model.Model
	links []arch.Link
	// cast makes a tensor one that the target can hold, before its rows move:
	// not every scheme lets them.
	cast func(formats.Tensor) (formats.Tensor, error)
	// expand is what parts of one foreign tensor are cast to where their schemes
	// differ; nil: they are refused.
	expand *scheme.Scheme
	done   map[string]bool // tensors of the graph that have been given out
	// coded takes what is made of quantized tensors; nil: they are made.
	coded *codedModel
	of    map[string][]string // what the other foreign tensors are made of
	out   []formats.Tensor
}

// unbind returns the graph's tensors as the links lay them out. Where several
// links name a part, the first whose parts the graph all has is taken.
func unbind(m *model.Model, links []arch.Link, expand *scheme.Scheme, cast func(formats.Tensor) (formats.Tensor, error)) ([]formats.Tensor, error) {
	u := &unbinder{m: m, links: arch.Placed(links, m.Graph), cast: cast, expand: expand, done: map[string]bool{}}
	err := u.all()
	return u.out, err
}

func (u *unbinder) all() error {
	for _, w := range u.m.Graph.Weights() {
		if u.done[w.Name] {
			continue
		}
		if err := u.weight(w); err != nil {
			return err
		}
	}
	return nil
}

func (u *unbinder) weight(w graph.Weight) error {
	pattern, block, suffix := arch.Split(w.Name)
	for i := range u.links {
		l := &u.links[i]
		if l.Index(pattern) < 0 || !l.Holds(u.m.Graph) {
			continue
		}
		parts, err := u.parts(l, block, suffix)
		if err != nil {
			return err
		}
		if len(parts) < len(l.Parts) {
			continue
		}
		if u.coded != nil {
			for _, p := range parts {
				u.done[p.Name] = true
			}
			if !slices.ContainsFunc(parts, func(p formats.Tensor) bool { return isCoded(&p) }) {
				if l.Written == nil || l.Written(u.m.Graph, block) == nil {
					u.named(l, parts, block, suffix)
				}
				return nil
			}
			return u.record(l, parts, block, suffix)
		}
		if err := u.alike(parts); err != nil {
			return err
		}
		t, err := u.join(l, parts, block, suffix)
		if err != nil {
			return err
		}
		for _, p := range parts {
			u.done[p.Name] = true
		}
		return u.write(l, t, block, suffix)
	}
	return formats.Unsupportedf(u.m.Path, w.Name, "a tensor for which the target has no name")
}

// named notes the foreign tensors that parts make.
func (u *unbinder) named(l *arch.Link, parts []formats.Tensor, block int, suffix string) {
	count := int64(max(len(l.Among), 1))
	if l.PerExpert() {
		count = parts[0].Shape[0]
	}
	for e := range count {
		for _, p := range parts {
			name := l.Name(block, int(e), suffix)
			u.of[name] = append(u.of[name], p.Name)
		}
	}
}

// parts returns the tensors of a link that the graph has.
func (u *unbinder) parts(l *arch.Link, block int, suffix string) ([]formats.Tensor, error) {
	var out []formats.Tensor
	for _, p := range l.Parts {
		t, ok := u.m.Find(arch.Fill(p, block, 0) + suffix)
		if !ok {
			continue
		}
		t, err := u.cast(t)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// alike gives the parts of one foreign tensor one scheme.
func (u *unbinder) alike(parts []formats.Tensor) error {
	for _, p := range parts[min(len(parts), 1):] {
		if p.Scheme == parts[0].Scheme {
			continue
		}
		if u.expand == nil {
			e := formats.Unsupportedf(u.m.Path, p.Name, "%s, while %s, with which the target keeps it in one tensor, is %s", p.Scheme, parts[0].Name, parts[0].Scheme)
			e.Hint = "--dtype f16 expands both; quantize --keep 'REGEX=RECIPE' gives them one"
			return e
		}
		for i := range parts {
			var err error
			if parts[i], err = scheme.Cast(parts[i], u.expand); err != nil {
				return err
			}
		}
		return nil
	}
	return nil
}

// join puts parts one after the other and their rows into the foreign order.
func (u *unbinder) join(l *arch.Link, parts []formats.Tensor, block int, suffix string) (formats.Tensor, error) {
	t := parts[0]
	vector := len(t.Shape) == 1
	var err error
	if l.Latent {
		return checkpoint.JoinLatent(l.Foreign, parts[0], parts[1], l.LatentOf(u.m.Graph, block))
	}
	if l.Alternating {
		return u.alternate(l, parts, suffix)
	}
	if len(parts) > 1 {
		var rows, k int64
		for i := range parts {
			n, c := parts[i].Rows()
			if vector {
				n, c = c, 1
			}
			rows, k = rows+n, c
		}
		shape := []int64{rows, k}
		if vector {
			shape = shape[:1]
		}
		if t, err = scheme.Concat(l.Foreign, shape, parts...); err != nil {
			return t, err
		}
	}
	if t, err = u.reorder(l, t, block, suffix); err != nil {
		return t, err
	}
	if of := parts[0].Shape; len(of) == 3 && len(t.Shape) == 2 { // experts, whose matrices were joined
		if t, err = checkpoint.Reshape(t, t.Name, []int64{of[0], t.Shape[0] / of[0], t.Shape[1]}); err != nil {
			return t, err
		}
	}
	if l.Transposed && suffix == ".weight" {
		return transposed(t)
	}
	return t, nil
}

// reorder puts rows and columns into the foreign order, and numbers into what stands
// for them there.
func (u *unbinder) reorder(l *arch.Link, t formats.Tensor, block int, suffix string) (formats.Tensor, error) {
	var rows, columns []int64
	if l.Order != nil {
		rows = l.Order(u.m.Graph, block)
	}
	if l.Columns != nil && suffix == ".weight" {
		columns = l.Columns(u.m.Graph, block)
	}
	shape := t.Shape
	var err error
	if rows != nil {
		if t, err = scheme.PickRows(t, rows); err != nil {
			return t, err
		}
		if t, err = checkpoint.Reshape(t, t.Name, shape); err != nil {
			return t, err
		}
	}
	if columns != nil {
		if t, err = scheme.PickColumns(t, columns); err != nil {
			return t, err
		}
	}
	if l.Written != nil {
		if write := l.Written(u.m.Graph, block); write != nil {
			return mapped(t, write)
		}
	}
	return t, nil
}

// alternate has rows of the parts take turns, within each expert of a stack.
func (u *unbinder) alternate(l *arch.Link, parts []formats.Tensor, suffix string) (formats.Tensor, error) {
	shape := parts[0].Shape
	last := len(shape) - 1 // which counts rows
	if suffix == ".weight" {
		last--
	}
	flat := slices.Clone(parts)
	if last > 0 && suffix != ".weight" { // biases of a stack
		n, k := flat[0].Rows()
		for i := range flat {
			var err error
			if flat[i], err = checkpoint.Reshape(flat[i], flat[i].Name, []int64{n * k}); err != nil {
				return flat[i], err
			}
		}
	}
	t, err := checkpoint.Alternate(flat, shape[last])
	if err != nil {
		return t, err
	}
	shape = slices.Clone(shape)
	shape[last] *= int64(len(parts))
	if t, err = checkpoint.Reshape(t, t.Name, shape); err != nil || !l.Transposed || suffix != ".weight" {
		return t, err
	}
	return transposed(t)
}

// transposed turns a matrix, or each of a stack.
func transposed(t formats.Tensor) (formats.Tensor, error) {
	if len(t.Shape) < 3 {
		return checkpoint.Transpose(t)
	}
	shape := []int64{t.Shape[0], t.Shape[2], t.Shape[1]}
	t, err := checkpoint.TransposeEach(t, t.Shape[0])
	if err != nil {
		return t, err
	}
	return checkpoint.Reshape(t, t.Name, shape)
}

// write gives the tensor its name, or each share of experts, heads or [arch.Link.Among]
// its own.
func (u *unbinder) write(l *arch.Link, t formats.Tensor, block int, suffix string) error {
	for i := range l.Among {
		rows, k := t.Rows()
		n := rows / int64(len(l.Among))
		s, err := scheme.Slice(t, int64(i)*n, n)
		if err != nil {
			return err
		}
		shape := []int64{n, k}
		if l.Middle && suffix == ".weight" {
			shape = []int64{n, 1, k}
		}
		if err := u.add(s, l.Name(block, i, suffix), shape); err != nil {
			return err
		}
	}
	if l.Among != nil {
		return nil
	}
	if !l.PerExpert() {
		shape := t.Shape
		if l.Middle && suffix == ".weight" {
			shape = []int64{shape[0], 1, shape[1]}
		}
		if l.Shape != nil {
			shape = l.Shape(u.m.Graph, block)
		}
		return u.add(t, l.Name(block, 0, suffix), shape)
	}
	experts := t.Shape[0]
	rows, k := t.Rows()
	n := rows / experts
	for e := range experts {
		s, err := scheme.Slice(t, e*n, n)
		if err != nil {
			return err
		}
		shape := []int64{n, k}
		if len(t.Shape) == 2 { // a vector for each head
			shape = shape[1:]
		}
		if err := u.add(s, l.Name(block, int(e), suffix), shape); err != nil {
			return err
		}
	}
	return nil
}

func (u *unbinder) add(t formats.Tensor, name string, shape []int64) error {
	t, err := checkpoint.Reshape(t, name, shape)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	u.out = append(u.out, t)
	return nil
}
