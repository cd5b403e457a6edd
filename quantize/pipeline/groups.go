package pipeline

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/quantize/fit"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
)

// Shards share the text by its groups (calibrate.Keep.Groups). Of each block they make, under
// leases, what each group adds to the sums; then of each input the total, group by group in
// their order, which whoever fits a matrix of it reads. The group's hidden states go with its
// sums: they are moved on, behind the compressed block before, by who makes these. All of it
// lies in the work folder and follows from the job and the tensors that are finished, so that
// whatever is missing or damaged is made again by anybody, to the same bits.

// statesName and sumsName are what a group leaves in the work folder, totalName what all do
// of an input; no tensor of a graph has a name with spaces.
func (r *run) statesName(block, group int) string {
	return fmt.Sprintf("%sstates of block %d group %d", r.pass, block, group)
}

func (r *run) sumsName(block, group int) string {
	return fmt.Sprintf("%ssums of block %d group %d", r.pass, block, group)
}

func totalName(block, input int) string {
	return fmt.Sprintf("sums of block %d input %d", block, input)
}

// groups says where the text is cut.
func (r *run) groups() []int { return calibrate.Keep{}.Groups(r.o.Windows) }

// turns lists the groups in the order in which this process takes them.
func (r *run) turns() []int {
	groups := make([]int, len(r.groups())-1)
	for i := range groups {
		groups[i] = i
	}
	from := r.begins(len(groups))
	return append(groups[from:], groups[:from]...)
}

// span is that of a block, or of the head behind all.
func (r *run) span(block int) device.Span {
	if block == len(r.m.Graph.Blocks) {
		return device.Head(r.m.Graph)
	}
	return device.Block(block)
}

// together measures a block, or the head, with other shards, and fits what is left of it.
func (r *run) together(ctx context.Context, block int, todo []graph.Weight) error {
	groups := r.turns()
	err := each(ctx, r.o.Work, groups, func(group int) (bool, error) { return r.contribution(ctx, block, group, todo) })
	if err != nil {
		return err
	}
	if err := r.group(ctx, todo, &met{total: func(name string) (*calibrate.Gathered, error) { return r.summed(ctx, block, name) }}); err != nil {
		return err
	}
	for i := range groups { // nobody needs them any more
		err = errors.Join(err, r.o.Work.Drop(ctx, r.sumsName(block, i)))
	}
	for i := range device.Inputs(r.m.Graph, r.span(block)) {
		err = errors.Join(err, r.o.Work.Drop(ctx, totalName(block, i)))
	}
	return errors.Join(err, r.o.Work.Tidy(ctx))
}

// contribution makes what a group adds to a block's sums unless another process is at it, and
// reports whether it is there, or is not needed any more.
func (r *run) contribution(ctx context.Context, block, group int, todo []graph.Weight) (bool, error) {
	name := r.sumsName(block, group)
	there := func() bool {
		return r.o.Work.Has(ctx, name) || !slices.ContainsFunc(todo, func(w graph.Weight) bool { return !r.has(w.Name) && !r.finished(ctx, w.Name) })
	}
	return taken(ctx, r.o.Work, name, there, func() error { return r.contribute(ctx, block, group) })
}

// contribute makes what a group adds to a block's sums. Through the original model the states
// move on with that, else when the block is fitted.
func (r *run) contribute(ctx context.Context, block, group int) error {
	h, err := r.arrived(ctx, block, group)
	if err != nil {
		return err
	}
	defer h.Close()
	n := len(h.Windows())
	g, err := r.measure(ctx, r.span(block), []int{0, n}, func(walk *exec.Walker, lo, hi int, last bool) error {
		if block == len(r.m.Graph.Blocks) {
			return h.Show(ctx, walk, lo, hi)
		}
		return h.ThroughSome(ctx, walk, lo, hi, last && r.pass != "")
	})
	if err == nil && r.pass != "" && block < len(r.m.Graph.Blocks) {
		err = r.keepStates(ctx, r.statesName(block+1, group), h, block+1)
	}
	if err == nil {
		err = r.keepSums(ctx, r.sumsName(block, group), g.g)
	}
	if err == nil && r.pass != "" {
		err = r.o.Work.Drop(ctx, r.statesName(block, group))
	}
	return err
}

