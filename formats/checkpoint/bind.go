package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/arch"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// A binder finds a graph's tensors among a checkpoint's. Splitting, stacking
// and reordering are done on row boundaries, so stored blocks stay as they
// are and nothing is read.
type binder struct {
	file     string
	g        *graph.Graph
	links    []arch.Link
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
	link    *arch.Link
	block   int
	inverse []int64
}

// A prefix is another spelling of foreign names: those that start with from
// start with to instead.
type prefix struct{ from, to string }

// Bind returns the graph's tensors by name, found among those of a checkpoint by the
// links, and those that it does not read. Errors name file.
func Bind(file string, g *graph.Graph, links []arch.Link, tensors []formats.Tensor) (map[string]formats.Tensor, []formats.Tensor, error) {
	return newBinder(file, g, links, nil, tensors).bind(tensors)
}

func newBinder(file string, g *graph.Graph, links []arch.Link, prefixes []prefix, tensors []formats.Tensor) *binder {
	b := &binder{file: file, g: g, links: arch.Placed(links, g), prefixes: prefixes, source: map[string]formats.Tensor{}, used: map[string]bool{}, shapes: map[string][]int64{}}
	for _, t := range tensors {
		b.source[t.Name] = t
	}
	b.trim()
	b.regroup()
	for _, w := range g.Weights() {
		b.shapes[w.Name] = w.Shape
	}
	return b
}

// regroup has delta nets keep their heads in the checkpoint's order where codes would
// have to move.
func (b *binder) regroup() {
	for i := range b.g.Blocks {
		n := b.g.Blocks[i].Delta
		if n == nil || !n.Tiled {
			continue
		}
		for _, l := range []*graph.Linear{&n.QKV, &n.Z, &n.Beta, &n.Alpha, &n.Out} {
			t, ok := b.whole(l.Weight)
			if s, known := scheme.ByName(t.Scheme); ok && !(known && s.Plain()) && b.moves(l.Weight, i) {
				n.Tiled = false
				break
			}
		}
	}
}

// moves reports whether a weight's rows or columns lie in another order in the
// checkpoint than in the graph.
func (b *binder) moves(weight string, block int) bool {
	pattern, _, _ := arch.Split(weight)
	for i := range b.links {
		l := &b.links[i]
		if l.Index(pattern) < 0 || !l.Holds(b.g) {
			continue
		}
		for _, order := range []func(*graph.Graph, int) []int64{l.Order, l.Columns} {
			if order != nil && order(b.g, block) != nil {
				return true
			}
		}
	}
	return false
}

