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

// begin begins to make pieces, which it leaves in the work folder when they are made; then
// is called in the end with what went wrong.
func (j *job) begin(ctx context.Context, pieces []piece, in *fit.Input, then func(err error) error) error {
	m, err := j.making(pieces, in)
	if err != nil {
		return err
	}
	return j.crew.begin(func(turn *fit.Turn) error { return m.make(ctx, turn) }, func(err error) error {
		if err == nil {
			err = j.leave(ctx, m)
		}
		return then(err)
	})
}

// leave leaves pieces in the work folder.
func (j *job) leave(ctx context.Context, m *making) error {
	j.made(m)
	for i, x := range m.out {
		var rows int64
		var all []formats.Tensor
		for _, u := range x.Units {
			for _, w := range u.Ways {
				n, _ := w.Tensor.Rows()
				rows, all = rows+n, append(all, w.Tensor)
			}
		}
		_, k := all[0].Rows()
		name := m.pieces[i].name
		t, err := scheme.Concat(name, []int64{rows, k}, all...)
		if err == nil {
			err = j.o.Work.Leave(ctx, t, x)
		}
		if err != nil {
			return err
		}
		j.there[name] = true
	}
	return nil
}

// A making is pieces on their way: runs of rows of a unit that follow one another, or one
// piece of whole matrices.
type making struct {
	job    *job
	pieces []piece
	inputs []*fit.Input // of each unit
	known  []string     // methods that are in question, of runs
	out    []made
}

// making finds what pieces are made of. in is their input's; experts have inputs of their own.
func (j *job) making(pieces []piece, in *fit.Input) (*making, error) {
	m := &making{job: j, pieces: pieces}
	x := pieces[0]
	for _, u := range x.units {
		if u.expert >= 0 {
			var err error
			if in, err = j.moments.Input(j.input(j.name), u.expert); err != nil {
				return nil, err
			}
		}
		m.inputs = append(m.inputs, in)
	}
	if x.rows > 0 {
		m.known = j.methods[unitKey{j.name, x.units[0].first}]
	}
	return m, nil
}

// made takes note of pieces that are made.
func (j *job) made(m *making) {
	x := m.pieces[0]
	if x.rows > 0 {
		j.methods[unitKey{j.name, x.units[0].first}] = m.known
	}
	_, k := j.tensor().Rows()
	for _, x := range m.pieces {
		n := x.rows
		for _, u := range x.units {
			if x.rows == 0 {
				n += u.rows
			}
		}
		j.fitted(n * k)
	}
}

// tensor returns what is fitted.
func (j *job) tensor() *formats.Tensor {
	t := j.m.Tensor(j.name)
	return &t
}

// make makes them.
func (m *making) make(ctx context.Context, turn *fit.Turn) error {
	began := time.Now()
	x := m.pieces[0]
	if x.rows == 0 {
		m.out = []made{{Recipe: m.job.recipe}}
		for i, u := range x.units {
			fitted, err := m.runs(ctx, turn, i, 0, int(u.rows))
			if err != nil {
				return err
			}
			m.out[0].Units = append(m.out[0].Units, fitted...)
		}
	} else {
		var runs []int
		for _, x := range m.pieces {
			runs = append(runs, int(x.rows))
		}
		fitted, err := m.runs(ctx, turn, 0, int(x.first), runs...)
		if err != nil {
			return err
		}
		for _, p := range fitted {
			m.out = append(m.out, made{Recipe: m.job.recipe, Units: []fit.Piece{p}})
		}
	}
	for i := range m.out {
		m.out[i].Seconds = time.Since(began).Seconds() / float64(len(m.out))
	}
	return nil
}

// runs fits runs of rows of unit i, from first on.
func (m *making) runs(ctx context.Context, turn *fit.Turn, i, first int, runs ...int) ([]fit.Piece, error) {
	j, u := m.job, m.pieces[0].units[i]
	t := j.tensor()
	_, k := t.Rows()
	rows := func(first, n int) ([]float32, error) {
		w := make([]float32, int64(n)*k)
		return w, form.DecodeRows(w, t, u.first+int64(first), int64(n))
	}
	o := j.unitOptions(u)
	o.Turn = turn
	cut, err := fit.NewCut(j.name, rows, int(u.rows), int(k), j.recipe.Code, m.inputs[i], o)
	if err != nil {
		return nil, err
	}
	cut.Methods = m.known
	out, err := cut.Fit(ctx, first, runs...)
	if m.pieces[0].rows > 0 {
		m.known = cut.Methods
	}
	return out, err
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
			if m, err = j.again(ctx, x); err != nil {
				return formats.Tensor{}, out, err
			}
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

// again makes a piece that was there.
func (j *job) again(ctx context.Context, x piece) (out made, err error) {
	in, ok := (*fit.Input)(nil), false
	for n := 0; x.units[0].expert < 0 && !ok; n++ {
		if in, ok, err = j.moments.Ready(ctx, j.input(j.name)); err == nil && !ok {
			err = wait(ctx, j.o.Work, n)
		}
		if err != nil {
			return out, err
		}
	}
	m, err := j.making([]piece{x}, in)
	if err == nil {
		err = m.make(ctx, nil)
	}
	if err != nil {
		return out, err
	}
	j.made(m)
	return m.out[0], nil
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
