package calibrate

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
)

// SensitivityOptions say how sensitivities are measured.
type SensitivityOptions struct {
	Options
	Tokens int // measured; 0: 1536
	// Relative is the size of the errors, tr(E H E')/tr(W H W'); 0: 0.02, as a
	// good code of three bits leaves.
	Relative float64
	// Stride is the distance of the positions whose logits are compared; 0: 3.
	Stride int
}

func (o *SensitivityOptions) fill() {
	if o.Tokens <= 0 {
		o.Tokens = 1536
	}
	if o.Relative <= 0 {
		o.Relative = 0.02
	}
	if o.Stride <= 0 {
		o.Stride = 3
	}
}

// Sensitivities measures for every matrix of a model the mean KL divergence that
// an error in it costs per unit of relative size, and puts it into s, which are
// statistics of that model: see [stats.File]. It adds errors of a known size to
// one matrix at a time, shaped as error feedback leaves them, and looks at the
// logits: for errors that are small the divergence is a sum over matrices, each
// in proportion to its error (HIGGS: Malinovskii et al., 2024, arXiv 2411.17525).
//
// Blocks are opened once each: the hidden states of the model and of all its
// disturbed copies are carried through them together. That is done on few short
// passages; what errors in all matrices together cost there and on whole windows
// then sets the level of all. Errors are those of [Measure].
func Sensitivities(ctx context.Context, m *model.Model, s *stats.File, windows [][]int32, o SensitivityOptions) error {
	o.fill()
	sizes := map[string]float64{}
	out, err := apart(ctx, m, s, windows, o, sizes)
	if err != nil {
		return formats.In(m.Path, err)
	}
	return level(ctx, m, s, windows, o, out, sizes)
}

// level puts sensitivities that were measured on passages into s, on the level of whole windows.
func level(ctx context.Context, m *model.Model, s *stats.File, windows [][]int32, o SensitivityOptions, apart, sizes map[string]float64) error {
	level, err := measureLevel(ctx, m, s, windows, o, apart, sizes)
	if err != nil {
		return formats.In(m.Path, err)
	}
	for name := range apart {
		apart[name] *= level
	}
	s.Sensitivity = apart
	if o.Progress != nil {
		all := int64(len(m.Graph.Blocks) + 1)
		o.Progress(all*(all+1)/2+levelSteps*all, all*(all+1)/2+levelSteps*all)
	}
	return nil
}

// apart measures what errors in each matrix cost on passages.
func apart(ctx context.Context, m *model.Model, s *stats.File, windows [][]int32, o SensitivityOptions, sizes map[string]float64) (map[string]float64, error) {
	d := newDisturber(m, readBy(s), spread(windows, o.Tokens), o, sizes)
	defer d.close()
	err := d.run(ctx)
	return d.out, err
}

// passage is how many tokens of a window are measured: many short passages tell
// more than few long ones, since texts differ more than positions do.
const passage = 192

// spread takes the beginnings of windows spread evenly over all, which have about
// so many tokens together; at least one.
func spread(windows [][]int32, tokens int) [][]int32 {
	n := min(max(tokens/passage, 1), len(windows))
	out := make([][]int32, n)
	for i := range out {
		w := windows[i*len(windows)/n]
		out[i] = w[:min(len(w), max(passage, tokens/n))]
	}
	return out
}

// A disturber carries disturbed copies of a model's hidden states.
type disturber struct {
	// change returns a matrix, or a stack of them, with errors whose relative
	// size under what it reads it says; rows of a table are looked up alone.
	change  func(name string, in *reading, table bool) (*formats.Tensor, float64, error)
	m       *model.Model
	moments func(input string) ([]float64, error)
	o       SensitivityOptions
	set     *cpu.Set
	pool    *cpu.Pool
	windows [][]int32
	dtype   tensor.DType       // of disturbed matrices that are not stored in 16 bits
	made    uint64             // disturbed matrices, which is where the next one's noise begins
	sizes   map[string]float64 // tr(W H W') of matrices, as [shaper.size] says it
	out     map[string]float64

	input string   // what is read by
	in    *reading // nil: nothing so far

	clean  *Hidden
	copies []copied
	open   []*Hidden // to close
}

// A reading is what matrices that share an input read.
type reading struct {
	h      []float64 // moments [K][K]; nil: they count alike
	shaper *shaper   // of h; nil: not needed so far
}

// A copied is the hidden states behind one disturbed matrix.
type copied struct {
	name     string
	relative float64 // size of the error
	hidden   *Hidden
	head     *formats.Tensor // disturbed too; nil: the model's
	with     *formats.Tensor // disturbed in every block; nil: the model's
}

