package plan

import (
	"fmt"
	"math"
	"strconv"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/plan"
)

// A Package counts the bytes of the whole file that a plan makes.
type Package interface {
	// Most returns the most bytes that a tensor stored by a recipe adds to the
	// file: its parts, their padding, and what describes them.
	Most(name string, r plan.Recipe) (int64, error)
	// Size returns the bytes of the file that a plan makes.
	Size(p *plan.Plan) (int64, error)
}

// An ImpossibleError says that no plan keeps a budget, and what the least is
// that one could keep.
type ImpossibleError struct{ Wanted, Least string }

// Error implements error.
func (e *ImpossibleError) Error() string {
	return fmt.Sprintf("a plan for %s is impossible: the smallest is %s", e.Wanted, e.Least)
}

// Solve picks a candidate of each item: the least loss within the bytes or the
// bits per weight of a budget, or the fewest bytes within its loss. What it
// picks is within a thousandth of the best. The plan has its tensors, what is
// predicted of them, and the budget; the caller adds where it comes from.
//
// The loss that a plan predicts is [Divergence] of the sum of its tensors'.
//
// It fails with an [*ImpossibleError], with a [formats.UnsupportedError] where
// an item has no candidates, and with the errors of the budget's Package.
func Solve(items []Item, b Budget) (*plan.Plan, error) {
	s := solver{items: items, b: b}
	if err := s.weigh(); err != nil {
		return nil, err
	}
	switch {
	case b.Bytes > 0:
		return s.withinBytes()
	case b.BPW > 0:
		return s.withinBits()
	case b.MaxLoss > 0:
		return s.withinLoss()
	}
	panic("plan: a budget of nothing")
}

type solver struct {
	items  []Item
	b      Budget
	most   [][]float64 // bytes that each candidate adds to the package
	params int64
}

// weigh finds out what candidates add to the package.
func (s *solver) weigh() error {
	for i := range s.items {
		it := &s.items[i]
		if len(it.Candidates) == 0 {
			return formats.Unsupportedf("", it.Name, "no recipe that is allowed can hold shape %v", it.Shape)
		}
		s.params += elements(it.Shape)
		row := make([]float64, len(it.Candidates))
		for j, c := range it.Candidates {
			n := c.Bytes
			if s.b.Package != nil {
				var err error
				if n, err = s.b.Package.Most(it.Name, c.Recipe); err != nil {
					return err
				}
			}
			row[j] = float64(n)
		}
		s.most = append(s.most, row)
	}
	return nil
}

