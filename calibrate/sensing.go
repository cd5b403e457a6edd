package calibrate

import (
	"context"
	"errors"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
)

// A Sensing measures sensitivities a matrix at a time, for processes that share them: what
// [Sensitivities] finds, to the bit. It holds the model's states before each block, and the
// logits of the passages. Matrices are those of [Sensitivities] in the order in which it
// disturbs them, by which their noise is drawn.
type Sensing struct {
	d        *disturber
	clean    []*Hidden // before each block, and behind all
	want     [][]float32
	matrices []func(ctx context.Context) (c copied, block int, err error) // the copy, and the block that it is before
}

// NewSensing runs the passages through the model. moments are those of an input over all
// experts, as [stats.File.Moments] has them. Errors are those of [Measure].
func NewSensing(ctx context.Context, m *model.Model, moments func(input string) ([]float64, error), windows [][]int32, o SensitivityOptions) (*Sensing, error) {
	o.fill()
	s := &Sensing{d: newDisturber(m, moments, spread(windows, o.Tokens), o, map[string]float64{})}
	if err := s.begin(ctx); err != nil {
		s.Close()
		return nil, formats.In(m.Path, err)
	}
	return s, nil
}

// Close gives back what holds the states.
func (s *Sensing) Close() { s.d.close() }

// Matrices returns how many matrices of a model [Sensitivities] measures.
func Matrices(m *model.Model) int {
	n := 1
	for range perLayer(m) {
		n++
	}
	for i := range m.Graph.Blocks {
		n += len(disturbs(&m.Graph.Blocks[i]))
	}
	if !m.Graph.Tied() {
		n++
	}
	return n
}

// begin carries the model's states to the end, and lists the matrices.
func (s *Sensing) begin(ctx context.Context) error {
	d, g := s.d, s.d.m.Graph
	h, err := d.embedded(ctx)
	if err != nil {
		return err
	}
	s.clean = append(s.clean, h)
	s.matrices = append(s.matrices, func(ctx context.Context) (copied, int, error) {
		c, err := d.embedding(ctx)
		return c, 0, err
	})
	for table := range perLayer(d.m) {
		s.matrices = append(s.matrices, func(ctx context.Context) (copied, int, error) {
			c, err := d.everywhere(ctx, table)
			return c, 0, err
		})
	}
	for i := range g.Blocks {
		err := d.walk(device.Block(i), nil, func(walk *exec.Walker) (err error) {
			if h, err = h.Behind(ctx, walk); err == nil {
				s.clean, d.open = append(s.clean, h), append(d.open, h)
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, l := range disturbs(&g.Blocks[i]) {
			s.matrices = append(s.matrices, func(ctx context.Context) (copied, int, error) { return s.linear(ctx, i, l) })
		}
	}
	if !g.Tied() {
		s.matrices = append(s.matrices, func(context.Context) (copied, int, error) {
			c, err := d.headed(h)
			return c, len(g.Blocks), err
		})
	}
	s.want, err = d.reference(ctx, h)
	return err
}

// linear makes the copy behind a block a linear of which is disturbed.
func (s *Sensing) linear(ctx context.Context, block int, l *graph.Linear) (copied, int, error) {
	w, relative, err := s.d.linear(l)
	if err != nil {
		return copied{}, 0, err
	}
	s.d.clean = s.clean[block]
	c, err := s.d.behind(ctx, block, w, relative)
	return c, block + 1, err
}

// A Sensed is what was found of a matrix.
type Sensed struct {
	Name string  // of its tensor
	Cost float64 // as [stats.File.Sensitivity] has it, on passages
	Size float64 // tr(W H W') over the mean of H's diagonal; 0: not known
}

// Measure measures matrix i. Errors are those of [Sensitivities].
func (s *Sensing) Measure(ctx context.Context, i int) (_ Sensed, err error) {
	d := s.d
	before := len(d.open)
	defer func() {
		for _, h := range d.open[before:] {
			err = errors.Join(err, h.Close())
		}
		d.open = d.open[:before]
	}()
	d.made = uint64(i)
	c, block, err := s.matrices[i](ctx)
	for ; err == nil && block < len(d.m.Graph.Blocks); block++ {
		var others []*formats.Tensor
		if c.with != nil {
			others = append(others, c.with)
		}
		err = d.walk(device.Block(block), others, func(walk *exec.Walker) error { return c.hidden.Through(ctx, walk, true) })
	}
	if err == nil {
		d.copies = []copied{c}
		err = d.compareWith(ctx, s.want)
	}
	return Sensed{c.name, d.out[c.name], d.sizes[c.name]}, formats.In(d.m.Path, err)
}

// Sense puts into s what was found of all matrices, in their order, on the level of whole
// windows, which it measures.
func Sense(ctx context.Context, m *model.Model, s *stats.File, windows [][]int32, o SensitivityOptions, found []Sensed) error {
	o.fill()
	apart, sizes := map[string]float64{}, map[string]float64{}
	for _, x := range found {
		apart[x.Name] = x.Cost
		if x.Size != 0 {
			sizes[x.Name] = x.Size
		}
	}
	return level(ctx, m, s, windows, o, apart, sizes)
}