// arrived returns a group's hidden states before a block: from the nearest block before it
// where they were kept, or from the embedding.
func (r *run) arrived(ctx context.Context, block, group int) (*calibrate.Hidden, error) {
	groups := r.groups()
	windows := r.o.Windows[groups[group]:groups[group+1]]
	h, at, err := r.nearest(ctx, block, group, windows)
	if err != nil || at == block {
		return h, err
	}
	for i := at; i < block && err == nil; i++ {
		err = r.through(ctx, h, i, windows)
	}
	if err == nil {
		err = r.keepStates(ctx, r.statesName(block, group), h, block)
	}
	if err == nil {
		err = r.o.Work.Drop(ctx, r.statesName(block-1, group))
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// nearest returns a group's hidden states before a block, or before the nearest one before it.
func (r *run) nearest(ctx context.Context, block, group int, windows [][]int32) (*calibrate.Hidden, int, error) {
	for at := block; at > 0; at-- {
		if h, was, ok := r.left(ctx, r.statesName(at, group), windows, calibrate.Keep{}); ok && was == at {
			return h, at, nil
		}
	}
	h, err := r.embedded(ctx, windows, calibrate.Keep{})
	return h, 0, err
}

// summed returns the sums of an input over all groups, which the first who asks for them adds up.
func (r *run) summed(ctx context.Context, block int, name string) (g *calibrate.Gathered, err error) {
	at := slices.IndexFunc(device.Inputs(r.m.Graph, r.span(block)), func(in device.Input) bool { return in.Name == name })
	if at < 0 {
		return calibrate.NewGathered(), nil
	}
	what, found := totalName(block, at), false
	done, err := once(ctx, r.o.Work, what, func() error {
		g = calibrate.NewGathered()
		err := r.addSums(ctx, what, name, g)
		found = err == nil
		return err
	})
	if err != nil {
		return nil, err
	}
	defer done()
	if found {
		return g, nil
	}
	if g, err = r.added(ctx, block, name); err != nil {
		return nil, err
	}
	return g, r.keepSums(ctx, what, g)
}

// added adds up the groups' sums of an input, or of all with "", in their order.
func (r *run) added(ctx context.Context, block int, input string) (*calibrate.Gathered, error) {
	g := calibrate.NewGathered()
	for group := range r.groups()[1:] {
		part := r.sumsName(block, group)
		if r.addSums(ctx, part, input, g) == nil {
			continue
		}
		if err := r.contribute(ctx, block, group); err != nil { // missing, or damaged since
			return nil, err
		}
		if err := r.addSums(ctx, part, input, g); err != nil {
			return nil, err
		}
	}
	return g, nil
}

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

// keepSums puts sums into the work folder.
func (r *run) keepSums(ctx context.Context, name string, g *calibrate.Gathered) error {
	var is record
	var blobs []tensor.Blob
	var all int64
	for _, s := range g.Sums() {
		x := summed{s.Input, s.Expert, len(s.AbsMax), s.Tokens}
		is.Sums, all = append(is.Sums, x), all+x.numbers()
		blobs = append(blobs, tensor.Computed(8*x.numbers(), func() ([]byte, error) {
			p := make([]byte, 0, 8*x.numbers())
			for _, v := range s.AbsMax {
				p = binary.LittleEndian.AppendUint64(p, math.Float64bits(float64(v)))
			}
			for _, v := range s.Squares {
				p = binary.LittleEndian.AppendUint64(p, math.Float64bits(v))
			}
			return p, nil
		}))
	}
	s, _ := scheme.ByName("f64")
	t, err := scheme.New(name, s, []int64{all}, nil, tensor.Concat(blobs...))
	if err != nil {
		return err
	}
	_, err = r.o.Work.Put(ctx, t, is)
	return err
}

// addSums adds what was kept of an input, or of all with "", to g; nothing where that is missing
// or damaged, which is an error.
func (r *run) addSums(ctx context.Context, name, input string, g *calibrate.Gathered) error {
	t, raw, ok := r.o.Work.Get(ctx, name)
	if !ok {
		return formats.Errorf(r.o.Work.String(), name, "missing or damaged")
	}
	var is record
	if err := json.Unmarshal(raw, &is); err != nil {
		return formats.Errorf(r.o.Work.String(), name, "%v", err)
	}
	var at int64
	for _, x := range is.Sums {
		if input != "" && x.Input != input {
			at += x.numbers()
			continue
		}
		p, err := t.Parts[0].Data.Slice(8*at, 8*x.numbers()).Bytes()
		if err != nil {
			return err
		}
		at += x.numbers()
		s := &device.Sums{Input: x.Input, Expert: x.Expert, Tokens: x.Tokens, AbsMax: make([]float32, x.K), Squares: make([]float64, device.Triangle(int64(x.K)))}
		number := func(i int) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(p[8*i:])) }
		for i := range s.AbsMax {
			s.AbsMax[i] = float32(number(i))
		}
		for i := range s.Squares {
			s.Squares[i] = number(x.K + i)
		}
		g.Add(s)
	}
	return nil
}

// A met is the moments of a block that shards have summed up together, one input's at a time.
type met struct {
	total func(name string) (*calibrate.Gathered, error)
	name  string
	gathered
}

// Input implements moments.
func (s *met) Input(name string, expert int) (*fit.Input, error) {
	if name != s.name {
		g, err := s.total(name)
		if err != nil {
			return nil, err
		}
		s.gathered, s.name = gathered{g: g}, name
	}
	return s.gathered.Input(name, expert)
}
