package pipeline

import (
	"context"
	"fmt"
	"runtime"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/quantize/fit"
	"github.com/nstf/nstf/runtime/exec"
)

// Options say how a model is fitted.
type Options struct {
	Windows             [][]int32 // calibration text, see calibrate.Windows
	Bits                int       // of the linears in blocks
	EmbedBits, HeadBits int
	Seed                int64 // of the rotations' signs
	Threads             int   // of the measuring; 0: all
	// Progress is called with weights fitted and their total; nil: nobody.
	Progress func(done, total int64)
}

// Run returns the tensors of the graph that trellis codes can hold, fitted, by
// their names. Matrices whose rows and columns are no multiples of 16 are left
// out, and so are norms, biases, routers and learned positions. Errors are
// those of reading, of fitting, which name the tensor, and the context's.
func Run(ctx context.Context, m *model.Model, o Options) (map[string]formats.Tensor, error) {
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	r := &run{m: m, o: o, fitted: map[string]formats.Tensor{}}
	for _, w := range m.Graph.Weights() {
		if bits := r.bits(&w); bits > 0 {
			t := m.Tensor(w.Name)
			r.total += t.Elements()
		}
	}
	return r.fitted, r.walk(ctx)
}

// A run is one walk through a model.
type run struct {
	m           *model.Model
	o           Options
	fitted      map[string]formats.Tensor
	done, total int64
}

// bits returns what a tensor of the graph gets, 0 where it stays.
func (r *run) bits(w *model.Weight) int {
	t := r.m.Tensor(w.Name)
	n, k := t.Rows()
	g := r.m.Graph
	switch {
	case w.Role == model.RoleNorm, w.Role == model.RoleRouter, w.Role == model.RoleOther, w.Name == g.Embed.Positions,
		len(t.Shape) < 2, n%scheme.TCQTile != 0, k%scheme.TCQTile != 0:
		return 0
	case w.Name == g.Head.Weight:
		return r.o.HeadBits
	case w.Role == model.RoleEmbed:
		return r.o.EmbedBits
	}
	return r.o.Bits
}

// walk fits the embedding table, each block behind the fitted ones, the head.
func (r *run) walk(ctx context.Context) error {
	g := r.m.Graph
	if !g.Tied() {
		if err := r.fit(ctx, g.Embed.Table, model.RoleEmbed, nil); err != nil {
			return err
		}
	}
	h, err := r.embed(ctx)
	if err != nil {
		return err
	}
	for i := range g.Blocks {
		if err := r.block(ctx, h, i); err != nil {
			return err
		}
	}
	moments, err := r.measure(ctx, len(g.Blocks)-1, func(s *exec.Stage) error { return h.Normalize(ctx, s, true) })
	if err != nil {
		return err
	}
	return r.fit(ctx, g.Head.Weight, model.RoleHead, moments.Inputs[g.Head.Input])
}

func (r *run) embed(ctx context.Context) (*calibrate.Hidden, error) {
	s, err := r.stage(0, nil)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return calibrate.NewHidden(ctx, s, int(r.m.Graph.Width), r.o.Windows)
}

// block measures and fits one block, and moves the hidden states behind it.
func (r *run) block(ctx context.Context, h *calibrate.Hidden, i int) error {
	moments, err := r.measure(ctx, i, func(s *exec.Stage) error { return h.Through(ctx, s, false) })
	if err != nil {
		return err
	}
	for _, l := range linears(&r.m.Graph.Blocks[i]) {
		if err := r.fit(ctx, l.Weight, l.Role, moments.Inputs[l.Input]); err != nil {
			return err
		}
	}
	s, err := r.stage(i, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	return h.Through(ctx, s, true)
}

// measure runs f on a stage of block i and returns what its hook gathered.
func (r *run) measure(ctx context.Context, i int, f func(s *exec.Stage) error) (*calibrate.Gatherer, error) {
	g := calibrate.NewGatherer(r.o.Threads)
	defer g.Close()
	s, err := r.stage(i, g)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return g, f(s)
}

// stage opens block i with what has been fitted so far, in float32 arithmetic.
func (r *run) stage(i int, g *calibrate.Gatherer) (*exec.Stage, error) {
	o := exec.Options{Threads: r.o.Threads, Exact: true}
	if g != nil {
		o.Hook = g.Hook
	}
	return exec.NewStage(r.m.Path, r.m.Graph, func(name string) formats.Tensor {
		if t, ok := r.fitted[name]; ok {
			return t
		}
		return r.m.Tensor(name)
	}, i, 1, o)
}

// linears lists the matrices of a block, those that share an input together.
func linears(b *model.Block) []*model.Linear {
	a := &b.Attn
	out := []*model.Linear{&a.Q, &a.K, &a.V, &a.O}
	if f := b.FFN; f != nil {
		if f.Gate != nil {
			out = append(out, f.Gate)
		}
		out = append(out, &f.Up, &f.Down)
	}
	if x := b.MoE; x != nil {
		out = append(out, &x.Gate, &x.Up, &x.Down)
	}
	return out
}

// fit fits one tensor, matrix by matrix where it is a stack of experts.
func (r *run) fit(ctx context.Context, name string, role model.Role, moments *calibrate.Moments) error {
	bits := r.bits(&model.Weight{Name: name, Role: role})
	if bits == 0 {
		return nil
	}
	t := r.m.Tensor(name)
	n, k := int(t.Shape[len(t.Shape)-2]), int(t.Shape[len(t.Shape)-1])
	q := fit.TCQ{TCQ: scheme.TCQ{Bits: bits, Codebook: scheme.TCQBytes4, Seed: r.o.Seed, RotateIn: fit.TCQRotation(k), RotateOut: fit.TCQRotation(n)}}
	if role == model.RoleEmbed || r.m.Graph.Tied() && role == model.RoleHead {
		q.RotateOut = 1 // a row is looked up alone
	}
	if moments != nil && moments.Tokens > 0 {
		h := moments.Mean()
		fit.RotateMoments(h, k, q.RotateIn, q.Seed)
		var err error
		if q.Feedback, err = fit.NewFeedback(h, k, scheme.TCQTile); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	var stack []formats.Tensor
	rows, _ := t.Rows()
	for first := int64(0); first < rows; first += int64(n) {
		if err := ctx.Err(); err != nil {
			return err
		}
		x, err := r.matrix(&t, first, n, k, q)
		if err != nil {
			return err
		}
		stack = append(stack, x)
		r.done += int64(n * k)
		if r.o.Progress != nil {
			r.o.Progress(r.done, r.total)
		}
	}
	x, err := scheme.Concat(name, t.Shape, stack...)
	r.fitted[name] = x
	return err
}

// matrix fits rows [first, first+n) of t.
func (r *run) matrix(t *formats.Tensor, first int64, n, k int, q fit.TCQ) (formats.Tensor, error) {
	w := make([]float32, n*k)
	if err := scheme.DecodeRows(w, t, first, int64(n)); err != nil {
		return formats.Tensor{}, err
	}
	parts, err := q.Fit(w, n, k)
	if err != nil {
		return formats.Tensor{}, formats.Errorf("", t.Name, "cannot be quantized: %v", err)
	}
	blobs := make([]tensor.Blob, len(parts))
	for i, p := range parts {
		blobs[i] = tensor.BytesBlob(p)
	}
	s, _ := scheme.ByName("tcq")
	return scheme.New(t.Name, s, []int64{int64(n), int64(k)}, q.Params(), blobs...)
}
