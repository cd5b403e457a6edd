package ledger

import (
	"slices"

	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/pyjson"
)

// Encode returns the ledger as JSON. Figures are rounded to six digits.
func (l *Ledger) Encode() []byte {
	c := *l
	if c.Version == 0 {
		c.Version = Version
	}
	c.Notes = append([]string{}, l.Notes...)
	m := &c.Model
	round(&m.BPW, &m.PredictedKLD)
	for _, f := range []**Figure{&m.KLD, &m.Floor, &m.Perplexity, &m.Original, &m.Top1} {
		if *f != nil {
			*f = &Figure{pyjson.Round((*f).Mean), pyjson.Round((*f).SE)}
		}
	}
	c.Blocks = slices.Clone(l.Blocks)
	for i := range c.Blocks {
		round(&c.Blocks[i].Drift)
	}
	c.Tensors = slices.Clone(l.Tensors)
	for i := range c.Tensors {
		t := &c.Tensors[i]
		round(&t.Bits, &t.Predicted, &t.Obtained, &t.Loss, &t.Seconds)
		if t.RunnerUp != nil {
			a := *t.RunnerUp
			round(&a.Loss)
			t.RunnerUp = &a
		}
	}
	return pyjson.Lines(&c)
}

func round(figures ...*float64) {
	for _, f := range figures {
		*f = pyjson.Round(*f)
	}
}

// Write writes the ledger to a file, which appears when it is whole.
func (l *Ledger) Write(out *atomicfile.Output) error {
	return out.WriteFile(l.Encode())
}