func elements(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// choices makes the options of a knapsack.
func (s *solver) choices(f func(item, candidate int) (cost, weight float64)) [][]choice {
	out := make([][]choice, len(s.items))
	for i := range s.items {
		for j := range s.items[i].Candidates {
			cost, weight := f(i, j)
			out[i] = append(out[i], choice{cost, weight, j})
		}
	}
	return out
}

// withinBytes spends the bytes of a package. What candidates add to it is known
// to within a page and a few digits, so the room for them is found by asking
// for the size of what comes out, until nothing is left that could be spent.
func (s *solver) withinBytes() (*plan.Plan, error) {
	options := s.choices(func(i, j int) (float64, float64) { return s.items[i].Candidates[j].Loss, s.most[i][j] })
	room, best := float64(s.b.Bytes), (*plan.Plan)(nil)
	const tries = 8
	for range tries {
		found, ok := pack(options, room)
		if !ok {
			break
		}
		p, err := s.plan(found)
		if err != nil {
			return nil, err
		}
		left := float64(s.b.Bytes - p.Predicted.Bytes)
		if left >= 0 && (best == nil || p.Predicted.KLD < best.Predicted.KLD) {
			best = p
		}
		if left >= 0 && (left < page || found.price == 0) {
			break
		}
		room += left
	}
	if best != nil {
		return best, nil
	}
	return s.least(options, func(p *plan.Plan) bool { return p.Predicted.Bytes <= s.b.Bytes },
		func(p *plan.Plan) *ImpossibleError {
			return &ImpossibleError{inMiB(float64(s.b.Bytes)), inMiB(float64(p.Predicted.Bytes))}
		})
}

// inMiB writes a number of bytes, none too few.
func inMiB(bytes float64) string {
	return strconv.FormatFloat(math.Ceil(1000*bytes/(1<<20))/1000, 'f', 3, 64) + "MiB"
}

// page is what packages are filled up to.
const page = 4096

// withinBits spends bits per weight, which count parts alone.
func (s *solver) withinBits() (*plan.Plan, error) {
	options := s.choices(func(i, j int) (float64, float64) {
		c := &s.items[i].Candidates[j]
		return c.Loss, float64(c.Bytes)
	})
	found, ok := pack(options, math.Floor(s.b.BPW*float64(s.params)/8))
	if ok {
		return s.plan(found)
	}
	return s.least(options, func(*plan.Plan) bool { return false }, func(p *plan.Plan) *ImpossibleError {
		return &ImpossibleError{fmt.Sprintf("%.4g bits per weight", s.b.BPW), strconv.FormatFloat(math.Ceil(p.Predicted.BPW*1000)/1000, 'g', -1, 64)}
	})
}

// least returns the plan of the lightest candidates where it is enough, or says
// what would be.
func (s *solver) least(options [][]choice, enough func(*plan.Plan) bool, impossible func(*plan.Plan) *ImpossibleError) (*plan.Plan, error) {
	var found solution
	for _, list := range options {
		found.picked = append(found.picked, undominated(list)[0].index)
	}
	p, err := s.plan(found)
	if err != nil || enough(p) {
		return p, err
	}
	return nil, impossible(p)
}

// withinLoss spends a loss on the fewest bytes.
func (s *solver) withinLoss() (*plan.Plan, error) {
	options := s.choices(func(i, j int) (float64, float64) {
		c := &s.items[i].Candidates[j]
		if s.b.Fastest {
			return c.Seconds + s.b.ByteSeconds*s.most[i][j], c.Loss
		}
		return s.most[i][j], c.Loss
	})
	sum := inverse(s.b.MaxLoss) * (1 - 1e-9) // of losses added in another order
	found, ok := pack(options, sum)
	if ok {
		if found.price > 0 {
			found.price = 1 / found.price
		}
		return s.plan(found)
	}
	return s.least(options, func(*plan.Plan) bool { return false }, func(p *plan.Plan) *ImpossibleError {
		return &ImpossibleError{fmt.Sprintf("a divergence of %.4g", s.b.MaxLoss), upward(p.Predicted.KLD)}
	})
}

// upward writes a number with four digits, none of which is too low.
func upward(v float64) string {
	step := math.Pow(10, math.Floor(math.Log10(v))-3)
	if !(v > 0) || !(step > 0) {
		return fmt.Sprintf("%.4g", v)
	}
	return fmt.Sprintf("%.4g", math.Ceil(v/step)*step)
}

// plan writes a solution down. Its price is that of a byte in loss.
func (s *solver) plan(found solution) (*plan.Plan, error) {
	p := &plan.Plan{Version: plan.Version, Budget: plan.Budget{Bytes: s.b.Bytes, BPW: s.b.BPW, KLD: s.b.MaxLoss}}
	var sum float64
	var bytes int64
	for i := range s.items {
		it := &s.items[i]
		c := &it.Candidates[found.picked[i]]
		p.Tensors = append(p.Tensors, plan.Tensor{Name: it.Name, Role: it.Role, Shape: it.Shape, Recipe: c.Recipe,
			Bytes: c.Bytes, Error: c.Error, Loss: c.Loss, RunnerUp: s.runnerUp(i, found)})
		sum += c.Loss
		bytes += c.Bytes
		p.Predicted.Seconds += c.Seconds
	}
	p.Predicted.KLD = Divergence(sum)
	p.Predicted.BPW = 8 * float64(bytes) / float64(max(s.params, 1))
	p.Predicted.Bytes = bytes
	if s.b.Package == nil {
		return p, nil
	}
	var err error
	p.Predicted.Bytes, err = s.b.Package.Size(p)
	return p, err
}

// runnerUp returns what an item would have got next: the candidate that costs
// least at the price of a byte, after the one that was picked.
func (s *solver) runnerUp(item int, found solution) *plan.Alternative {
	best, least := -1, math.Inf(1)
	for j, c := range s.items[item].Candidates {
		cost := s.most[item][j]
		if s.b.Fastest {
			cost = c.Seconds + s.b.ByteSeconds*cost
		}
		if v := c.Loss + found.price*cost; j != found.picked[item] && v < least {
			best, least = j, v
		}
	}
	if best < 0 {
		return nil
	}
	c := &s.items[item].Candidates[best]
	return &plan.Alternative{Recipe: c.Recipe, Bytes: c.Bytes, Error: c.Error, Loss: c.Loss}
}

// Divergence returns the mean KL divergence, in nats, that losses of this sum
// are expected to come to together.
func Divergence(sum float64) float64 { return sum }

// inverse returns the sum of losses that comes to a divergence.
func inverse(kld float64) float64 { return kld }
