package gpu

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

var _ device.Tuner = (*Engine)(nil)

// A trial is one operation of a pass with all that are like it, and what may be
// chosen about it.
type trial struct {
	name  string
	ops   []operation
	tries []func(u *hip.Tuning) string // each puts a choice into a tuning and names it
}

// Tune implements device.Tuner: for each operation of a step and of a pass of the
// most rows, the divisions of its work that are worth trying are timed on all the
// model's weights that it is done with, in turn. One that gives other numbers
// than the one before is passed over.
func (e *Engine) Tune(ctx context.Context, done func(device.Tuned)) (string, error) {
	best := noTuning()
	tried := map[string]bool{} // a prompt's last row is one of a step
	for _, rows := range []int{1, e.plan.Rows} {
		for _, t := range e.trials(rows) {
			if tried[t.name] {
				continue
			}
			tried[t.name] = true
			if err := ctx.Err(); err != nil {
				return "", err
			}
			r, err := e.try(t, best)
			if err != nil {
				return "", err
			}
			r.Rows = rows
			if done != nil {
				done(r)
			}
		}
	}
	e.tuning = best
	return e.m.saveTuning(best)
}

// trials lists the operations of a pass of which something can be chosen.
func (e *Engine) trials(rows int) []*trial {
	w := e.through(rows, rows-1, true)
	w.head(rows-1, rows)
	byKey := map[string]*trial{}
	var order []*trial
	target := e.m.target
	for _, o := range w.kept {
		var key string
		var tries []func(u *hip.Tuning) string
		switch o := o.(type) {
		case *hip.Matvec:
			key = o.Key()
			for _, s := range o.Shapes(target) {
				tries = append(tries, func(u *hip.Tuning) string { u.Matvec[key] = s; return s.String() })
			}
		case *hip.Matmul:
			key = o.Key()
			for _, s := range o.Tiles(target) {
				tries = append(tries, func(u *hip.Tuning) string { u.Matmul[key] = s; return s.String() })
			}
		case *hip.Attend:
			key = o.Key()
			for _, s := range o.Shapes(target) {
				if tried := *o; e.attendFits(&tried, s) {
					tries = append(tries, func(u *hip.Tuning) string { u.Attend[key] = s; return fmt.Sprintf("%+v", s) })
				}
			}
		}
		if key == "" || len(tries) == 0 {
			continue
		}
		if byKey[key] == nil {
			byKey[key] = &trial{name: key, tries: tries}
			order = append(order, byKey[key])
		}
		byKey[key].ops = append(byKey[key].ops, o)
	}
	return order
}

// attendFits reports whether the work space holds what a division needs for all rows
// that are few: each has the division of one.
func (e *Engine) attendFits(o *hip.Attend, s hip.AttendShape) bool {
	o.Shape, o.T = &s, min(e.plan.Rows, fewRows)
	return o.ScratchBytes(e.m.target) <= e.s.attendBytes
}

// noTuning returns a tuning that has found nothing.
func noTuning() *hip.Tuning {
	return &hip.Tuning{Matvec: map[string]hip.MatvecShape{}, Matmul: map[string]hip.MatmulTile{}, Attend: map[string]hip.AttendShape{}}
}

// try times what may be chosen and puts the best into a tuning; where nothing is
// at least a fiftieth faster than the tables' choice, nothing.
func (e *Engine) try(t *trial, best *hip.Tuning) (device.Tuned, error) {
	r := device.Tuned{Operation: t.name, Calls: len(t.ops), Choice: "as usual"}
	if err := e.compileTries(t); err != nil {
		return r, err
	}
	var err error
	if r.Usual, err = e.timeCalls(tuned(t.ops, noTuning(), e.m.target)); err != nil {
		return r, err
	}
	r.Best = r.Usual
	want, err := e.output(t.ops[0], noTuning())
	if err != nil {
		return r, err
	}
	for _, choose := range t.tries {
		u := noTuning()
		name := choose(u)
		calls := tuned(t.ops, u, e.m.target)
		if !e.suits(calls[:1]) {
			continue
		}
		got, err := e.output(t.ops[0], u)
		if err != nil {
			return r, err
		}
		if !alikeNumbers(want, got) {
			continue
		}
		us, err := e.timeCalls(calls)
		if err != nil {
			return r, err
		}
		if us < r.Best && us < r.Usual*0.98 {
			r.Best, r.Choice = us, name
			choose(best)
		}
	}
	return r, nil
}

