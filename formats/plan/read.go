package plan

import (
	"math"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/pyjson"
)

// maxFile is the most that a plan's file holds.
const maxFile = 64 << 20

// Read reads a plan's file.
func Read(path string) (*Plan, error) {
	data, err := formats.ReadFile(path, maxFile, "a plan")
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Parse reads a plan's bytes; file names them in errors.
func Parse(file string, data []byte) (*Plan, error) {
	r := reader{pyjson.NewScanner(file, 0, data), &Plan{}, map[string]bool{}}
	if err := r.plan(); err != nil {
		return nil, err
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	return r.p, nil
}

type reader struct {
	*pyjson.Scanner
	p    *Plan
	seen map[string]bool
}

func (r *reader) plan() error {
	p := r.p
	return r.Record("", []pyjson.Member{
		{Name: "version", Read: r.Version(&p.Version, Version, "plan", "plan")},
		{Name: "source", Read: r.source},
		{Name: "budget", Read: r.budget},
		{Name: "seed", Read: r.Integer("seed", &p.Seed)},
		{Name: "effort", Read: r.Integer("effort", &p.Effort)},
		{Name: "predicted", Read: r.predicted},
		{Name: "tensors", Read: func() error { return r.Array(r.tensor) }},
	})
}

func (r *reader) source() error {
	s := &r.p.Source
	return r.Record("source", []pyjson.Member{
		{Name: "model", Read: r.Text(&s.Model)},
		{Name: "hash", Read: r.Text(&s.Hash)},
		{Name: "stats", Read: r.Text(&s.Stats)},
	})
}

func (r *reader) budget() error {
	b := &r.p.Budget
	return r.Record("budget", []pyjson.Member{
		{Name: "bytes", Optional: true, Read: r.Integer("budget.bytes", &b.Bytes)},
		{Name: "bpw", Optional: true, Read: r.size("budget.bpw", &b.BPW)},
		{Name: "kld", Optional: true, Read: r.size("budget.kld", &b.KLD)},
		{Name: "device", Optional: true, Read: r.Text(&b.Device)},
		{Name: "schemes", Optional: true, Read: r.Texts(&b.Schemes)},
		{Name: "keep", Optional: true, Read: r.Texts(&b.Keep)},
	})
}

func (r *reader) predicted() error {
	p := &r.p.Predicted
	return r.Record("predicted", []pyjson.Member{
		{Name: "kld", Read: r.size("predicted.kld", &p.KLD)},
		{Name: "bytes", Read: r.Integer("predicted.bytes", &p.Bytes)},
		{Name: "bpw", Read: r.size("predicted.bpw", &p.BPW)},
		{Name: "seconds_per_token", Optional: true, Read: r.size("predicted.seconds_per_token", &p.Seconds)},
	})
}

// size reads a number that is not negative.
func (r *reader) size(what string, dst *float64) func() error {
	read := r.Float(what, dst)
	return func() error {
		if err := read(); err != nil {
			return err
		}
		if *dst < 0 || math.Signbit(*dst) {
			return r.Errorf(what, "%g is negative", *dst)
		}
		return nil
	}
}

func (r *reader) tensor() error {
	r.p.Tensors = append(r.p.Tensors, Tensor{})
	t := &r.p.Tensors[len(r.p.Tensors)-1]
	err := r.Record("tensors", []pyjson.Member{
		{Name: "name", Read: r.name(t)},
		{Name: "role", Read: r.Text(&t.Role)},
		{Name: "shape", Read: r.Integers("shape", &t.Shape)},
		{Name: "recipe", Read: r.recipe(t, &t.Recipe)},
		{Name: "bytes", Read: r.Integer("bytes", &t.Bytes)},
		{Name: "error", Read: r.size("error", &t.Error)},
		{Name: "loss", Read: r.size("loss", &t.Loss)},
		{Name: "runner_up", Optional: true, Read: func() error { return r.runnerUp(t) }},
	})
	if err == nil && !sound(t.Shape) {
		err = r.Errorf(t.Name, "shape %v is none", t.Shape)
	}
	return err
}

func (r *reader) name(t *Tensor) func() error {
	return func() (err error) {
		if t.Name, err = r.String(); err != nil {
			return err
		}
		if t.Name == "" || r.seen[t.Name] {
			return r.Errorf("name", "tensor %q has no name of its own", t.Name)
		}
		r.seen[t.Name] = true
		return nil
	}
}

func (r *reader) recipe(t *Tensor, dst *Recipe) func() error {
	return func() error {
		s, err := r.String()
		if err != nil {
			return err
		}
		if *dst, err = ParseRecipe(s); err != nil {
			return r.At(t.Name, err)
		}
		return nil
	}
}

func (r *reader) runnerUp(t *Tensor) error {
	a := &Alternative{}
	t.RunnerUp = a
	return r.Record("runner_up", []pyjson.Member{
		{Name: "recipe", Read: r.recipe(t, &a.Recipe)},
		{Name: "bytes", Read: r.Integer("runner_up.bytes", &a.Bytes)},
		{Name: "error", Read: r.size("runner_up.error", &a.Error)},
		{Name: "loss", Read: r.size("runner_up.loss", &a.Loss)},
	})
}

// sound reports whether a shape's product fits 63 bits.
func sound(shape []int64) bool {
	n := int64(1)
	for _, d := range shape {
		if d < 0 || d > 0 && n > math.MaxInt64/d {
			return false
		}
		n *= d
	}
	return len(shape) <= 8
}
