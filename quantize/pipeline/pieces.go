package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/quantize/factored"
	"github.com/nstf/nstf/quantize/fit"
)

// Shards share a tensor by pieces: runs of rows, or experts of a stack, each under a lease of
// its own. Who has made the last puts the tensor together, under the tensor's lease, to the
// bytes that one process makes, which cuts nothing: see [fit.Cut]. Pieces go when the tensor
// is there. One that is missing or damaged by then is made again.

// A tensor is cut into pieces of so many weights, and not more than so many pieces: one takes
// a core a few seconds, and no more of them are to be asked for than shards may want.
const (
	pieceWeights = 3 << 18
	mostPieces   = 64
)

// A piece is some of a tensor's rows.
type piece struct {
	name  string // in the work folder; no tensor of a graph has a name with spaces
	units []unit // matrices that it holds, or the one that it is a run of
	first int64  // of the rows, in the matrix that it is a run of
	rows  int64  // of that; 0: it holds whole matrices
}

// pieces cuts a tensor that shards fit together, as its shape says alone; nil: it stays whole.
func (r *run) pieces(w graph.Weight) (out []piece) {
	recipe := r.recipe(w.Name)
	if !r.o.Work.Shared() || recipe.Form != plan.FormDense || !fit.Cuttable(recipe.Code) {
		return nil
	}
	t := r.m.Tensor(w.Name)
	_, k := t.Rows()
	size := cmp.Or(r.o.Shard.Piece, max(pieceWeights, t.Elements()/mostPieces))
	rows := max(size/k/fit.CutStep, 1) * fit.CutStep
	all := units(&t, recipe)
	for len(all) > 0 {
		u := all[0]
		if u.expert >= 0 && !u.run { // each is weighed by moments of its own, which are factored for it
			n := min(max(int(size/(u.rows*k)), 1), len(all))
			out, all = append(out, piece{units: all[:n]}), all[n:]
			continue
		}
		for at := int64(0); at < u.rows; at += rows {
			out = append(out, piece{units: all[:1], first: at, rows: min(rows, u.rows-at)})
		}
		all = all[1:]
	}
	if len(out) < 2 {
		return nil
	}
	at := slices.IndexFunc(r.m.Graph.Weights(), func(x graph.Weight) bool { return x.Name == w.Name })
	for i := range out {
		out[i].name = fmt.Sprintf("piece %d of tensor %d", i, at)
	}
	return out
}

// A portion is what a shard takes at once: a tensor, or from one of its pieces on as many as
// it can use.
type portion struct {
	of     graph.Weight
	pieces []piece // of the tensor
	at     int
}

// portions lists those of a tensor.
func (r *run) portions(w graph.Weight) (out []portion) {
	pieces := r.pieces(w)
	for i := range max(len(pieces), 1) {
		out = append(out, portion{w, pieces, i})
	}
	return out
}

// portion makes a portion unless it is there or another process is at it, and reports whether
// it is there.
func (r *run) portion(ctx context.Context, p portion, moments moments) (bool, error) {
	if len(p.pieces) == 0 {
		return r.leased(ctx, p.of, moments)
	}
	there := func(x piece) bool { return r.has(p.of.Name) || r.finished(ctx, p.of.Name) || r.hasPiece(ctx, x) }
	if there(p.pieces[p.at]) {
		return true, nil
	}
	var mine []piece
	for _, x := range p.pieces[p.at:][:r.wants(p)] {
		if len(mine) > 0 && there(x) {
			break
		}
		release, ok, err := r.o.Work.Lease(ctx, x.name)
		if err != nil {
			return false, err
		}
		if !ok {
			break
		}
		defer release()
		if there(x) { // between the two questions
			break
		}
		mine = append(mine, x)
	}
	if len(mine) == 0 {
		return there(p.pieces[p.at]), nil
	}
	j := r.job(p.of, moments)
	j.learn(ctx, p)
	if err := j.leave(ctx, mine); err != nil {
		return false, err
	}
	if slices.ContainsFunc(p.pieces, func(x piece) bool { return !r.hasPiece(ctx, x) }) {
		return true, nil
	}
	_, err := r.leased(ctx, p.of, moments) // if another is at it, that is waited for in the end
	return true, err
}

// stripsEach is how many strips of 16 rows each thread gets of what a shard takes at once.
const stripsEach = 2

// wants returns how many pieces this process fits at once: a run of rows that keeps all of
// its threads busy, or a GPU, which would be as long at a piece as at all of a matrix.
func (r *run) wants(p portion) (n int) {
	first := p.pieces[p.at]
	if first.rows == 0 {
		return 1
	}
	want := int64(stripsEach * scheme.TCQTile * r.o.Threads)
	if r.recipe(p.of.Name).Code.Bits > 0 && r.searches() {
		want = first.units[0].rows
	}
	for _, x := range p.pieces[p.at:] {
		if want <= 0 || x.rows == 0 || x.units[0] != first.units[0] {
			break
		}
		n, want = n+1, want-x.rows
	}
	return n
}

// searches reports whether trellis codes are not searched on this processor.
func (r *run) searches() bool {
	s, looks := r.o.Searcher.(interface{ Found() bool })
	return r.o.Searcher != nil && (!looks || s.Found())
}

// hasPiece reports whether a piece is there, or was.
func (r *run) hasPiece(ctx context.Context, x piece) bool {
	r.there[x.name] = r.there[x.name] || r.o.Work.Has(ctx, x.name)
	return r.there[x.name]
}

// dropPieces removes the pieces of a tensor that is there.
func (r *run) dropPieces(ctx context.Context, pieces []piece) (err error) {
	for _, x := range pieces {
		err = errors.Join(err, r.o.Work.Drop(ctx, x.name))
	}
	return err
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
