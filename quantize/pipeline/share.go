package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/work"
)

// A Shard is one of several processes, on one machine or many, that make a package
// together in a work folder that all of them see. Groups of the text are run, sensitivities of
// matrices measured and tensors fitted, piece by piece, by whoever takes them; the level of sensitivities and the
// plan are made by one. What groups sum up is added in their order, so that it does not depend on
// how many shards there are. What a
// dead shard left is taken over. The package that [Request.Merge] makes has the bytes of one
// that a single process makes.
type Shard struct {
	Index int   // of this process: where it begins
	Piece int64 // weights of a piece of a tensor, alike for all; 0: a number that suits large models
}

// Share does the part of this process, and ends when all tensors are finished, whoever
// finished them. It writes into the work folder alone.
func Share(ctx context.Context, m *model.Model, q Request) error {
	if q.MaxKLD > 0 || q.MaxDrift > 0 {
		return formats.Unsupportedf("", "", "bounds on what is measured, in shards")
	}
	q.On, q.Expected = nil, nil // text is run where all have the same bits
	f, err := q.begin(ctx, m)
	if err != nil {
		return err
	}
	err = f.statistics(ctx)
	if err == nil {
		q.Plan, err = f.planned(ctx, "plan.json", 0)
	}
	if err == nil {
		_, err = f.fit(ctx, q.Plan, f.work, 0, f.Earlier)
	}
	f.close()
	return errors.Join(err, f.work.Close())
}

// once is the function of that name, but that who merges makes nothing.
func (f *flow) once(ctx context.Context, name string, get func() error) (done func(), err error) {
	if !f.Merge {
		return once(ctx, f.work, name, get)
	}
	if get() != nil {
		return nil, formats.Errorf(f.work.String(), "", "the shards have left no %s: run them again", name)
	}
	return func() {}, nil
}

// once lets one of the processes that share the work make something: it returns when get
// has found it, or with the right to make it, which done gives back. What another process
// makes is waited for.
func once(ctx context.Context, w *work.Folder, name string, get func() error) (done func(), err error) {
	for n := 0; ; n++ {
		if get() == nil {
			return func() {}, nil
		}
		release, ok, err := w.Lease(ctx, name)
		if err != nil {
			return nil, err
		}
		if ok {
			if w.Shared() && get() == nil { // between the two questions
				release()
				return func() {}, nil
			}
			return release, nil
		}
		if err := wait(ctx, w, n); err != nil {
			return nil, err
		}
	}
}

// soonest is how soon what others finish is looked for; each time nothing was found doubles it,
// until it is [work.Folder.Poll].
const soonest = 10 * time.Millisecond

