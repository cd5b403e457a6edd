package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// A binder finds a graph's tensors among a checkpoint's. Splitting, stacking
// and reordering are done on row boundaries, so stored blocks stay as they
// are and nothing is read.
type binder struct {
	file     string
	g        *Graph
	links    []link
	source   map[string]formats.Tensor
	prefixes []prefix // other spellings of the checkpoint's names
	used     map[string]bool
	shapes   map[string][]int64 // of the graph's weights
	rowsOf   rowsOf
}

// rowsOf says for each row of a foreign tensor's parts, in a link and a block,
// which foreign row it is. The last one is kept: the parts of a fused matrix
// are asked for one after the other.
type rowsOf struct {
	link    *link
	block   int
	inverse []int64
}

// A prefix is another spelling of foreign names: those that start with from
// start with to instead.
type prefix struct{ from, to string }

func newBinder(file string, g *Graph, links []link, prefixes []prefix, tensors []formats.Tensor) *binder {
	b := &binder{file: file, g: g, links: links, prefixes: prefixes, source: map[string]formats.Tensor{}, used: map[string]bool{}, shapes: map[string][]int64{}}
	for _, w := range g.Weights() {
		b.shapes[w.Name] = w.Shape
	}
	for _, t := range tensors {
		b.source[t.Name] = t
	}
	return b
}

// bind returns the graph's tensors by name, and those of the checkpoint that
// the graph does not read.
func (b *binder) bind(all []formats.Tensor) (map[string]formats.Tensor, []formats.Tensor, error) {
	out := map[string]formats.Tensor{}
	for _, w := range b.g.Weights() {
		t, err := b.resolve(w)
		if err != nil {
			return nil, nil, err
		}
		out[w.Name] = t
	}
	var rest []formats.Tensor
	for _, t := range all {
		if !b.used[t.Name] {
			rest = append(rest, t)
		}
	}
	return out, rest, nil
}

// find returns the checkpoint's tensor of a name in any spelling.
func (b *binder) find(name string) (formats.Tensor, bool) {
	if t, ok := b.source[name]; ok {
		return t, true
	}
	for _, p := range b.prefixes {
		if rest, ok := strings.CutPrefix(name, p.from); ok {
			if t, ok := b.source[p.to+rest]; ok {
				return t, true
			}
		}
	}
	return formats.Tensor{}, false
}

func (b *binder) resolve(w Weight) (formats.Tensor, error) {
	pattern, block, suffix := split(w.Name)
	var tried []string
	for i := range b.links {
		l := &b.links[i]
		part := l.partIndex(pattern)
		if part < 0 {
			continue
		}
		first := l.name(block, 0, suffix)
		if _, ok := b.find(first); !ok {
			tried = append(tried, first)
			continue
		}
		t, err := b.read(l, part, w, block, suffix)
		if err != nil {
			return t, err
		}
		if t, err = reshape(t, w.Name, w.Shape); err != nil {
			return t, b.wrap(w.Name, err)
		}
		return t, nil
	}
	return formats.Tensor{}, formats.Errorf(b.file, strings.Join(tried, `" or "`), "tensor is missing (it is the graph's %s)", w.Name)
}

// read takes a weight out of the foreign tensor or tensors of a link.
func (b *binder) read(l *link, part int, w Weight, block int, suffix string) (formats.Tensor, error) {
	if !l.perExpert() {
		return b.rows(l, part, w, block, l.name(block, 0, suffix), suffix, 1)
	}
	experts := w.Shape[0]
	pieces := make([]formats.Tensor, experts)
	for e := range pieces {
		name := l.name(block, e, suffix)
		if _, ok := b.find(name); !ok {
			return formats.Tensor{}, formats.Errorf(b.file, name, "tensor is missing (expert %d of %d)", e, experts)
		}
		var err error
		if pieces[e], err = b.rows(l, part, w, block, name, suffix, experts); err != nil {
			return formats.Tensor{}, err
		}
	}
	t, err := scheme.Concat(w.Name, w.Shape, pieces...)
	if err != nil {
		return t, b.wrap(w.Name, err)
	}
	return t, nil
}

