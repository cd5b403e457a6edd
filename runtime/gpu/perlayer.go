package gpu

import (
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// Lookup implements load.Backend: the table stays where it is, and the host looks
// rows up. Why: docs/decisions/0020-per-layer-rows-come-by-the-host.md.
func (l *layout) Lookup(t formats.Tensor) (*matrix, error) {
	if t.Form != "" {
		return nil, formats.Unsupportedf("", t.Name, "a table of per-layer embeddings in the form %q on GPUs", t.Form)
	}
	w, err := scheme.Open(&t)
	if err != nil {
		return nil, err
	}
	return &matrix{tensor: t, Weight: hip.Weight{N: int(w.N), K: int(w.K)}, rows: cpu.Best().Rows(w)}, nil
}

// lookUp brings the per-layer embeddings of a batch's tokens to the device.
func (e *Engine) lookUp(p *pass, b *device.Batch) error {
	t := e.perLayer.table
	if t == nil {
		return nil
	}
	e.rows = sized(e.rows, p.rows*t.K)
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	row := 0
	for i := range b.Segments {
		tokens := b.Segments[i].Tokens
		if tokens == nil {
			return fmt.Errorf("gpu: segment %d has no tokens, which per-layer embeddings are looked up by", i)
		}
		for len(tokens) > 0 {
			n, at := min(len(tokens), 16), row
			ids := tokens[:n]
			look := func() error {
				for j, id := range ids {
					t.rows(e.rows[(at+j)*t.K:(at+j+1)*t.K], int(id))
				}
				return nil
			}
			if p.rows <= fewRows {
				look()
			} else {
				g.Go(look)
			}
			row, tokens = row+n, tokens[n:]
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	e.words = sized(e.words, 4*len(e.rows))
	if err := tensor.FromFloat32(e.words, e.rows, tensor.F32); err != nil {
		return err
	}
	return e.m.stream.Upload(driver.Buffer{Address: e.s.looked, Size: int64(len(e.words))}, e.words)
}

// sized returns a slice of n elements, v's memory where it is large enough.
func sized[T any](v []T, n int) []T {
	if cap(v) < n {
		return make([]T, n)
	}
	return v[:n]
}

// perLayerInputs computes what all blocks read of each row beside its hidden state, by
// the formula of [graph.PerLayer]. It comes before the first block, and uses s.h where
// the span does not embed.
func (w *walk) perLayerInputs() {
	e, s := w.e, w.s
	if e.perLayer.table == nil {
		return
	}
	x := s.x
	if !e.span.Embed {
		x = s.h
		w.embed(x)
	}
	g := e.g.PerLayer
	w.linear(w.t, source{x: x}, target{w: e.perLayer.projection, y: s.inputs})
	w.do(&hip.PerLayer{T: w.t, Runs: len(e.g.Blocks), Width: int(g.Width), X: s.inputs, Looked: s.looked, Norm: e.perLayer.norm,
		Scale: g.ProjectionScale, TableScale: g.Scale, Factor: g.Factor})
}

// inject computes what a block adds for its own inputs of the rows from lo on.
func (w *walk) inject(b *block, lo int, to target) {
	e, s, p, n := w.e, w.s, &b.perLayer, w.t-lo
	all, width := e.perLayer.table.K, p.gate.N
	w.linear(n, source{x: at(s.x, lo, e.shape.width)}, target{w: p.gate, y: s.gate})
	w.do(&hip.Inject{Act: p.act, T: n, Width: width, Stride: all, Gate: s.gate,
		Inputs: at(at(s.inputs, lo, all), (e.span.Lo+b.index)*width, 1)})
	to.w = p.down
	w.linear(n, source{x: s.gate}, to)
}