// wait waits until it is time to look for what others finished, for the n-th time.
func wait(ctx context.Context, w *work.Folder, n int) error {
	t := time.NewTimer(min(soonest<<min(n, 10), w.Poll()))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// tensors fits tensors in their order. Where the work is shared, this process begins at a
// place of its own, leaves to others what they are at, and waits for it.
func (r *run) tensors(ctx context.Context, todo []graph.Weight, moments moments) error {
	return cmp.Or(r.begun(ctx, todo, moments), r.crew.all()) // nothing is closed that is fitted by
}

// begun is tensors, but for what is under way in the end.
func (r *run) begun(ctx context.Context, todo []graph.Weight, moments moments) error {
	if !r.o.Work.Shared() {
		for _, w := range todo {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			if err := r.tensor(ctx, w, moments); err != nil {
				return err
			}
		}
		return nil
	}
	var all []portion
	for _, w := range todo {
		all = append(all, r.portions(w)...)
	}
	if n := len(all); n > 0 {
		from := r.begins(n)
		for from > 0 && r.input(all[from].of.Name) == r.input(all[from-1].of.Name) {
			from-- // what reads an input follows one another
		}
		all = append(append([]portion{}, all[from:]...), all[:from]...)
	}
	err := each(ctx, r.o.Work, all, func(p portion) (bool, error) { return r.portion(ctx, p, moments) }, r.crew)
	if err == nil { // what a dead process has not put together
		err = each(ctx, r.o.Work, todo, func(w graph.Weight) (bool, error) { return r.leased(ctx, w, moments) }, nil)
	}
	return err
}

// begins returns where this process begins with n things. Places lie apart, however many
// processes there are: multiples of the golden ratio.
func (r *run) begins(n int) int {
	at := float64(r.o.Shard.Index) * 0.6180339887
	return int((at - float64(int(at))) * float64(n))
}

// each does things in their order until all are done. Those that others are at are asked for
// again, and those that a crew is at, which may be nil.
func each[T any](ctx context.Context, w *work.Folder, todo []T, do func(T) (done bool, err error), c *crew) error {
	for n := 0; len(todo) > 0; n++ {
		var busy []T
		for _, x := range todo {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			done, err := do(x)
			if err != nil {
				return err
			}
			if !done {
				busy = append(busy, x)
			}
		}
		if len(busy) == 0 {
			break
		}
		if len(busy) < len(todo) {
			n = 0
		}
		todo = busy
		if c != nil && c.under > 0 { // there is more to do when one has ended
			if err := c.next(); err != nil {
				return err
			}
			n = -1
		} else if err := wait(ctx, w, n); err != nil {
			return err
		}
	}
	return nil
}

// leased fits a tensor unless another process is at it, and reports whether it is there.
func (r *run) leased(ctx context.Context, w graph.Weight, moments moments) (bool, error) {
	there := func() bool { return r.has(w.Name) || r.finished(ctx, w.Name) }
	return taken(ctx, r.o.Work, w.Name, there, func() error {
		err := r.tensor(ctx, w, moments)
		if len(r.pieces(w)) == 0 { // it is under way
			err = cmp.Or(err, r.crew.all())
		}
		return err
	})
}

// taken has this process make something unless it is there or another is at it, and reports
// whether it is there.
func taken(ctx context.Context, w *work.Folder, name string, there func() bool, do func() error) (bool, error) {
	if there() {
		return true, nil
	}
	release, ok, err := w.Lease(ctx, name)
	if !ok || err != nil {
		return false, err
	}
	defer release()
	if there() { // between the two questions
		return true, nil
	}
	return true, do()
}

// whole refuses work in which a tensor is missing or damaged.
func (r *run) whole(ctx context.Context) error {
	var missing, damaged []string
	var first error
	for _, w := range r.m.Graph.Weights() {
		if r.has(w.Name) {
			continue
		}
		err := r.o.Work.Check(ctx, w.Name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, w.Name)
		case err == nil:
			damaged = append(damaged, w.Name) // of another recipe
		case ofBytes(err):
			damaged = append(damaged, w.Name)
			first = errors.Join(first, err)
		default:
			return err // it says nothing of the tensor
		}
	}
	if len(missing)+len(damaged) == 0 {
		return nil
	}
	return &HolesError{Folder: r.o.Work.String(), Missing: missing, Damaged: damaged, Err: first}
}

// ofBytes reports whether an error is of what a tensor's file holds, which the same program wrote:
// what it cannot read is damaged.
func ofBytes(err error) bool {
	_, wrong := errors.AsType[*formats.FormatError](err)
	_, unknown := errors.AsType[*formats.UnsupportedError](err)
	return wrong || unknown
}

// A HolesError says what keeps shards' work from being a package.
type HolesError struct {
	Folder           string
	Missing, Damaged []string // tensors
	Err              error    // what is damaged, nil for nothing
}

// Error implements error.
func (e *HolesError) Error() string {
	s := fmt.Sprintf("%s: %d tensors are missing and %d damaged", e.Folder, len(e.Missing), len(e.Damaged))
	all := append(append([]string{}, e.Missing...), e.Damaged...)
	s += ": " + strings.Join(all[:min(len(all), 5)], ", ")
	if len(all) > 5 {
		s += fmt.Sprintf(" and %d more", len(all)-5)
	}
	if e.Err != nil {
		s += ": " + formats.Brief(e.Err.Error(), 500)
	}
	return s
}

// Unwrap returns what is damaged.
func (e *HolesError) Unwrap() error { return e.Err }
