package model

import (
	"fmt"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
)

// An unbinder is a binder backwards: it gives a graph's tensors the names,
// the order of rows and the grouping of a foreign world.
type unbinder struct {
	m     *Model
	links []link
	// cast makes a tensor one that the target can hold, before its rows move:
	// not every scheme lets them.
	cast func(formats.Tensor) (formats.Tensor, error)
	done map[string]bool // tensors of the graph that have been given out
	out  []formats.Tensor
}

// unbind returns the graph's tensors as the links lay them out. Where several
// links name a part, the first whose parts the graph all has is taken.
func (m *Model) unbind(links []link, cast func(formats.Tensor) (formats.Tensor, error)) ([]formats.Tensor, error) {
	u := &unbinder{m: m, links: links, cast: cast, done: map[string]bool{}}
	for _, w := range m.Graph.Weights() {
		if u.done[w.Name] {
			continue
		}
		if err := u.weight(w); err != nil {
			return nil, err
		}
	}
	return u.out, nil
}

func (u *unbinder) weight(w Weight) error {
	pattern, block, suffix := split(w.Name)
	for i := range u.links {
		l := &u.links[i]
		if l.partIndex(pattern) < 0 {
			continue
		}
		parts, err := u.parts(l, block, suffix)
		if err != nil {
			return err
		}
		if len(parts) < len(l.parts) {
			continue
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

// parts returns the tensors of a link that the graph has.
func (u *unbinder) parts(l *link, block int, suffix string) ([]formats.Tensor, error) {
	var out []formats.Tensor
	for _, p := range l.parts {
		t, ok := u.m.tensors[fill(p, block, 0)+suffix]
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

// join puts parts one after the other and their rows into the foreign order.
func (u *unbinder) join(l *link, parts []formats.Tensor, block int, suffix string) (formats.Tensor, error) {
	t := parts[0]
	vector := len(t.Shape) == 1
	var err error
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
		if t, err = scheme.Concat(l.foreign, shape, parts...); err != nil {
			return t, err
		}
	}
	if l.order != nil {
		shape := t.Shape
		if t, err = scheme.PickRows(t, l.order(u.m.Graph, block)); err != nil {
			return t, err
		}
		if t, err = reshape(t, t.Name, shape); err != nil {
			return t, err
		}
	}
	if l.transposed && suffix == ".weight" {
		return transpose(t)
	}
	return t, nil
}

// write gives the tensor its name, or each expert's share its own.
func (u *unbinder) write(l *link, t formats.Tensor, block int, suffix string) error {
	if !l.perExpert() {
		return u.add(t, l.name(block, 0, suffix), t.Shape)
	}
	experts := t.Shape[0]
	rows, k := t.Rows()
	n := rows / experts
	for e := range experts {
		s, err := scheme.Slice(t, e*n, n)
		if err != nil {
			return err
		}
		if err := u.add(s, l.name(block, int(e), suffix), []int64{n, k}); err != nil {
			return err
		}
	}
	return nil
}

func (u *unbinder) add(t formats.Tensor, name string, shape []int64) error {
	t, err := reshape(t, name, shape)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	u.out = append(u.out, t)
	return nil
}