// trim leaves out of a graph's modules of multi-token prediction what the checkpoint
// does not have: configurations count modules whose tensors are not there, and do not
// say which have a table, a norm and a head of their own.
func (b *binder) trim() {
	lacks := func(name string) bool { _, ok := b.whole(name); return !ok }
	for i := range b.g.MTP {
		m := &b.g.MTP[i]
		if lacks(m.Project.Weight) {
			b.g.MTP = b.g.MTP[:i:i]
			return
		}
		if m.Table != "" && lacks(m.Table) {
			m.Table = ""
		}
		if m.Norm != nil && lacks(m.Norm.Weight) {
			m.Norm = nil
		}
		if m.Head != nil && lacks(m.Head.Weight) {
			m.Head = nil
		}
	}
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

func (b *binder) resolve(w graph.Weight) (formats.Tensor, error) {
	pattern, block, suffix := arch.Split(w.Name)
	var tried []string
	for i := range b.links {
		l := &b.links[i]
		part := l.Index(pattern)
		if part < 0 || !l.Holds(b.g) {
			continue
		}
		first := l.Name(block, 0, suffix)
		if _, ok := b.find(first); !ok {
			tried = append(tried, first)
			continue
		}
		t, err := b.read(l, part, w, block, suffix)
		if err != nil {
			return t, err
		}
		if t, err = Reshape(t, w.Name, w.Shape); err != nil {
			return t, b.wrap(w.Name, err)
		}
		return t, nil
	}
	return formats.Tensor{}, formats.Errorf(b.file, strings.Join(tried, `" or "`), "tensor is missing (it is the graph's %s)", w.Name)
}

// read takes a weight out of the foreign tensor or tensors of a link.
func (b *binder) read(l *arch.Link, part int, w graph.Weight, block int, suffix string) (formats.Tensor, error) {
	if l.Among != nil {
		return b.among(l, w, block, suffix)
	}
	if !l.PerExpert() {
		return b.rows(l, part, w, block, l.Name(block, 0, suffix), suffix, 1)
	}
	experts := w.Shape[0]
	pieces := make([]formats.Tensor, experts)
	for e := range pieces {
		name := l.Name(block, e, suffix)
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

// among joins the foreign tensors whose rows make one weight. Codes of several schemes
// are read as the numbers that they stand for.
func (b *binder) among(l *arch.Link, w graph.Weight, block int, suffix string) (formats.Tensor, error) {
	pieces := make([]formats.Tensor, len(l.Among))
	n, k := b.shape(strings.TrimSuffix(w.Name, suffix), suffix)
	alike := true
	for i := range pieces {
		name := l.Name(block, i, suffix)
		t, ok := b.find(name)
		if !ok {
			return t, formats.Errorf(b.file, name, "tensor is missing (%d of %d of the graph's %s)", i+1, len(pieces), w.Name)
		}
		b.used[t.Name] = true
		var err error
		if pieces[i], err = asRows(t, n/int64(len(pieces)), k, false); err == nil {
			pieces[i], err = Reshape(pieces[i], t.Name, []int64{n / int64(len(pieces)), k})
		}
		if err != nil {
			return t, b.wrap(t.Name, err)
		}
		alike = alike && t.Scheme == pieces[0].Scheme
	}
	if !alike {
		numbers, _ := scheme.ByName("f32")
		for i := range pieces {
			var err error
			if pieces[i], err = scheme.Cast(pieces[i], numbers); err != nil {
				return pieces[i], b.wrap(pieces[i].Name, err)
			}
		}
	}
	t, err := scheme.Concat(w.Name, []int64{n, k}, pieces...)
	if err != nil {
		return t, b.wrap(w.Name, err)
	}
	return t, nil
}

// rows takes the rows of one part out of a foreign tensor that holds a share
// of 1/experts of it.
func (b *binder) rows(l *arch.Link, part int, w graph.Weight, block int, name, suffix string, experts int64) (formats.Tensor, error) {
	t, _ := b.find(name)
	b.used[t.Name] = true
	if l.Latent {
		x, err := latentPart(t, part, l.LatentOf(b.g, block), w)
		if err != nil {
			return x, b.wrap(t.Name, err)
		}
		return x, nil
	}
	var total, start, n, k int64
	for i, p := range l.Parts {
		rows, cols := b.shape(arch.Fill(p, block, 0), suffix)
		if i == part {
			start, n, k = total, rows/experts, cols
		}
		total += rows / experts
	}
	var err error
	if transposed := (l.Transposed || l.Either && turnedStack(t, w, total, k)) && suffix == ".weight"; transposed && len(w.Shape) == 3 {
		t, err = stackedRows(t, w.Shape[0], total, k)
	} else {
		t, err = asRows(t, total, k, transposed)
	}
	if err != nil {
		return t, b.wrap(t.Name, err)
	}
	switch {
	case l.Alternating:
		group := total
		if stacked(w) {
			group /= w.Shape[0]
		}
		t, err = everyOther(t, part, len(l.Parts), group)
	case b.inverse(l, block) != nil:
		t, err = scheme.PickRows(t, b.inverse(l, block)[start:start+n])
	case n != total:
		t, err = scheme.Slice(t, start, n)
	}
	if columns := l.Columns; err == nil && columns != nil && suffix == ".weight" {
		if order := columns(b.g, block); order != nil {
			t, err = scheme.PickColumns(t, inverse(order))
		}
	}
	if err != nil {
		return t, b.wrap(t.Name, err)
	}
	return t, nil
}

// stacked reports whether a weight is of a mixture's experts, with a first dimension
// for them: a matrix's has three, and of vectors a bias alone has two.
func stacked(w graph.Weight) bool {
	return len(w.Shape) == 3 || w.Role == graph.RoleNorm && len(w.Shape) == 2
}

// inverse returns where the foreign tensor has each row of the link's parts, nil
// where in their own order.
func (b *binder) inverse(l *arch.Link, block int) []int64 {
	if l.Order == nil {
		return nil
	}
	if r := &b.rowsOf; r.link == l && r.block == block {
		return r.inverse
	}
	b.rowsOf = rowsOf{l, block, inverse(l.Order(b.g, block))}
	return b.rowsOf.inverse
}

// inverse returns the inverse of a permutation, nil of nil.
func inverse(order []int64) []int64 {
	if order == nil {
		return nil
	}
	out := make([]int64, len(order))
	for from, to := range order {
		out[to] = int64(from)
	}
	return out
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
		return Reshape(t, t.Name, []int64{rows})
	}
	if t, err = Reshape(t, t.Name, want); err != nil || !transposed {
		return t, err
	}
	return Transpose(t)
}

// Reshape gives a tensor another name and another shape of the same rows.
func Reshape(t formats.Tensor, name string, shape []int64) (formats.Tensor, error) {
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

// Transpose turns a dense [K][N] tensor into [N][K], when it is read.
func Transpose(t formats.Tensor) (formats.Tensor, error) {
	if t.Scheme == "fp8" && t.Form == "" {
		return transposeFP8(t)
	}
	if s, ok := scheme.ByName(t.Scheme); !ok || !s.Plain() || s.DType.Bits()%8 != 0 {
		return t, formats.Unsupportedf("", t.Name, "transposed weights in scheme %q", t.Scheme)
	}
	s, _ := scheme.ByName(t.Scheme)
	return scheme.New(t.Name, s, []int64{t.Shape[1], t.Shape[0]}, nil, turned(&t.Parts[0], t.Shape[0], t.Shape[1]))
}

// transposeFP8 turns codes and the scales of their rectangles.
func transposeFP8(t formats.Tensor) (formats.Tensor, error) {
	s, _ := scheme.ByName(t.Scheme)
	params := map[string]int64{"rows": t.Params["cols"], "cols": t.Params["rows"], "scale": t.Params["scale"]}
	scales := t.Parts[1].Shape
	return scheme.New(t.Name, s, []int64{t.Shape[1], t.Shape[0]}, params,
		turned(&t.Parts[0], t.Shape[0], t.Shape[1]), turned(&t.Parts[1], scales[0], scales[1]))
}

// turned is the numbers [rows][cols] of a part as [cols][rows].
func turned(p *formats.Part, rows, cols int64) tensor.Blob {
	size, data := int64(p.DType.Bits()/8), p.Data
	return tensor.Computed(data.Len(), func() ([]byte, error) {
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
