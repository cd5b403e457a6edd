package calibrate

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/cpu"
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
	out, err := apart(ctx, m, s, windows, o)
	if err != nil {
		return placed(m.Path, err)
	}
	level, err := measureLevel(ctx, m, s, windows, o, out)
	if err != nil {
		return placed(m.Path, err)
	}
	for name := range out {
		out[name] *= level
	}
	s.Sensitivity = out
	if o.Progress != nil {
		all := int64(len(m.Graph.Blocks) + 1)
		o.Progress(all*(all+1)/2+levelSteps*all, all*(all+1)/2+levelSteps*all)
	}
	return nil
}

// apart measures what errors in each matrix cost on passages.
func apart(ctx context.Context, m *model.Model, s *stats.File, windows [][]int32, o SensitivityOptions) (map[string]float64, error) {
	d := newDisturber(m, s, spread(windows, o.Tokens), o)
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
	s       *stats.File
	o       SensitivityOptions
	set     *cpu.Set
	pool    *cpu.Pool
	windows [][]int32
	dtype   tensor.DType // of disturbed matrices
	made    uint64       // disturbed matrices
	out     map[string]float64

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
}

func newDisturber(m *model.Model, s *stats.File, windows [][]int32, o SensitivityOptions) *disturber {
	d := &disturber{m: m, s: s, o: o, set: cpu.Best(), pool: cpu.NewPool(o.threads()), windows: windows, dtype: tensor.F32, out: map[string]float64{}}
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
	for i := range d.m.Graph.Blocks {
		if err := d.block(ctx, i); err != nil {
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

// stage runs f on blocks [first, first+n), some tensors of which may be others.
func (d *disturber) stage(first, n int, others []*formats.Tensor, f func(s *exec.Stage) error) error {
	s, err := exec.NewStage(d.m.Path, d.m.Graph, func(name string) formats.Tensor {
		for _, other := range others {
			if other.Name == name {
				return *other
			}
		}
		return d.m.Tensor(name)
	}, first, n, exec.Options{Threads: d.o.threads(), Exact: true})
	if err != nil {
		return err
	}
	defer s.Close()
	return f(s)
}

// embed makes the hidden states, and those of a disturbed embedding table.
func (d *disturber) embed(ctx context.Context) error {
	g := d.m.Graph
	embed := func(to **Hidden) func(s *exec.Stage) error {
		return func(s *exec.Stage) (err error) {
			if d.stored() {
				*to, err = NewStoredHidden(ctx, s, int(g.Width), d.windows, d.o.Dir)
			} else {
				*to, err = NewHidden(ctx, s, int(g.Width), d.windows)
			}
			return err
		}
	}
	if err := d.stage(0, 0, nil, embed(&d.clean)); err != nil {
		return err
	}
	d.open = append(d.open, d.clean)
	var in reading
	var err error
	if g.Tied() {
		if in.h, err = d.s.Moments(g.Head.Input, -1); err != nil {
			return err
		}
	}
	c := copied{name: g.Embed.Table}
	table, relative, err := d.change(g.Embed.Table, &in, true)
	if err != nil {
		return err
	}
	c.relative = relative
	if g.Tied() {
		c.head = table
	}
	if err := d.stage(0, 0, []*formats.Tensor{table}, embed(&c.hidden)); err != nil {
		return err
	}
	d.open, d.copies = append(d.open, c.hidden), append(d.copies, c)
	return nil
}

// stored says whether the hidden states of all copies are too large for memory.
func (d *disturber) stored() bool {
	var tokens int64
	for _, w := range d.windows {
		tokens += int64(len(w))
	}
	return d.o.Memory > 0 && int64(len(d.m.Graph.Weights()))*Bytes(tokens, d.m.Graph.Width) > d.o.Memory/2
}

// block carries everything through one block, and makes the copies that a
// disturbed matrix of it leads to.
func (d *disturber) block(ctx context.Context, i int) error {
	var fresh []copied
	err := d.each(i, func(w *formats.Tensor, relative float64) error {
		c := copied{name: w.Name, relative: relative}
		err := d.stage(i, 1, []*formats.Tensor{w}, func(s *exec.Stage) (err error) {
			c.hidden, err = d.clean.through(ctx, s, d.o.Dir)
			return err
		})
		if err == nil {
			d.open = append(d.open, c.hidden)
			fresh = append(fresh, c)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = d.stage(i, 1, nil, func(s *exec.Stage) error {
		for _, c := range append(d.copies, copied{hidden: d.clean}) {
			if err := c.hidden.Through(ctx, s, true); err != nil {
				return err
			}
		}
		return nil
	})
	d.copies = append(d.copies, fresh...)
	return err
}

// each changes the matrices of a block one after the other.
func (d *disturber) each(block int, f func(w *formats.Tensor, relative float64) error) error {
	input, in := "", &reading{}
	for _, l := range d.m.Graph.Blocks[block].Linears() {
		if l.Role == model.RoleRouter {
			continue
		}
		if l.Input != input {
			h, err := d.s.Moments(l.Input, -1)
			if err != nil {
				return err
			}
			input, in = l.Input, &reading{h: h}
		}
		w, relative, err := d.change(l.Weight, in, false)
		if err == nil {
			err = f(w, relative)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// disturbed is a change by noise.
func (d *disturber) disturbed(name string, in *reading, table bool) (*formats.Tensor, float64, error) {
	t := d.m.Tensor(name)
	n, k := t.Rows()
	w := make([]float32, n*k)
	if err := form.DecodeRows(w, &t, 0, n); err != nil {
		return nil, 0, err
	}
	if err := finite(name, w, 0); err != nil {
		return nil, 0, err
	}
	rng := rand.New(rand.NewPCG(d.o.Seed, d.made<<32|uint64(len(w))))
	d.made++
	if in.shaper == nil {
		in.shaper = newShaper(int(k), in.h, d.set, d.pool)
	}
	in.shaper.disturb(w, d.o.Relative, table, rng)
	raw := make([]byte, d.dtype.Bits()/8*len(w))
	if err := tensor.FromFloat32(raw, w, d.dtype); err != nil {
		return nil, 0, err
	}
	out := formats.Tensor{Name: name, Shape: t.Shape, Scheme: d.dtype.String(), Parts: []formats.Part{{Name: "data", DType: d.dtype, Shape: t.Shape, Data: tensor.BytesBlob(raw)}}}
	return &out, d.o.Relative, nil
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

// compare turns hidden states into divergences.
func (d *disturber) compare(ctx context.Context) error {
	g := d.m.Graph
	rows := d.positions()
	want := make([][]float32, len(rows)) // log-probabilities [T][Vocab]
	err := d.stage(0, 0, nil, func(s *exec.Stage) error {
		for i := range rows {
			var err error
			if want[i], err = d.logProbabilities(ctx, s, d.clean, i, rows[i]); err != nil {
				return err
			}
		}
		for i := range d.copies {
			if c := &d.copies[i]; c.head == nil {
				if err := d.diverge(ctx, s, c, rows, want); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range d.copies {
		if c := &d.copies[i]; c.head != nil {
			if err := d.stage(0, 0, []*formats.Tensor{c.head}, func(s *exec.Stage) error { return d.diverge(ctx, s, c, rows, want) }); err != nil {
				return err
			}
		}
	}
	if g.Tied() {
		return nil
	}
	head, relative, err := d.head()
	if err != nil {
		return err
	}
	c := copied{name: g.Head.Weight, relative: relative, hidden: d.clean}
	return d.stage(0, 0, []*formats.Tensor{head}, func(s *exec.Stage) error { return d.diverge(ctx, s, &c, rows, want) })
}

// head changes a head of its own.
func (d *disturber) head() (*formats.Tensor, float64, error) {
	h, err := d.s.Moments(d.m.Graph.Head.Input, -1)
	if err != nil {
		return nil, 0, err
	}
	return d.change(d.m.Graph.Head.Weight, &reading{h: h}, false)
}

// positions lists which rows of each window are compared.
func (d *disturber) positions() [][]int {
	out := make([][]int, len(d.windows))
	for i, w := range d.windows {
		for at := min(d.o.Stride, len(w)) - 1; at < len(w); at += d.o.Stride { // of a short window the last
			out[i] = append(out[i], at)
		}
	}
	return out
}

// logProbabilities returns those of chosen rows of a window, [len(rows)][Vocab].
func (d *disturber) logProbabilities(ctx context.Context, s *exec.Stage, h *Hidden, window int, rows []int) ([]float32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	width, vocab := int(d.m.Graph.Width), int(d.m.Graph.Vocab)
	states, err := h.window(window, false)
	if err != nil {
		return nil, err
	}
	x := make([]float32, len(rows)*width)
	for i, row := range rows {
		copy(x[i*width:(i+1)*width], states[row*width:])
	}
	if err := s.Normalize(x); err != nil {
		return nil, err
	}
	logits := make([]float32, len(rows)*vocab)
	if err := s.Head(logits, x); err != nil {
		return nil, err
	}
	d.pool.Run(len(rows), func(row int) { d.normalize(logits[row*vocab : (row+1)*vocab]) })
	return logits, nil
}

// normalize turns logits into log-probabilities.
func (d *disturber) normalize(x []float32) {
	top := math.Inf(-1)
	for _, v := range x {
		top = max(top, float64(v))
	}
	var sum float64
	for _, v := range x {
		sum += math.Exp(float64(v) - top)
	}
	shift := float32(top + math.Log(sum))
	for i := range x {
		x[i] -= shift
	}
}

// diverge records the divergence of a copy.
func (d *disturber) diverge(ctx context.Context, s *exec.Stage, c *copied, rows [][]int, want [][]float32) error {
	var sum float64
	n := 0
	for i := range rows {
		each, err := d.divergences(ctx, s, c.hidden, i, rows[i], want[i])
		if err != nil {
			return err
		}
		for _, v := range each {
			sum += v
		}
		n += len(each)
	}
	if n == 0 || math.IsNaN(sum) || math.IsInf(sum, 0) {
		return formats.Errorf("", c.name, "a disturbed copy has logits that are not finite")
	}
	d.out[c.name] = max(sum/float64(n), 0) / c.relative
	return nil
}

// divergences returns, for rows of a window, the KL divergence of what hidden states
// lead to from log-probabilities ref[len(rows)][Vocab].
func (d *disturber) divergences(ctx context.Context, s *exec.Stage, h *Hidden, window int, rows []int, ref []float32) ([]float64, error) {
	logp, err := d.logProbabilities(ctx, s, h, window, rows)
	if err != nil {
		return nil, err
	}
	vocab := int(d.m.Graph.Vocab)
	each := make([]float64, len(rows))
	d.pool.Run(len(each), func(row int) {
		for i := row * vocab; i < (row+1)*vocab; i++ {
			if p := float64(ref[i]); p > -40 {
				each[row] += math.Exp(p) * (p - float64(logp[i]))
			}
		}
	})
	return each, nil
}
