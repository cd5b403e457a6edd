package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/quantize/factored"
	"github.com/nstf/nstf/quantize/fit"
)

// made is a piece: what is kept of it beside the weights.
type made struct {
	Recipe  plan.Recipe `json:"recipe"`
	Seconds float64     `json:"seconds"`
	Units   []fit.Piece `json:"units"`
}

// leave makes pieces and leaves them in the work folder.
func (j *job) leave(ctx context.Context, pieces []piece) error {
	list, err := j.make(ctx, pieces)
	if err != nil {
		return err
	}
	for i, m := range list {
		var rows int64
		var all []formats.Tensor
		for _, u := range m.Units {
			for _, w := range u.Ways {
				n, _ := w.Tensor.Rows()
				rows, all = rows+n, append(all, w.Tensor)
			}
		}
		_, k := all[0].Rows()
		t, err := scheme.Concat(pieces[i].name, []int64{rows, k}, all...)
		if err == nil {
			err = j.o.Work.Leave(ctx, t, m)
		}
		if err != nil {
			return err
		}
		j.there[pieces[i].name] = true
	}
	return nil
}

// make fits pieces: runs of rows that follow one another, or one of whole matrices.
func (j *job) make(ctx context.Context, pieces []piece) (out []made, err error) {
	began := time.Now()
	if x := pieces[0]; x.rows == 0 {
		out = []made{{Recipe: j.recipe}}
		for _, u := range x.units {
			fitted, err := j.runs(ctx, u, 0, int(u.rows))
			if err != nil {
				return nil, err
			}
			out[0].Units = append(out[0].Units, fitted...)
		}
	} else {
		var runs []int
		for _, x := range pieces {
			runs = append(runs, int(x.rows))
		}
		fitted, err := j.runs(ctx, x.units[0], int(x.first), runs...)
		if err != nil {
			return nil, err
		}
		for _, p := range fitted {
			out = append(out, made{Recipe: j.recipe, Units: []fit.Piece{p}})
		}
	}
	for i := range out {
		out[i].Seconds = time.Since(began).Seconds() / float64(len(out))
	}
	return out, nil
}

// runs fits runs of a unit's rows from first on.
func (j *job) runs(ctx context.Context, u unit, first int, runs ...int) ([]fit.Piece, error) {
	t := j.m.Tensor(j.name)
	_, k := t.Rows()
	in, err := j.moments.Input(j.input(j.name), u.expert)
	if err != nil {
		return nil, err
	}
	rows := func(first, n int) ([]float32, error) {
		w := make([]float32, int64(n)*k)
		return w, form.DecodeRows(w, &t, u.first+int64(first), int64(n))
	}
	cut, err := fit.NewCut(j.name, rows, int(u.rows), int(k), j.recipe.Code, in, j.unitOptions(u))
	if err != nil {
		return nil, err
	}
	cut.Methods = j.methods[unitKey{j.name, u.first}]
	out, err := cut.Fit(ctx, first, runs...)
	if err != nil {
		return nil, err
	}
	j.methods[unitKey{j.name, u.first}] = cut.Methods
	for _, n := range runs {
		j.fitted(int64(n) * k)
	}
	return out, nil
}

// read reads a piece.
func (j *job) read(ctx context.Context, x piece) (m made, ok bool) {
	t, raw, ok := j.o.Work.Get(ctx, x.name)
	if !ok || json.Unmarshal(raw, &m) != nil || m.Recipe != j.recipe || len(m.Units) != len(x.units) {
		return m, false
	}
	var at int64
	all, _ := t.Rows()
	for i := range m.Units {
		n := cmp.Or(x.rows, x.units[i].rows)
		for w := range m.Units[i].Ways {
			way := &m.Units[i].Ways[w]
			if int64(len(way.Losses)) != n || at+n > all {
				return m, false
			}
			var err error
			if way.Tensor, err = scheme.Slice(t, at, n); err != nil {
				return m, false
			}
			at += n
		}
	}
	return m, at == all
}

// join puts a tensor together.
func (j *job) join(ctx context.Context, pieces []piece) (x formats.Tensor, out Fit, err error) {
	out.Recipe = j.recipe
	of := map[unit][]fit.Piece{}
	var all []unit
	for _, x := range pieces {
		m, ok := j.read(ctx, x)
		if !ok { // missing, or damaged since
			list, err := j.make(ctx, []piece{x})
			if err != nil {
				return formats.Tensor{}, out, err
			}
			m = list[0]
		}
		for i, u := range x.units {
			if of[u] == nil {
				all = append(all, u)
			}
			of[u] = append(of[u], m.Units[i])
		}
		out.Seconds += m.Seconds
	}
	var stack []formats.Tensor
	for _, u := range all {
		r, err := fit.Join(j.name, of[u])
		if err != nil {
			return x, out, err
		}
		out.add(&r)
		stack = append(stack, r.Tensor)
	}
	t := j.m.Tensor(j.name)
	x, err = factored.Stack(j.name, t.Shape, stack)
	return x, out, err
}

// learn takes from a piece that is there the methods that are in question, where this process
// has not found them: a sample of the matrix says which, of blocks at the price of 64 rows.
func (j *job) learn(ctx context.Context, p portion) {
	u := p.pieces[p.at].units[0]
	key := unitKey{j.name, u.first}
	for _, x := range p.pieces {
		if j.methods[key] != nil || x.units[0] != u || !j.there[x.name] {
			continue
		}
		m, ok := j.read(ctx, x)
		for i := 0; ok && i < len(m.Units[0].Ways); i++ {
			j.methods[key] = append(j.methods[key], m.Units[0].Ways[i].Method)
		}
	}
}

// A unitKey names a unit.
type unitKey struct {
	tensor string
	first  int64
}
