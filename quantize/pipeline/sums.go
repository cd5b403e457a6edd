package pipeline

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/device"
)

// A record is what stands of sums beside their numbers, which are for each one after the
// other, in float64: the largest magnitudes [K] and the squares [K(K+1)/2].
type record struct {
	Sums []summed `json:"sums"`
}

// A summed is the sums of an input, or of what an expert (else -1) reads of it.
type summed struct {
	Input  string `json:"input"`
	Expert int    `json:"expert"`
	K      int    `json:"k"`
	Tokens int64  `json:"tokens"`
}

// numbers returns how many there are.
func (s *summed) numbers() int64 { return int64(s.K) + device.Triangle(int64(s.K)) }

// hasSums reports whether a group has left what it adds to a block's sums: the last input's
// come last.
func (r *run) hasSums(ctx context.Context, block, group int) bool {
	n := len(r.inputsOf(block))
	return n == 0 || r.o.Work.Has(ctx, r.sumsName(block, group, n-1))
}

// dropSums removes what groups have added to a block's sums.
func (r *run) dropSums(ctx context.Context, block int) (err error) {
	for group := range r.groups()[1:] {
		for i := range r.inputsOf(block) {
			err = errors.Join(err, r.o.Work.Drop(ctx, r.sumsName(block, group, i)))
		}
	}
	return err
}

// keepSums puts the sums of an input into the work folder.
func (r *run) keepSums(ctx context.Context, name string, sums []device.Sums) error {
	var is record
	var blobs []tensor.Blob
	var all int64
	for _, s := range sums {
		x := summed{s.Input, s.Expert, len(s.AbsMax), s.Tokens}
		is.Sums, all = append(is.Sums, x), all+x.numbers()
		largest := make([]float64, x.K)
		for i, v := range s.AbsMax {
			largest[i] = float64(v)
		}
		blobs = append(blobs, tensor.NumbersBlob(largest), tensor.NumbersBlob(s.Squares))
	}
	s, _ := scheme.ByName("f64")
	t, err := scheme.New(name, s, []int64{all}, nil, tensor.Concat(blobs...))
	if err != nil {
		return err
	}
	return r.o.Work.Leave(ctx, t, is)
}

// sums reads what was kept of an input; nothing where that is missing or damaged, which is an
// error. They are not to be changed, and live as long as the folder has them open.
func (r *run) sums(ctx context.Context, name string) (out []device.Sums, err error) {
	t, raw, ok := r.o.Work.Get(ctx, name)
	if !ok {
		if ctx.Err() != nil { // nobody looked
			return nil, context.Cause(ctx)
		}
		return nil, formats.Errorf(r.o.Work.String(), name, "missing or damaged")
	}
	var is record
	if err := json.Unmarshal(raw, &is); err != nil {
		return nil, formats.Errorf(r.o.Work.String(), name, "%v", err)
	}
	var at int64
	for _, x := range is.Sums {
		p, err := t.Parts[0].Data.Unchecked().Slice(8*at, 8*x.numbers()).Bytes() // the folder has checked them
		if err != nil {
			return nil, err
		}
		at += x.numbers()
		numbers := tensor.Numbers[float64](p)
		s := device.Sums{Input: x.Input, Expert: x.Expert, Tokens: x.Tokens, AbsMax: make([]float32, x.K), Squares: numbers[x.K:]}
		for i := range s.AbsMax {
			s.AbsMax[i] = float32(numbers[i])
		}
		out = append(out, s)
	}
	return out, nil
}

// add gives sums to g, which has none of their input.
func add(g *calibrate.Gathered, sums []device.Sums) {
	for i := range sums {
		g.Add(&sums[i])
	}
}

// total adds up sums of groups in the order of these.
func total(groups [][]device.Sums, threads int) (out []device.Sums) {
	at := map[int]int{} // in out, by expert
	var parts [][][]float64
	for _, sums := range groups {
		for _, s := range sums {
			i, ok := at[s.Expert]
			if !ok {
				i, at[s.Expert] = len(out), len(out)
				out, parts = append(out, device.Sums{Input: s.Input, Expert: s.Expert, AbsMax: make([]float32, len(s.AbsMax)), Squares: make([]float64, len(s.Squares))}), append(parts, nil)
			}
			out[i].Tokens += s.Tokens
			for j, v := range s.AbsMax {
				out[i].AbsMax[j] = max(out[i].AbsMax[j], v)
			}
			parts[i] = append(parts[i], s.Squares)
		}
	}
	pool := cpu.NewPool(threads)
	defer pool.Close()
	for i, s := range out {
		const run = 1 << 16
		pool.Run((len(s.Squares)+run-1)/run, func(n int) {
			lo, hi := n*run, min((n+1)*run, len(s.Squares))
			to := s.Squares[lo:hi]
			copy(to, parts[i][0][lo:hi])
			for _, more := range parts[i][1:] {
				for j, v := range more[lo:hi] {
					to[j] += v
				}
			}
		})
	}
	return out
}
