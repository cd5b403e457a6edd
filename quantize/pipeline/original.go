package pipeline

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/formats/tensor"
)

// Shards measure the original model together, as they fit (groups.go): groups of the text go
// through it block by block, and who comes first packs a block's sums into a part of the
// statistics. Then sensitivities are shared by matrices. Whoever finds all of it there joins it.

// An original is a process's share in measuring the original model.
type original struct {
	*flow
	run     *run // that changes nothing
	sensing *calibrate.Sensing
	inputs  map[string]int // by name, the block that they are of
	part    *stats.File    // that moments were read from last
	block   int            // of part
}

// original begins the measuring of the original model with other processes.
func (f *flow) original() *original {
	o := f.options(nil)
	o.Work, o.Shard = f.work, *f.Shard
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	s := &original{flow: f, run: &run{m: f.m, p: &plan.Plan{}, o: o, pass: "first "}, inputs: map[string]int{}}
	for block := range len(f.m.Graph.Blocks) + 1 {
		for _, in := range s.run.inputsOf(block) {
			s.inputs[in.Name] = block
		}
	}
	return s
}

// close gives back what is held from one matrix to the next, logits of the text among it.
func (s *original) close() {
	if s.sensing != nil {
		s.sensing.Close()
	}
	if s.part != nil {
		s.part.Close()
	}
	s.sensing, s.part = nil, nil
}

// partFile holds what was measured of a block, or of the head behind all.
func partFile(block int) string { return fmt.Sprintf("first-%d.nstats", block) }

// there reports whether a file is there, or the statistics that all is made for.
func (s *original) there(ctx context.Context, file string) bool {
	return s.work.HasFile(ctx, file) || s.work.HasFile(ctx, statsFile)
}

// share makes this process's share, until nothing is left but to join it.
func (s *original) share(ctx context.Context) error {
	defer s.close()
	err := s.step("calibrating", "blocks", func(progress func(done, total int64)) error { return s.sums(ctx, progress) })
	if err == nil && s.Plan == nil {
		err = s.step("measuring sensitivities", "matrices", func(progress func(done, total int64)) error { return s.sensitivities(ctx, progress) })
	}
	return err
}

// sums takes groups through the model. A block's part is there before the next block but one is
// begun, so that few sums lie in the folder at once.
func (s *original) sums(ctx context.Context, progress func(done, total int64)) error {
	last := len(s.m.Graph.Blocks)
	for block := range last + 1 {
		err := each(ctx, s.work, s.run.turns(), func(group int) (bool, error) { return s.contribution(ctx, block, group) }, nil)
		if err == nil {
			_, err = s.packed(ctx, block) // others go on meanwhile
		}
		if err == nil && block > 0 {
			err = each(ctx, s.work, []int{block - 1}, func(block int) (bool, error) { return s.packed(ctx, block) }, nil)
		}
		if err == nil {
			err = s.work.Tidy(ctx)
		}
		if err != nil {
			return err
		}
		if progress != nil {
			progress(int64(min(block+1, last)), int64(last))
		}
	}
	return each(ctx, s.work, []int{last}, func(block int) (bool, error) { return s.packed(ctx, block) }, nil)
}

// contribution makes what a group adds to a block's sums, and moves its states on.
func (s *original) contribution(ctx context.Context, block, group int) (bool, error) {
	there := func() bool { return s.run.hasSums(ctx, block, group) || s.there(ctx, partFile(block)) }
	return taken(ctx, s.work, s.run.groupName(block, group), there, func() error { return s.run.contribute(ctx, block, group) })
}

// packed makes a block's part of the statistics.
func (s *original) packed(ctx context.Context, block int) (bool, error) {
	there := func() bool { return s.there(ctx, partFile(block)) }
	return taken(ctx, s.work, fmt.Sprintf("first part of block %d", block), there, func() error { return s.pack(ctx, block) })
}

func (s *original) pack(ctx context.Context, block int) error {
	g := calibrate.NewGathered()
	for i := range s.run.inputsOf(block) {
		if err := s.run.addUp(ctx, block, i, g); err != nil {
			return err
		}
	}
	part, err := calibrate.Pack(s.m, s.run.span(block), g)
	if err == nil {
		err = s.work.Write(ctx, partFile(block), part.Write)
	}
	return errors.Join(err, s.run.dropSums(ctx, block))
}

// open opens a block's part, which is made again where it is damaged.
func (s *original) open(ctx context.Context, block int) (*stats.File, error) {
	if f, err := statsOf(ctx, s.work, partFile(block)); err == nil {
		return f, nil
	}
	if err := s.pack(ctx, block); err != nil {
		return nil, err
	}
	return statsOf(ctx, s.work, partFile(block))
}

