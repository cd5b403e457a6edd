package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/nstf/nstf/formats/ledger"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/work"
	qplan "github.com/nstf/nstf/quantize/plan"
)

// A package that keeps a bound is taken where its measured divergence comes this
// near: 0.9 of it is 0.08 bits per weight, as divergence falls fourfold with
// each bit.
const nearEnough = 0.9

// defaultTries is how often a plan is made for a bound.
const defaultTries = 6

// A candidate is what a try came to.
type candidate struct {
	p        *plan.Plan
	r        *Result
	measured *Measured
	try      Try
}

// bounded looks for the smallest package whose measured divergence keeps the
// bound. Divergence is nearly proportional to what was predicted: each try asks
// for the prediction that the last one says will do. Tensors whose recipe stays
// are taken from the try before.
func (f *flow) bounded(ctx context.Context) (*Outcome, error) {
	if len(f.Held) == 0 {
		return nil, fmt.Errorf("a bound on the divergence needs text to measure on, beside that to fit to")
	}
	if f.Tries == 0 {
		f.Tries = defaultTries
	}
	var best *candidate
	var tries []Try
	loss, reuse := f.MaxKLD*0.9, f.Earlier
	for i := range f.Tries {
		c, err := f.try(ctx, i, loss, reuse)
		if _, ok := errors.AsType[*qplan.ImpossibleError](err); ok && len(tries) > 0 {
			break
		}
		if err != nil {
			return nil, err
		}
		tries = append(tries, c.try)
		kept := c.try.Bound <= f.MaxKLD
		if kept && (best == nil || c.try.Bytes < best.try.Bytes) {
			best = c
		}
		if kept && c.try.Bound >= nearEnough*f.MaxKLD {
			break
		}
		if !kept { // so that the next plan is another one
			loss = min(loss, c.try.Predicted)
		}
		next := nextLoss(loss, c.try.Bound, f.MaxKLD)
		if best != nil && !kept { // between the two
			next = math.Sqrt(next * best.try.Predicted)
		}
		if next == loss || c.same(loss, next) || !kept && c.try.Predicted == 0 {
			break
		}
		loss, reuse = next, c.reuse()
	}
	if best == nil {
		return nil, &BoundError{Bound: f.MaxKLD, Tries: tries}
	}
	out, err := f.write(ctx, best.p, best.r, best.measured)
	if out != nil {
		out.Tries = tries
	}
	return out, err
}

// nextLoss returns the prediction to ask for when one of loss measured bound.
func nextLoss(loss, bound, target float64) float64 {
	if !(bound > 0) {
		return loss * 4
	}
	return loss * math.Max(1.0/16, math.Min(16, 0.96*target/bound))
}

// same reports whether asking for more loss cannot change the plan: it has the
// least loss, or the most, that there is.
func (c *candidate) same(loss, next float64) bool {
	return next > loss && c.p.Predicted.KLD < loss/2 || next < loss && c.p.Predicted.KLD > loss
}

func (c *candidate) reuse() map[string]Reused {
	out := make(map[string]Reused, len(c.r.Tensors))
	for name, t := range c.r.Tensors {
		out[name] = Reused{Tensor: t, Fit: c.r.Fits[name]}
	}
	return out
}

// try makes and measures the tensors of one plan.
func (f *flow) try(ctx context.Context, i int, loss float64, reuse map[string]Reused) (*candidate, error) {
	p, err := f.planned(ctx, fmt.Sprintf("plan-%d.json", i+1), loss)
	if err != nil {
		return nil, err
	}
	if i == 0 {
		if err := f.room(p); err != nil {
			return nil, err
		}
	}
	w, err := work.Resume(f.work.Own(fmt.Sprintf("try-%d", i+1)), work.Job{"plan": hashOf(p.Encode())})
	if err != nil {
		return nil, err
	}
	f.open = append(f.open, w)
	c := &candidate{p: p}
	if c.r, err = f.fit(ctx, p, w, loss, reuse); err != nil {
		return nil, err
	}
	p = c.r.Plan
	c.p = p
	if c.measured, err = f.measure(ctx, c.r); err != nil {
		return nil, err
	}
	l := account(f.m, p, c.r, nil, ledger.Source{})
	c.try = Try{Predicted: p.Predicted.KLD, Measured: c.measured.KLD.Mean, Bound: c.measured.Bound(), Bytes: l.Model.Bytes}
	return c, nil
}

// A BoundError says that no package kept a bound on the divergence.
type BoundError struct {
	Bound float64
	Tries []Try
}

// Error implements error.
func (e *BoundError) Error() string {
	said := fmt.Sprintf("no package keeps a divergence of %g with twice its standard error; tried:", e.Bound)
	for _, t := range e.Tries {
		said += fmt.Sprintf(" %.4g (%d bytes, predicted %.4g)", t.Bound, t.Bytes, t.Predicted)
	}
	if n := len(e.Tries); n > 0 && e.Tries[n-1].Predicted == 0 {
		said += "; the last keeps every tensor as it is, so that no package is nearer: measuring itself is no finer than this"
	}
	return said
}
