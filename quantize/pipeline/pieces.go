package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/quantize/fit"
)

// Shards share a tensor by pieces: runs of rows, or experts of a stack, each under a lease of
// its own. Who has made the last puts the tensor together, under the tensor's lease, to the
// bytes that one process makes, which cuts nothing: see [fit.Cut]. Pieces go when the tensor
// is there. One that is missing or damaged by then is made again.

// A tensor is cut into pieces of so many weights, and not more than so many pieces: one takes
// a core a second, and no more of them are to be asked for than shards may want.
const (
	pieceWeights = 1 << 18
	mostPieces   = 64
)

// A piece is some of a tensor's rows.
type piece struct {
	name  string // in the work folder; no tensor of a graph has a name with spaces
	units []unit // matrices that it holds, or the one that it is a run of
	first int64  // of the rows, in the matrix that it is a run of
	rows  int64  // of that; 0: it holds whole matrices
}

// pieces cuts a tensor that shards fit together; nil: it stays whole.
func (r *run) pieces(w graph.Weight) []piece {
	recipe := r.recipe(w.Name)
	if !r.o.Work.Shared() || recipe.Form != plan.FormDense || !fit.Cuttable(recipe.Code) {
		return nil
	}
	t := r.m.Tensor(w.Name)
	out := cut(&t, recipe, cmp.Or(r.o.Shard.Piece, max(pieceWeights, t.Elements()/mostPieces)))
	at := slices.IndexFunc(r.m.Graph.Weights(), func(x graph.Weight) bool { return x.Name == w.Name })
	for i := range out {
		out[i].name = fmt.Sprintf("piece %d of tensor %d", i, at)
	}
	return out
}

// cut cuts a tensor into pieces of about so many weights, as its shape says alone; nil: that
// is one.
func cut(t *formats.Tensor, recipe plan.Recipe, size int64) (out []piece) {
	_, k := t.Rows()
	rows := max((size/k+fit.CutStep/2)/fit.CutStep, 1) * fit.CutStep
	all := units(t, recipe)
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

// portion begins a portion unless it is there or another process is at it, and reports whether
// it is there.
func (r *run) portion(ctx context.Context, p portion, moments moments) (bool, error) {
	if len(p.pieces) == 0 {
		return r.leased(ctx, p.of, moments)
	}
	there := func(x piece) bool { return r.has(p.of.Name) || r.finished(ctx, p.of.Name) || r.hasPiece(ctx, x) }
	if there(p.pieces[p.at]) {
		return true, nil
	}
	name := r.input(p.of.Name)
	if time.Since(r.asked[name]) < r.o.Work.Poll()/2 {
		return false, nil
	}
	if err := r.crew.room(); err != nil { // before others are kept from it
		return false, err
	}
	var mine []piece
	var releases []func()
	release := func() {
		for _, f := range releases {
			f()
		}
	}
	for _, x := range p.pieces[p.at:][:r.wants(p, r.recipe(p.of.Name))] {
		if len(mine) > 0 && there(x) {
			break
		}
		free, ok, err := r.o.Work.Lease(ctx, x.name)
		if err != nil {
			release()
			return false, err
		}
		if !ok {
			break
		}
		releases = append(releases, free)
		if there(x) { // between the two questions
			break
		}
		mine = append(mine, x)
	}
	if len(mine) == 0 {
		release()
		return there(p.pieces[p.at]), nil
	}
	in, ok, err := (*fit.Input)(nil), true, error(nil)
	if mine[0].units[0].expert < 0 {
		if in, ok, err = moments.Ready(ctx, name); !ok {
			r.asked[name] = time.Now()
		}
	}
	if err == nil && ok {
		j := r.job(p.of, moments)
		j.learn(ctx, p)
		err = j.begin(ctx, mine, in, func(err error) error {
			release()
			if err != nil || slices.ContainsFunc(p.pieces, func(x piece) bool { return !r.hasPiece(ctx, x) }) {
				return err
			}
			_, err = r.leased(ctx, p.of, moments) // if another is at it, that is waited for in the end
			return err
		})
	}
	if err != nil || !ok {
		release()
	}
	return false, err
}

// stripsEach is how many strips of 16 rows each thread gets at least of what a shard takes at
// once, and shareOf the part of a tensor that is left behind a piece which it takes at once: much
// where much is left, for leases take time, and little in the end, for which all wait.
const (
	stripsEach = 2
	shareOf    = 8
)

// wants returns how many pieces this process fits at once: runs of rows that keep all of
// its threads busy, or a GPU, which would be as long at a piece as at all of a matrix.
func (r *run) wants(p portion, recipe plan.Recipe) (n int) {
	first := p.pieces[p.at]
	if first.rows == 0 {
		return 1
	}
	want := max(int64(stripsEach*scheme.TCQTile*r.o.Threads), int64(len(p.pieces)-p.at)/shareOf*first.rows)
	if recipe.Code.Bits > 0 && r.searches() {
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

// dropPieces removes the pieces of a tensor that is there, the first of them last.
func (r *run) dropPieces(ctx context.Context, pieces []piece) (err error) {
	for _, x := range slices.Backward(pieces) {
		err = errors.Join(err, r.o.Work.Drop(ctx, x.name))
	}
	return err
}

// dropLeft removes the pieces of a finished tensor that who put it together was stopped before it
// removed: where the first is gone, all are.
func (r *run) dropLeft(ctx context.Context, w graph.Weight) error {
	if pieces := r.pieces(w); len(pieces) > 0 && !r.o.Merge && r.o.Work.Has(ctx, pieces[0].name) {
		return r.dropPieces(ctx, pieces)
	}
	return nil
}