func newDisturber(m *model.Model, moments func(input string) ([]float64, error), windows [][]int32, o SensitivityOptions, sizes map[string]float64) *disturber {
	d := &disturber{sizes: sizes, m: m, moments: moments, o: o, set: cpu.Best(), pool: cpu.NewPool(o.threads()), windows: windows, dtype: tensor.F32, out: map[string]float64{}}
	d.change = d.disturbed
	return d
}

func (d *disturber) close() {
	for _, h := range d.open {
		h.Close()
	}
	d.pool.Close()
}

func (d *disturber) run(ctx context.Context) error {
	if err := d.embed(ctx); err != nil {
		return err
	}
	if err := d.perLayer(ctx); err != nil {
		return err
	}
	next, stop := d.blocks()
	defer stop()
	for i := range d.m.Graph.Blocks {
		if err := d.block(ctx, i, next); err != nil {
			return err
		}
		d.progress(i + 1)
	}
	if err := d.compare(ctx); err != nil {
		return err
	}
	d.progress(len(d.m.Graph.Blocks) + 1)
	return nil
}

// progress counts what is carried: the further behind, the more copies there are.
func (d *disturber) progress(blocks int) {
	if d.o.Progress != nil {
		n, all := int64(blocks), int64(len(d.m.Graph.Blocks)+1)
		d.o.Progress(n*(n+1)/2, all*(all+1)/2+levelSteps*all)
	}
}

// walk runs f on a span, some tensors of which may be others.
func (d *disturber) walk(span device.Span, others []*formats.Tensor, f func(walk *exec.Walker) error) error {
	walk, err := exec.NewWalker(d.m.Path, d.m.Graph, func(name string) formats.Tensor {
		for _, other := range others {
			if other.Name == name {
				return *other
			}
		}
		return d.m.Tensor(name)
	}, span, d.o.walk(d.windows))
	if err != nil {
		return err
	}
	return errors.Join(f(walk), walk.Close())
}

// embedded returns the hidden states before the first block, some tensors being others.
func (d *disturber) embedded(ctx context.Context, others ...*formats.Tensor) (h *Hidden, err error) {
	g := d.m.Graph
	keep, err := d.o.keep(d.m, d.windows, false)
	if err != nil {
		return nil, err
	}
	keep.Most /= int64(len(g.Weights())) // copies
	if d.o.Memory > 0 {
		keep.Most = max(keep.Most, 1)
	}
	err = d.walk(device.Embedding(), others, func(walk *exec.Walker) (err error) {
		if h, err = NewHidden(ctx, walk, g, d.windows, keep); err == nil {
			d.open = append(d.open, h)
		}
		return err
	})
	return h, err
}

// readBy returns the moments of what all read of an input.
func readBy(s *stats.File) func(input string) ([]float64, error) {
	return func(input string) ([]float64, error) { return s.Moments(input, -1) }
}

// embed makes the hidden states, and those of a disturbed embedding table.
func (d *disturber) embed(ctx context.Context) (err error) {
	if d.clean, err = d.embedded(ctx); err != nil {
		return err
	}
	c, err := d.embedding(ctx)
	d.copies = append(d.copies, c)
	return err
}

// embedding makes the copy that a disturbed embedding table leads to.
func (d *disturber) embedding(ctx context.Context) (c copied, err error) {
	g := d.m.Graph
	var in reading
	if g.Tied() {
		if in.h, err = d.moments(g.Head.Input); err != nil {
			return c, err
		}
	}
	c.name = g.Embed.Table
	table, relative, err := d.change(g.Embed.Table, &in, true)
	if err != nil {
		return c, err
	}
	c.relative = relative
	if g.Tied() {
		c.head = table
	}
	c.hidden, err = d.embedded(ctx, table)
	return c, err
}

// perLayer makes the copies that a disturbed table and projection of per-layer
// embeddings lead to, which every block reads.
func (d *disturber) perLayer(ctx context.Context) error {
	for table := range perLayer(d.m) {
		c, err := d.everywhere(ctx, table)
		if err != nil {
			return err
		}
		d.copies = append(d.copies, c)
	}
	return nil
}

// perLayer says which of a model's table and projection of per-layer embeddings are disturbed: the
// table, if it is not in codes, whose rows could not stay as they are but for some.
func perLayer(m *model.Model) iter.Seq[bool] {
	return func(yield func(table bool) bool) {
		p := m.Graph.PerLayer
		if p == nil {
			return
		}
		t := m.Tensor(p.Table)
		if _, ok := plain(&t); ok && !yield(true) {
			return
		}
		yield(false)
	}
}

// everywhere makes the copy that the disturbed table, or projection, of per-layer embeddings leads to.
func (d *disturber) everywhere(ctx context.Context, table bool) (c copied, err error) {
	if table {
		c.with, err = d.rows(d.m.Graph.PerLayer.Table)
	} else {
		c.with, _, err = d.change(d.m.Graph.PerLayer.Projection.Weight, &reading{}, false)
	}
	if err != nil {
		return c, err
	}
	c.name, c.relative = c.with.Name, d.o.Relative
	c.hidden, err = d.embedded(ctx)
	return c, err
}

