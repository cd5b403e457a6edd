package pipeline

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/quantize/fit"
	"github.com/nstf/nstf/runtime/device"
)

// A met is the moments of a block that shards have summed up together, of one input at a time,
// and the factors of those that pieces are fitted by. These take K^3 products to make and K^2
// numbers to keep: one shard makes them, under a lease, and leaves them in the work folder,
// while the others fit by other inputs.
type met struct {
	*run
	ctx   context.Context
	block int
	codes map[string][]plan.Code // that pieces are fitted to, by input
	ready map[string]*fit.Input  // whose factors were read
	name  string
	gathered
}

// codes lists what pieces of a block's tensors, or the head's, are fitted to, by input.
func (r *run) codes(block int) map[string][]plan.Code {
	out := map[string][]plan.Code{}
	for _, w := range r.m.Graph.Weights() {
		in := r.input(w.Name)
		if !slices.ContainsFunc(r.inputsOf(block), func(x device.Input) bool { return x.Name == in }) {
			continue
		}
		if pieces := r.pieces(w); len(pieces) > 0 && pieces[0].units[0].expert < 0 {
			out[in] = append(out[in], r.recipe(w.Name).Code)
		}
	}
	return out
}

// Input implements moments.
func (s *met) Input(name string, expert int) (*fit.Input, error) {
	if name != s.name {
		g, err := s.summed(s.ctx, s.block, name)
		if err != nil {
			return nil, err
		}
		s.gathered, s.name = gathered{g: g}, name
	}
	return s.gathered.Input(name, expert)
}

// Ready implements moments.
func (s *met) Ready(ctx context.Context, name string) (*fit.Input, bool, error) {
	if in, ok := s.ready[name]; ok {
		return in, true, nil
	}
	at := slices.IndexFunc(s.inputsOf(s.block), func(in device.Input) bool { return in.Name == name })
	if at < 0 { // nothing is measured
		return nil, true, nil
	}
	what := factorsName(s.block, at)
	k := s.inputsOf(s.block)[at].K
	there := func() bool { return s.factors(ctx, name, what, k) }
	ok, err := taken(ctx, s.o.Work, what, there, func() error {
		if err := s.factor(ctx, name, at, what); err != nil || there() {
			return err
		}
		if ctx.Err() != nil { // nobody looked
			return context.Cause(ctx)
		}
		return formats.Errorf(s.o.Work.String(), what, "cannot be read back")
	})
	return s.ready[name], ok, err
}

// factors reads the factors of an input of k columns, where they are.
func (s *met) factors(ctx context.Context, name, what string, k int) bool {
	t, raw, ok := s.o.Work.Get(ctx, what)
	var is fit.Packed
	if !ok || json.Unmarshal(raw, &is) != nil {
		return false
	}
	if is.K == 0 { // nothing reached it
		s.ready[name] = nil
		return true
	}
	p, err := t.Parts[0].Data.Unchecked().Bytes() // the folder has checked them
	if err != nil || is.K != k {
		return false
	}
	in, err := is.Unpack(slices.Clone(p)) // another shard may remove the file that was mapped
	if err != nil {
		return false
	}
	s.ready[name] = in
	return true
}

// factor makes the factors of an input and leaves them in the work folder.
func (s *met) factor(ctx context.Context, name string, at int, what string) error {
	g := calibrate.NewGathered()
	if err := s.addUp(ctx, s.block, at, g); err != nil {
		return err
	}
	in, err := (&gathered{g: g}).Input(name, -1)
	if err != nil {
		return err
	}
	is, numbers := fit.Packed{}, tensor.NumbersBlob([]float32{0})
	if in != nil {
		o := fit.Options{Seed: s.p.Seed, Effort: int(s.p.Effort), Threads: s.o.Threads}
		for _, c := range s.codes[name] {
			if err := in.Prepare(c, o); err != nil {
				return formats.Errorf("", name, "%v", err)
			}
		}
		is, numbers = in.Pack()
	}
	words, _ := scheme.ByName("f32") // whatever they mean
	t, err := scheme.New(what, words, []int64{numbers.Len() / 4}, nil, numbers)
	if err != nil {
		return err
	}
	return s.o.Work.Leave(ctx, t, is)
}
