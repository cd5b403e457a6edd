package calibrate

import (
	"context"
	"math"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
)

// compare turns the hidden states of all copies, and a head of its own, into divergences from what
// the model's states behind all blocks lead to.
func (d *disturber) compare(ctx context.Context) error {
	if !d.m.Graph.Tied() {
		c, err := d.headed(d.clean)
		if err != nil {
			return err
		}
		d.copies = append(d.copies, c)
	}
	want, err := d.reference(ctx, d.clean)
	if err != nil {
		return err
	}
	return d.compareWith(ctx, want)
}

// reference returns the logits of windows, [T][Vocab] each.
func (d *disturber) reference(ctx context.Context, h *Hidden) (want [][]float32, err error) {
	rows := d.positions()
	want = make([][]float32, len(rows))
	return want, d.walk(device.Head(d.m.Graph), nil, func(walk *exec.Walker) error {
		for i := range rows {
			var err error
			if want[i], err = d.logits(ctx, walk, h, i, rows[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// compareWith turns the hidden states of copies into divergences from logits.
func (d *disturber) compareWith(ctx context.Context, want [][]float32) error {
	rows := d.positions()
	err := d.walk(device.Head(d.m.Graph), nil, func(walk *exec.Walker) error {
		for i := range d.copies {
			if c := &d.copies[i]; c.head == nil {
				if err := d.diverge(ctx, walk, c, rows, want); err != nil {
					return err
				}
			}
		}
		return nil
	})
	for i := range d.copies {
		if c := &d.copies[i]; c.head != nil && err == nil {
			err = d.walk(device.Head(d.m.Graph), []*formats.Tensor{c.head}, func(walk *exec.Walker) error { return d.diverge(ctx, walk, c, rows, want) })
		}
	}
	return err
}

// headed makes the copy of the model's states behind all blocks that a disturbed head of its own
// looks at.
func (d *disturber) headed(h *Hidden) (copied, error) {
	head, relative, err := d.head()
	return copied{name: d.m.Graph.Head.Weight, relative: relative, hidden: h, head: head}, err
}

// head changes a head of its own.
func (d *disturber) head() (*formats.Tensor, float64, error) {
	h, err := d.moments(d.m.Graph.Head.Input)
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

// logits returns those of chosen rows of a window, [len(rows)][Vocab].
func (d *disturber) logits(ctx context.Context, walk *exec.Walker, h *Hidden, window int, rows []int) ([]float32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	width, vocab := int(d.m.Graph.Width), int(d.m.Graph.Vocab)
	states, err := h.Window(window)
	if err != nil {
		return nil, err
	}
	x := make([]float32, len(rows)*width)
	for i, row := range rows {
		copy(x[i*width:(i+1)*width], states[row*width:])
	}
	logits := make([]float32, len(rows)*vocab)
	return logits, walk.Logits(logits, x)
}

// diverge records the divergence of a copy.
func (d *disturber) diverge(ctx context.Context, walk *exec.Walker, c *copied, rows [][]int, want [][]float32) error {
	var sum float64
	n := 0
	for i := range rows {
		each, err := d.divergences(ctx, walk, c.hidden, i, rows[i], want[i])
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
// lead to from what logits ref[len(rows)][Vocab] do.
func (d *disturber) divergences(ctx context.Context, walk *exec.Walker, h *Hidden, window int, rows []int, ref []float32) ([]float64, error) {
	x, err := d.logits(ctx, walk, h, window, rows)
	if err != nil {
		return nil, err
	}
	vocab := int(d.m.Graph.Vocab)
	each, scratch := make([]float64, len(rows)), make([][]float32, d.pool.Threads())
	d.pool.RunWorkers(len(each), func(worker, row int) {
		scratch[worker] = sized(scratch[worker], vocab)
		each[row] = divergence(d.set, scratch[worker], ref[row*vocab:(row+1)*vocab], x[row*vocab:(row+1)*vocab])
	})
	return each, nil
}

// divergence returns the KL divergence of the softmax of logits x from that of ref, in nats: the sum of p times what
// p's logarithm is above the other's. p, as long as they, is overwritten.
func divergence(set *cpu.Set, p, ref, x []float32) (sum float64) {
	other := logSum(set, p, x)
	own := logSum(set, p, ref)
	for i, p := range p {
		if p > 0 {
			sum += float64(p) * (float64(ref[i]) - own - (float64(x[i]) - other))
		}
	}
	return sum
}

// logSum returns the logarithm of the sum of the exponentials of x, and writes the softmax of x to p. The largest
// element of p tells the sum.
func logSum(set *cpu.Set, p, x []float32) float64 {
	copy(p, x)
	set.Softmax(p)
	top := 0
	for i, v := range p {
		if v > p[top] {
			top = i
		}
	}
	return float64(x[top]) - math.Log(float64(p[top]))
}
