package plan

import (
	"slices"

	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/pyjson"
)

// Encode returns the plan as JSON. Figures are rounded to six digits.
func (p *Plan) Encode() []byte {
	c := *p
	if c.Version == 0 {
		c.Version = Version
	}
	c.Budget.BPW, c.Budget.KLD = pyjson.Round(c.Budget.BPW), pyjson.Round(c.Budget.KLD)
	q := &c.Predicted
	q.KLD, q.BPW, q.Seconds = pyjson.Round(q.KLD), pyjson.Round(q.BPW), pyjson.Round(q.Seconds)
	c.Tensors = slices.Clone(p.Tensors)
	for i := range c.Tensors {
		t := &c.Tensors[i]
		t.Error, t.Loss = pyjson.Round(t.Error), pyjson.Round(t.Loss)
		if t.Shape == nil {
			t.Shape = []int64{}
		}
		if t.RunnerUp != nil {
			a := *t.RunnerUp
			a.Error, a.Loss = pyjson.Round(a.Error), pyjson.Round(a.Loss)
			t.RunnerUp = &a
		}
	}
	return pyjson.Lines(&c)
}

// Write writes the plan to a file, which appears when it is whole.
func (p *Plan) Write(out *atomicfile.Output) error {
	return out.WriteFile(p.Encode())
}