// compileTries compiles all that will be tried, several kernels at once.
func (e *Engine) compileTries(t *trial) error {
	var units []hip.Unit
	for _, choose := range t.tries {
		u := noTuning()
		choose(u)
		for _, c := range tuned(t.ops[:1], u, e.m.target) {
			units = append(units, c.Unit)
		}
	}
	return e.m.compile(units, &Options{})
}

// tuned lists the launches of operations under a tuning.
func tuned(ops []operation, u *hip.Tuning, t hip.Target) []hip.Call {
	var calls []hip.Call
	for _, o := range ops {
		o = copied(o)
		u.Apply(o)
		calls = append(calls, o.Calls(t)...)
	}
	return calls
}

// copied returns an operation of its own.
func copied(o operation) operation {
	switch o := o.(type) {
	case *hip.Matvec:
		c := *o
		return &c
	case *hip.Matmul:
		c := *o
		return &c
	case *hip.Attend:
		c := *o
		return &c
	}
	return o
}

// suits reports whether a kernel keeps its numbers in registers and has room for
// the block.
func (e *Engine) suits(calls []hip.Call) bool {
	for i := range calls {
		f, err := e.m.function(&calls[i])
		if err != nil {
			return false
		}
		a, b := f.Attributes(), calls[i].Block
		if a.Spill > 0 || a.MaxThreads > 0 && int(b[0]*b[1]*b[2]) > a.MaxThreads || int(calls[i].LDS)+a.LDS > e.m.target.LDS {
			return false
		}
	}
	return true
}

// output does an operation once and returns the first numbers that it gives, nil
// where they are no float32s.
func (e *Engine) output(o operation, u *hip.Tuning) ([]float32, error) {
	o = copied(o)
	u.Apply(o)
	at, n := result(o)
	calls := o.Calls(e.m.target)
	if err := e.m.prepare(calls); err != nil {
		return nil, err
	}
	if err := e.m.launch(calls); err != nil {
		return nil, err
	}
	if at == 0 {
		return nil, e.m.stream.Wait()
	}
	raw, err := e.m.device.Pinned(4 * int64(n))
	if err != nil {
		return nil, err
	}
	defer raw.Free()
	if err := e.m.stream.Download(raw.Bytes(), driver.Buffer{Address: at, Size: 4 * int64(n)}); err != nil {
		return nil, err
	}
	if err := e.m.stream.Wait(); err != nil {
		return nil, err
	}
	numbers, _ := tensor.Float32s(raw.Bytes())
	return append([]float32(nil), numbers...), nil
}

// result returns where the numbers of an operation go, 0 for those that are rounded,
// and how many there are. What is added to a product is left out from now on, for it
// may be the output of the time before.
func result(o operation) (hip.Address, int) {
	switch o := o.(type) {
	case *hip.Matvec:
		o.Products = apart(o.Products)
		return o.Products[0].Y, o.Products[0].W.N * o.T
	case *hip.Matmul:
		o.Products = apart(o.Products)
		return o.Products[0].Y, o.Products[0].W.N * o.T
	case *hip.Attend:
		return o.Out, o.T * o.Heads * o.KV.Dim
	}
	return 0, 0
}

// apart copies products without what is added to them.
func apart(products []hip.Product) []hip.Product {
	products = slices.Clone(products)
	for i := range products {
		products[i].Residual = 0
	}
	return products
}

// alikeNumbers reports whether two results differ by no more than rounding does.
func alikeNumbers(want, got []float32) bool {
	largest, off := 0.0, 0.0
	for i, v := range want {
		if math.IsNaN(float64(v)) != math.IsNaN(float64(got[i])) {
			return false
		}
		if d := math.Abs(float64(v) - float64(got[i])); d > off {
			off = d
		}
		largest = max(largest, math.Abs(float64(v)))
	}
	return off <= largest*1e-3
}