// rows returns a table that is far larger than the rest of a model with errors in those
// rows alone that the windows' tokens look up.
func (d *disturber) rows(name string) (*formats.Tensor, error) {
	t := d.m.Tensor(name)
	s, _ := plain(&t)
	ids := slices.Concat(d.windows...)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	n, k := t.Rows()
	w := make([]float32, int64(len(ids))*k)
	for i, id := range ids {
		if err := form.DecodeRows(w[int64(i)*k:int64(i+1)*k], &t, int64(id), 1); err != nil {
			return nil, err
		}
	}
	if err := finite(name, w, 0); err != nil {
		return nil, err
	}
	shaper := newShaper(int(k), nil, d.set, d.pool)
	shaper.disturb(w, d.o.Relative, shaper.size(w), true, d.draw())
	var pieces []formats.Tensor
	next := int64(0)
	slice := func(end int64) error {
		if end == next {
			return nil
		}
		x, err := scheme.Slice(t, next, end-next)
		pieces = append(pieces, x)
		return err
	}
	for i, id := range ids {
		row := w[int64(i)*k : int64(i+1)*k]
		raw := make([]byte, len(row)*s.DType.Bits()/8)
		if err := tensor.FromFloat32(raw, row, s.DType); err != nil {
			return nil, err
		}
		x, err := scheme.New(name, s, []int64{1, k}, nil, tensor.BytesBlob(raw))
		if err == nil {
			err = slice(int64(id))
		}
		if err != nil {
			return nil, err
		}
		pieces, next = append(pieces, x), int64(id)+1
	}
	if err := slice(n); err != nil {
		return nil, err
	}
	out, err := scheme.Concat(name, t.Shape, pieces...)
	return &out, err
}

// block carries everything through one block, and makes the copies that a
// disturbed matrix of it leads to. Behind each of these some others are carried, so
// that the next matrix is changed while a device is busy.
func (d *disturber) block(ctx context.Context, i int, next func() changed) error {
	n, carried := len(disturbs(&d.m.Graph.Blocks[i])), 0
	var fresh []copied
	err := d.walk(device.Block(i), nil, func(walk *exec.Walker) error {
		through := func(some []copied) error {
			for _, c := range some {
				if c.with != nil {
					continue
				}
				if err := c.hidden.Through(ctx, walk, true); err != nil {
					return err
				}
			}
			return nil
		}
		for j := range n {
			w := next()
			if w.err != nil {
				return w.err
			}
			c, err := d.behind(ctx, i, w.tensor, w.relative)
			if err != nil {
				return err
			}
			fresh = append(fresh, c)
			to := len(d.copies) * (j + 1) / n
			if err := through(d.copies[carried:to]); err != nil {
				return err
			}
			carried = to
		}
		if err := through(d.copies[carried:]); err != nil {
			return err
		}
		return d.clean.Through(ctx, walk, true)
	})
	for _, c := range d.copies {
		if c.with != nil && err == nil {
			err = d.walk(device.Block(i), []*formats.Tensor{c.with}, func(walk *exec.Walker) error { return c.hidden.Through(ctx, walk, true) })
		}
	}
	d.copies = append(d.copies, fresh...)
	return err
}

// behind makes the copy that a disturbed matrix of a block leads to.
func (d *disturber) behind(ctx context.Context, block int, w *formats.Tensor, relative float64) (copied, error) {
	c := copied{name: w.Name, relative: relative}
	err := d.walk(device.Block(block), []*formats.Tensor{w}, func(walk *exec.Walker) (err error) {
		if c.hidden, err = d.clean.Behind(ctx, walk); err == nil {
			d.open = append(d.open, c.hidden)
		}
		return err
	})
	return c, err
}

// A changed is a matrix with errors, and their relative size.
type changed struct {
	tensor   *formats.Tensor
	relative float64
	err      error // of the last
}

// blocks changes the matrices of all blocks one after the other: each when it is asked for or, where a
// device runs text, one ahead. stop ends it.
func (d *disturber) blocks() (next func() changed, stop func()) {
	all := func(yield func(changed) bool) {
		for i := range d.m.Graph.Blocks {
			d.input, d.in = "", nil
			for _, l := range disturbs(&d.m.Graph.Blocks[i]) {
				w, relative, err := d.linear(l)
				if !yield(changed{w, relative, err}) || err != nil {
					return
				}
			}
		}
	}
	if d.o.On == nil {
		pull, stop := iter.Pull(all)
		return func() changed { c, _ := pull(); return c }, stop
	}
	ready, enough, ended := make(chan changed), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		all(func(c changed) bool {
			select {
			case ready <- c:
				return true
			case <-enough:
				return false
			}
		})
	}()
	return func() changed { return <-ready }, func() {
		close(enough)
		<-ended
	}
}

