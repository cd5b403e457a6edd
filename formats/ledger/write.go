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
	c.Layers = slices.Clone(l.Layers)
	for i := range c.Layers {
		c.Layers[i] = c.Layers[i].rounded()
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

func (l Layer) rounded() Layer {
	round(&l.Loss)
	for _, s := range []**Saving{&l.Bits, &l.Factors} {
		if *s != nil {
			*s = &Saving{(*s).Tensors, (*s).Bytes, pyjson.Round((*s).Loss)}
		}
	}
	if k := l.KV; k != nil {
		l.KV = &KeptKV{k.Format, pyjson.Round(k.Bytes), pyjson.Round(k.KLD)}
	}
	if p := l.Pages; p != nil {
		l.Pages = &PagesOf{pyjson.Round(p.Read), pyjson.Round(p.KLD)}
	}
	return l
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