// rows takes the rows of one part out of a foreign tensor that holds a share
// of 1/experts of it.
func (b *binder) rows(l *link, part int, w Weight, block int, name, suffix string, experts int64) (formats.Tensor, error) {
	t, _ := b.find(name)
	b.used[t.Name] = true
	var total, start, n, k int64
	for i, p := range l.parts {
		rows, cols := b.shape(fill(p, block, 0), suffix)
		if i == part {
			start, n, k = total, rows/experts, cols
		}
		total += rows / experts
	}
	var err error
	if t, err = asRows(t, total, k, l.transposed && suffix == ".weight"); err != nil {
		return t, b.wrap(t.Name, err)
	}
	switch {
	case l.order != nil:
		t, err = scheme.PickRows(t, b.inverse(l, block)[start:start+n])
	case n != total:
		t, err = scheme.Slice(t, start, n)
	}
	if err != nil {
		return t, b.wrap(t.Name, err)
	}
	return t, nil
}

// inverse returns where the foreign tensor has each row of the link's parts.
func (b *binder) inverse(l *link, block int) []int64 {
	if r := &b.rowsOf; r.link == l && r.block == block {
		return r.inverse
	}
	order := l.order(b.g, block)
	inverse := make([]int64, len(order))
	for foreign, ours := range order {
		inverse[ours] = int64(foreign)
	}
	b.rowsOf = rowsOf{l, block, inverse}
	return inverse
}

// shape returns the rows and columns of a part, which may lack a tensor of
// this suffix in the graph: then it has the rows of its weight. Vectors are
// columns.
func (b *binder) shape(module, suffix string) (rows, cols int64) {
	shape, ok := b.shapes[module+suffix]
	if !ok {
		shape = b.shapes[module+".weight"]
	}
	if suffix == ".bias" || len(shape) == 1 {
		if !ok {
			shape = shape[:len(shape)-1]
		}
		rows, cols = 1, 1
		for _, d := range shape {
			rows *= d
		}
		return rows, cols
	}
	t := formats.Tensor{Shape: shape}
	return t.Rows()
}

// asRows checks a foreign tensor's shape and makes it [rows][k].
func asRows(t formats.Tensor, rows, k int64, transposed bool) (formats.Tensor, error) {
	want := []int64{rows, k}
	if transposed {
		slices.Reverse(want)
	}
	n, err := tensor.Elements(t.Shape)
	if err != nil {
		return t, err
	}
	vector := k == 1 && n == rows
	if r, c := t.Rows(); !(r == want[0] && c == want[1]) && !vector {
		return t, fmt.Errorf("shape is %v, the configuration asks for %v", t.Shape, want)
	}
	if vector {
		return reshape(t, t.Name, []int64{rows})
	}
	if t, err = reshape(t, t.Name, want); err != nil || !transposed {
		return t, err
	}
	return transpose(t)
}

// reshape gives a tensor another name and another shape of the same rows.
func reshape(t formats.Tensor, name string, shape []int64) (formats.Tensor, error) {
	s, ok := scheme.ByName(t.Scheme)
	if !ok {
		return t, formats.Unsupportedf("", t.Name, "scheme %q", t.Scheme)
	}
	data := make([]tensor.Blob, len(t.Parts))
	for i := range t.Parts {
		data[i] = t.Parts[i].Data
	}
	return scheme.New(name, s, shape, t.Params, data...)
}

// transpose turns a dense [K][N] tensor into [N][K], when it is read.
func transpose(t formats.Tensor) (formats.Tensor, error) {
	if s, ok := scheme.ByName(t.Scheme); !ok || !s.Plain() || s.DType.Bits()%8 != 0 {
		return t, formats.Unsupportedf("", t.Name, "transposed weights in scheme %q", t.Scheme)
	}
	rows, cols := t.Shape[0], t.Shape[1]
	size := int64(t.Parts[0].DType.Bits() / 8)
	data := t.Parts[0].Data
	turned := tensor.Computed(data.Len(), func() ([]byte, error) {
		src, err := data.Bytes()
		if err != nil {
			return nil, err
		}
		dst := make([]byte, len(src))
		for r := range rows {
			for c := range cols {
				copy(dst[(c*rows+r)*size:][:size], src[(r*cols+c)*size:])
			}
		}
		return dst, nil
	})
	s, _ := scheme.ByName(t.Scheme)
	return scheme.New(t.Name, s, []int64{cols, rows}, nil, turned)
}

// wrap names the file and tensor in an error that has no place yet.
func (b *binder) wrap(name string, err error) error {
	switch e := err.(type) {
	case *formats.FormatError:
		if e.File == "" {
			e.File = b.file
		}
		return e
	case *formats.UnsupportedError:
		if e.File == "" {
			e.File = b.file
		}
		return e
	}
	return formats.Errorf(b.file, name, "%v", err)
}