// disturbs lists the linears of a block that are disturbed.
func disturbs(b *graph.Block) []*graph.Linear {
	return slices.DeleteFunc(b.Linears(), func(l *graph.Linear) bool { return l.Role.Steers() })
}

// linear changes a linear's matrix. What it reads is kept for the next one that reads it.
func (d *disturber) linear(l *graph.Linear) (*formats.Tensor, float64, error) {
	if l.Input != d.input || d.in == nil {
		d.input, d.in = "", nil // dropped before the next is read
		h, err := d.moments(l.Input)
		if err != nil {
			return nil, 0, err
		}
		d.input, d.in = l.Input, &reading{h: h}
	}
	return d.change(l.Weight, d.in, false)
}

// disturbed is a change by noise.
func (d *disturber) disturbed(name string, in *reading, table bool) (*formats.Tensor, float64, error) {
	t := d.m.Tensor(name)
	n, k := t.Rows()
	w := make([]float32, n*k)
	if err := d.decode(w, &t); err != nil {
		return nil, 0, err
	}
	if in.shaper == nil {
		in.shaper = newShaper(int(k), in.h, d.set, d.pool)
	}
	whole, known := d.sizes[name]
	if !known {
		whole = in.shaper.size(w)
		d.sizes[name] = whole
	}
	in.shaper.disturb(w, d.o.Relative, whole, table, d.draw())
	dtype := disturbedAs(&t, d.dtype)
	width := dtype.Bits() / 8
	raw := make([]byte, width*len(w))
	if err := d.rowsOf(n, func(lo, hi int64) error {
		return tensor.FromFloat32(raw[int64(width)*lo*k:int64(width)*hi*k], w[lo*k:hi*k], dtype)
	}); err != nil {
		return nil, 0, err
	}
	out := formats.Tensor{Name: name, Shape: t.Shape, Scheme: dtype.String(), Parts: []formats.Part{{Name: "data", DType: dtype, Shape: t.Shape, Data: tensor.BytesBlob(raw)}}}
	return &out, d.o.Relative, nil
}

// disturbedAs returns the numbers of a tensor with errors: those of 16 bits in which it is stored, which are far finer
// than the errors and need no other kernels, or else others.
func disturbedAs(t *formats.Tensor, others tensor.DType) tensor.DType {
	if s, ok := plain(t); ok && s.DType != tensor.F32 {
		return s.DType
	}
	return others
}

// Beside returns the bytes that the largest matrix of a block takes on a device with errors beyond the stored one.
func Beside(m *model.Model) (most int64) {
	for i := range m.Graph.Blocks {
		for _, l := range disturbs(&m.Graph.Blocks[i]) {
			t := m.Tensor(l.Weight)
			n, k := t.Rows()
			most = max(most, int64(disturbedAs(&t, tensor.F32).Bits()/8)*n*k-t.Size())
		}
	}
	return most
}

// draw is noise that no other matrix has.
func (d *disturber) draw() draw {
	d.made++
	return draw{d.o.Seed, d.made}
}

// decode reads a matrix and refuses numbers that are not finite: on all threads where rows are stored by themselves.
func (d *disturber) decode(w []float32, t *formats.Tensor) error {
	n, k := t.Rows()
	rows := func(lo, hi int64) error {
		if err := form.DecodeRows(w[lo*k:hi*k], t, lo, hi-lo); err != nil {
			return err
		}
		return finite(t.Name, w[lo*k:hi*k], lo*k)
	}
	if _, ok := plain(t); !ok {
		return rows(0, n)
	}
	return d.rowsOf(n, rows)
}

// plain returns a tensor's scheme, and whether that is numbers of 32 or 16 bits, row by row.
func plain(t *formats.Tensor) (*scheme.Scheme, bool) {
	s, ok := scheme.ByName(t.Scheme)
	return s, ok && t.Form == "" && (s.DType == tensor.F32 || s.DType == tensor.F16 || s.DType == tensor.BF16)
}

// rowsOf calls f with runs of n rows, on all threads. Of errors it returns the first row's.
func (d *disturber) rowsOf(n int64, f func(lo, hi int64) error) error {
	errs := make([]error, (n+scaleRows-1)/scaleRows)
	d.pool.Run(len(errs), func(part int) {
		lo := int64(part) * scaleRows
		errs[part] = f(lo, min(lo+scaleRows, n))
	})
	return cmp.Or(errs...)
}

// finite refuses weights that are not; first is the number of the first of them.
func finite(name string, w []float32, first int64) error {
	for i, v := range w {
		if v-v != 0 {
			return formats.Errorf("", name, "weight %d is %v", first+int64(i), v)
		}
	}
	return nil
}