// moments returns those of an input over all experts. The part that they lie in stays open.
func (s *original) moments(ctx context.Context, input string) (_ []float64, err error) {
	block, ok := s.inputs[input]
	if !ok {
		return nil, fmt.Errorf("no statistics of input %q", input)
	}
	if s.part == nil || s.block != block {
		if s.part != nil {
			s.part.Close()
		}
		if s.part, err = s.open(ctx, block); err != nil {
			return nil, err
		}
		s.block = block
	}
	return s.part.Moments(input, -1)
}

// A matrix is what stands of a sensitivity beside its number and the matrix's size.
type matrix struct {
	Name string `json:"name"` // of the tensor
}

// sensedName is what the sensitivity of a matrix lies under.
func sensedName(matrix int) string { return fmt.Sprintf("sensitivity of matrix %d", matrix) }

// sensitivities measures those of matrices that no other process has measured. The first ones
// take longest: all begin there.
func (s *original) sensitivities(ctx context.Context, progress func(done, total int64)) error {
	all := make([]int, calibrate.Matrices(s.m))
	for i := range all {
		all[i] = i
	}
	done := 0
	return each(ctx, s.work, all, func(matrix int) (bool, error) {
		name := sensedName(matrix)
		there := func() bool { return s.work.Has(ctx, name) || s.work.HasFile(ctx, statsFile) }
		ok, err := taken(ctx, s.work, name, there, func() error {
			_, err := s.sense(ctx, matrix)
			return err
		})
		if ok && err == nil && progress != nil {
			done++
			progress(int64(done), int64(len(all)))
		}
		return ok, err
	}, nil)
}

// sense measures the sensitivity of a matrix and leaves it in the work folder.
func (s *original) sense(ctx context.Context, i int) (x calibrate.Sensed, err error) {
	if s.sensing == nil {
		o := calibrate.SensitivityOptions{Options: s.measuring()}
		moments := func(input string) ([]float64, error) { return s.moments(ctx, input) }
		if s.sensing, err = calibrate.NewSensing(ctx, s.m, moments, s.Windows, o); err != nil {
			return x, err
		}
	}
	if x, err = s.sensing.Measure(ctx, i); err != nil {
		return x, err
	}
	var raw []byte
	for _, v := range []float64{x.Cost, x.Size} {
		raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(v))
	}
	f64, _ := scheme.ByName("f64")
	t, err := scheme.New(sensedName(i), f64, []int64{2}, nil, tensor.BytesBlob(raw))
	if err == nil {
		_, err = s.work.Put(ctx, t, matrix{x.Name})
	}
	return x, err
}

// sensed returns the sensitivity of a matrix, which is measured again where it is damaged.
func (s *original) sensed(ctx context.Context, i int) (x calibrate.Sensed, err error) {
	var of matrix
	t, raw, ok := s.work.Get(ctx, sensedName(i))
	if !ok || json.Unmarshal(raw, &of) != nil {
		return s.sense(ctx, i)
	}
	x.Name = of.Name
	p, err := t.Parts[0].Data.Bytes()
	if err != nil || len(p) != 16 {
		return x, errors.Join(err, formats.Errorf(s.work.String(), t.Name, "%d bytes", len(p)))
	}
	x.Cost, x.Size = math.Float64frombits(binary.LittleEndian.Uint64(p)), math.Float64frombits(binary.LittleEndian.Uint64(p[8:]))
	return x, nil
}

// drop removes what statistics were joined of.
func (s *original) drop(ctx context.Context) (err error) {
	for block := range len(s.m.Graph.Blocks) + 1 {
		err = errors.Join(err, s.work.DropFile(ctx, partFile(block)))
		for group := range s.run.groups()[1:] { // of sums that were made again
			err = errors.Join(err, s.work.Drop(ctx, s.run.statesName(block, group)))
		}
	}
	for i := range calibrate.Matrices(s.m) {
		err = errors.Join(err, s.work.Drop(ctx, sensedName(i)))
	}
	return err
}

// joined returns the statistics of all that was shared, with the sensitivities' level, which it
// measures.
func (s *original) joined(ctx context.Context) (_ *stats.File, err error) {
	out := stats.New()
	defer func() {
		if err != nil {
			out.Close()
		}
	}()
	o := s.measuring()
	if out.Source, err = calibrate.Source(s.m, s.Windows, o); err != nil {
		return nil, err
	}
	for block := range len(s.m.Graph.Blocks) + 1 {
		part, err := s.open(ctx, block)
		if err != nil {
			return nil, err
		}
		out.Owns(part)
		maps.Copy(out.Inputs, part.Inputs)
		maps.Copy(out.Experts, part.Experts)
	}
	if s.Plan != nil {
		return out, nil
	}
	found := make([]calibrate.Sensed, calibrate.Matrices(s.m))
	for i := range found {
		if found[i], err = s.sensed(ctx, i); err != nil {
			return nil, err
		}
	}
	s.close() // of what was measured again
	return out, s.step("measuring the level of sensitivities", "steps", func(progress func(done, total int64)) error {
		o.Progress = progress
		return calibrate.Sense(ctx, s.m, out, s.Windows, calibrate.SensitivityOptions{Options: o}, found)
	})
}
