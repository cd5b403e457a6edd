package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/inspect"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/formats/work"
	"github.com/nstf/nstf/quantize/encode"
	"github.com/nstf/nstf/quantize/pipeline"
)

func open(t *testing.T, name string) *model.Model {
	t.Helper()
	m, err := checkpoint.Open("../../testdata/micro/" + name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// edited returns a model with one tensor's weights changed.
func edited(t *testing.T, m *model.Model, name string, change func(w []float32)) *model.Model {
	t.Helper()
	x := m.Tensor(name)
	w, err := form.Decode(&x)
	if err != nil {
		t.Fatal(err)
	}
	change(w)
	p := make([]byte, 4*len(w))
	if err := tensor.FromFloat32(p, w, tensor.F32); err != nil {
		t.Fatal(err)
	}
	s, _ := scheme.ByName("f32")
	y, err := scheme.New(name, s, x.Shape, nil, tensor.BytesBlob(p))
	if err != nil {
		t.Fatal(err)
	}
	return m.With(map[string]formats.Tensor{name: y})
}

// Weights that are not finite are refused by the tensor's name; channels that
// nothing comes through are not.
func TestWeights(t *testing.T) {
	m := open(t, "llama-31")
	name := m.Graph.Blocks[1].Attn.O.Weight
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
		for _, recipe := range []string{"tcq2", "q4_0"} {
			broken := edited(t, m, name, func(w []float32) { w[5] = bad })
			_, err := pipeline.Run(t.Context(), broken, planned(t, broken, recipe), pipeline.Options{})
			var f *formats.FormatError
			if !errors.As(err, &f) || !strings.Contains(err.Error(), name) {
				t.Errorf("%g by %s: %v", bad, recipe, err)
			}
		}
	}
	// Where a plan is to be made, calibration comes upon them first.
	broken := edited(t, m, name, func(w []float32) { w[5] = float32(math.NaN()) })
	_, err := calibrate.Measure(t.Context(), broken, windows(m.Graph.Vocab, 2), calibrate.Options{})
	var f *formats.FormatError
	if !errors.As(err, &f) || f.Tensor != name || f.File == "" || !strings.Contains(err.Error(), "weight 5 is NaN") {
		t.Errorf("%v", err)
	}
	// Finite weights that lead to what is not are not to blame alone.
	huge := edited(t, m, name, func(w []float32) {
		for i := range w {
			w[i] = 3e38
		}
	})
	if _, err := calibrate.Measure(t.Context(), huge, windows(m.Graph.Vocab, 2), calibrate.Options{}); !errors.As(err, &f) || !strings.Contains(err.Error(), "not finite") {
		t.Errorf("%v", err)
	}
	dead := edited(t, m, m.Graph.Blocks[0].AttnNorm.Weight, func(w []float32) { clear(w[:len(w)/2]) })
	r, err := pipeline.Run(t.Context(), dead, planned(t, dead, "tcq3"), pipeline.Options{Windows: windows(m.Graph.Vocab, 2)})
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Fits[m.Graph.Blocks[0].Attn.Q.Weight]; !(f.Relative() >= 0 && f.Relative() < 0.1) {
		t.Errorf("%+v", f)
	}
	silent := edited(t, m, m.Graph.Blocks[0].AttnNorm.Weight, func(w []float32) { clear(w) })
	if _, err := pipeline.Run(t.Context(), silent, planned(t, silent, "tcq2"), pipeline.Options{Windows: windows(m.Graph.Vocab, 1)}); err != nil {
		t.Errorf("nothing comes through: %v", err)
	}
}

// Experts that no token came to are fitted by what the block reads, and named.
func TestExperts(t *testing.T) {
	m := open(t, "mixtral")
	all := windows(m.Graph.Vocab, 2)
	few := [][]int32{all[0][:1]}
	s, err := calibrate.Measure(t.Context(), m, few, calibrate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out := filepath.Join(t.TempDir(), "out.nstf")
	o, err := pipeline.Quantize(t.Context(), m, pipeline.Request{Out: atomicfile.Scratch(out), Windows: few, Held: all[:1], Stats: s, Plan: planned(t, m, "tcq2"), Parallel: true})
	if err != nil {
		t.Fatal(err)
	}
	checkUses(t, m, out, s)
	none := 0
	for _, e := range o.Ledger.Experts {
		if e.Tokens == 0 && e.Used == string(stats.CoverBlock) {
			none++
		}
	}
	if none == 0 {
		t.Errorf("one token came to all experts: %+v", o.Ledger.Experts)
	}
	for _, x := range o.Ledger.Tensors {
		if x.Role == "moe_up" && (x.Recipe != "tcq2" || !(x.Obtained > 0 && x.Obtained < 1)) {
			t.Errorf("%+v", x)
		}
	}
}

// checkUses holds what a package says of its experts to statistics, and has it travel along when the package is rounded
// again.
func checkUses(t *testing.T, m *model.Model, path string, s *stats.File) {
	t.Helper()
	u, err := inspect.Uses(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.Graph.Blocks {
		moe, sum := m.Graph.Blocks[i].MoE, int64(0)
		for e, n := range u.Of(i, int(moe.Experts)) {
			if sum += n; n != s.Experts[moe.Up.Input][e].Tokens {
				t.Errorf("block %d: %d tokens chose expert %d, of which statistics have %d", i, n, e, s.Experts[moe.Up.Input][e].Tokens)
			}
		}
		if want := s.Source.Tokens * moe.TopK; sum != want {
			t.Errorf("block %d: %d choices, want %d", i, sum, want)
		}
	}
	if most := stats.ExpectedUses(m.Graph, u.Text, u.TextHash).Encode(); len(most) < len(u.Encode()) {
		t.Errorf("%d bytes where %d were expected", len(u.Encode()), len(most))
	}
	made, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	again := filepath.Join(t.TempDir(), "again.nstf")
	if _, err := encode.Run(t.Context(), made, atomicfile.Scratch(again), encode.Options{DType: "bf16"}); err != nil {
		t.Fatal(err)
	}
	if kept, err := inspect.Uses(again); err != nil || !reflect.DeepEqual(kept, u) {
		t.Errorf("%+v, %v of a package that was made of it, want %+v", kept, err, u)
	}
}

// A run that ends at any tensor goes on to the same bytes, and fits nothing
// twice.
func TestResumed(t *testing.T) {
	for i, name := range []string{"llama-tied", "llama-tied", "gemma4-e"} { // the last one's blocks read others
		parallel := i == 1
		m := open(t, name)
		p := planned(t, m, "tcq2")
		o := pipeline.Options{Windows: windows(m.Graph.Vocab, 2), Parallel: parallel}
		s, err := calibrate.Measure(t.Context(), m, o.Windows, calibrate.Options{})
		if err != nil {
			t.Fatal(err)
		}
		o.Stats = s
		want, err := pipeline.Run(t.Context(), m, p, o)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "w")
		before := int64(0) // weights that the last run found done
		for runs := 0; ; runs++ {
			w, err := work.Resume(path, work.Job{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			calls, first := 0, int64(0)
			o.Work, o.Progress = w, func(done, total int64) {
				if calls == 0 {
					first = done
				}
				if calls++; calls > runs { // run by run, later
					cancel()
				}
			}
			got, err := pipeline.Run(ctx, m, p, o)
			cancel()
			if first < before || runs > 4 && first == 0 {
				t.Fatalf("run %d found %d weights done, the one before %d", runs, first, before)
			}
			before = first
			if err == nil {
				same(t, want, got)
				w.Close()
				break
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			w.Close()
		}
		s.Close()
	}
}

// A tensor that is missing in the folder, as where a process was killed that removed it, or
// damaged there, is fitted again, though hidden states lie there that went through it.
func TestResumedWithoutATensor(t *testing.T) {
	m := open(t, "llama-31")
	p := planned(t, m, "tcq2")
	path := filepath.Join(t.TempDir(), "w")
	o := pipeline.Options{Windows: windows(m.Graph.Vocab, 2)}
	fitted := func() (*pipeline.Result, *work.Folder) {
		w, err := work.Resume(path, work.Job{})
		if err != nil {
			t.Fatal(err)
		}
		o.Work = w
		r, err := pipeline.Run(t.Context(), m, p, o)
		if err != nil {
			t.Fatal(err)
		}
		return r, w
	}
	want, first := fitted()
	kept := filepath.Join(t.TempDir(), "kept")
	if err := os.CopyFS(kept, os.DirFS(path)); err != nil {
		t.Fatal(err)
	}
	for i, name := range slices.Sorted(maps.Keys(want.Tensors)) {
		if err := errors.Join(os.RemoveAll(path), os.CopyFS(path, os.DirFS(kept))); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(path, name+".nstf")
		if i%2 == 0 {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		} else if err := os.Truncate(file, 100); err != nil {
			t.Fatal(err)
		}
		got, w := fitted()
		same(t, want, got)
		w.Close()
	}
	first.Close()
}

// same compares fitted tensors.
func same(t *testing.T, want, got *pipeline.Result) {
	t.Helper()
	if len(want.Tensors) != len(got.Tensors) {
		t.Errorf("%d tensors, want %d", len(got.Tensors), len(want.Tensors))
	}
	for name, x := range want.Tensors {
		for i := range x.Parts {
			a, err := x.Parts[i].Data.Bytes()
			b, err2 := got.Tensors[name].Parts[i].Data.Bytes()
			if err != nil || err2 != nil || !bytes.Equal(a, b) {
				t.Fatalf("%s: part %d differs", name, i)
			}
		}
		if a, b := want.Fits[name], got.Fits[name]; a.Error != b.Error || a.Method != b.Method {
			t.Errorf("%s: %+v, want %+v", name, b, a)
		}
	}
}

// A bound on the divergence is kept by a package as small as that allows, or
// refused with what was tried.
func TestBounded(t *testing.T) {
	m := open(t, "llama-31")
	all := windows(m.Graph.Vocab, 4)
	var asked []float64
	var plans []*plan.Plan
	for bits, loss := range map[string]float64{"tcq2": 4, "tcq3": 1, "tcq4": 0.25, "tcq5": 0.0625, "q8_0": 0.001} {
		p := planned(t, m, bits)
		p.Predicted.KLD = loss
		plans = append(plans, p)
	}
	q := pipeline.Request{Out: atomicfile.Scratch(filepath.Join(t.TempDir(), "out.nstf")), Windows: all[:2], Held: all[2:], MaxKLD: 0.1, Tries: 8,
		Planner: func(_ context.Context, _ *stats.File, loss float64, _ pipeline.Revision) (*plan.Plan, error) {
			asked = append(asked, loss)
			best := plans[0]
			for _, p := range plans {
				if best.Predicted.KLD > loss && p.Predicted.KLD < best.Predicted.KLD || p.Predicted.KLD <= loss && p.Predicted.KLD > best.Predicted.KLD {
					best = p
				}
			}
			return best, nil
		}}
	o, err := pipeline.Quantize(t.Context(), m, q)
	if err != nil {
		t.Fatal(err)
	}
	if o.Measured.Bound() > q.MaxKLD || len(o.Tries) < 1 || len(o.Tries) > 8 {
		t.Errorf("%+v after %+v", o.Measured, o.Tries)
	}
	q.MaxKLD, q.Tries = 1e-9, 3
	var bound *pipeline.BoundError
	if _, err := pipeline.Quantize(t.Context(), m, q); !errors.As(err, &bound) || len(bound.Tries) == 0 {
		t.Errorf("%v", err)
	}
	q.Held, q.Discard = nil, true
	if _, err := pipeline.Quantize(t.Context(), m, q); err == nil || errors.As(err, &bound) {
		t.Errorf("nothing to measure on: %v", err)
	}
}

// Where everything is stored as it is there is nothing to try after it.
func TestBoundedByTheSource(t *testing.T) {
	m := open(t, "llama-31")
	all := windows(m.Graph.Vocab, 4)
	kept := planned(t, m, "q8_0")
	for i := range kept.Tensors {
		kept.Tensors[i].Recipe = plan.Recipe{}
	}
	asked := 0
	q := pipeline.Request{Out: atomicfile.Scratch(filepath.Join(t.TempDir(), "out.nstf")), Windows: all[:2], Held: all[2:], MaxKLD: 1e-12, Tries: 4,
		Planner: func(context.Context, *stats.File, float64, pipeline.Revision) (*plan.Plan, error) {
			asked++
			return kept, nil
		}}
	var bound *pipeline.BoundError
	if _, err := pipeline.Quantize(t.Context(), m, q); !errors.As(err, &bound) || len(bound.Tries) != 1 || asked != 1 {
		t.Errorf("%v after %d plans", err, asked)
	}
}

// A limit of memory that cannot be kept is refused before the model is measured,
// whether there is a plan already or not, and so is a plan that cannot be executed.
func TestRefusedBeforeReading(t *testing.T) {
	m := open(t, "llama-31")
	all := windows(m.Graph.Vocab, 4)
	dir := t.TempDir()
	q := pipeline.Request{Out: atomicfile.Scratch(filepath.Join(dir, "out.nstf")), Windows: all[:2], Held: all[2:], Memory: 8 << 20,
		Planner: func(context.Context, *stats.File, float64, pipeline.Revision) (*plan.Plan, error) {
			t.Error("a plan was made")
			return nil, errors.New("none")
		},
		Progress: func(what, _ string) (func(done, total int64), func()) {
			t.Errorf("%s began", what)
			return func(int64, int64) {}, func() {}
		}}
	refused := func(says string) {
		t.Helper()
		for _, do := range []func() error{
			func() error { _, err := pipeline.Quantize(t.Context(), m, q); return err },
			func() error { _, err := pipeline.Predict(t.Context(), m, q); return err },
		} {
			var u *formats.UnsupportedError
			if err := do(); !errors.As(err, &u) || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want %q", err, says)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
			t.Errorf("%v", left)
		}
	}
	refused("before anything is read")
	q.Plan, q.Memory = planned(t, m, "tcq2"), 8<<20
	q.Plan.Tensors[3].Bytes = 1 << 62 // what an edited plan says is not believed
	refused("before anything is read")
	q.Memory = 0
	q.Plan.Tensors[3].Recipe = plan.MustRecipe("lowrank:4:q8_0")
	refused(q.Plan.Tensors[3].Name)
}

// Before the model is measured a forecast measures nothing, and what it tells is what is
// told with statistics and a plan of the typical code, but for the divergence.
func TestForecastUnmeasured(t *testing.T) {
	m := open(t, "llama-31")
	all := windows(m.Graph.Vocab, 4)
	q := pipeline.Request{Windows: all[:2], Held: all[2:], Typical: plan.Trellis(4),
		Planner: func(context.Context, *stats.File, float64, pipeline.Revision) (*plan.Plan, error) {
			return nil, errors.New("a plan is made")
		},
		Progress: func(what, _ string) (func(done, total int64), func()) {
			t.Errorf("%s began", what)
			return func(int64, int64) {}, func() {}
		}}
	guess, err := pipeline.Predict(t.Context(), m, q)
	if err != nil {
		t.Fatal(err)
	}
	if guess.Plan != nil || guess.Bytes != 0 || guess.KLD != 0 || guess.Seconds <= 0 {
		t.Errorf("%+v", guess)
	}
	q.Asked = 40 << 10
	asked, err := pipeline.Predict(t.Context(), m, q)
	if err != nil {
		t.Fatal(err)
	}
	if want := 8 * float64(q.Asked) / float64(m.Graph.Params()); asked.Bytes != q.Asked || asked.BPW != want {
		t.Errorf("%d bytes at %g bits for %d at %g", asked.Bytes, asked.BPW, q.Asked, want)
	}
	q.Plan = planned(t, m, "tcq4")
	if q.Stats, err = calibrate.Measure(t.Context(), m, q.Windows, calibrate.Options{}); err != nil {
		t.Fatal(err)
	}
	defer q.Stats.Close()
	path := filepath.Join(t.TempDir(), "s.nstats")
	if err := q.Stats.Write(atomicfile.Scratch(path)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	known, err := pipeline.Predict(t.Context(), m, q)
	if err != nil {
		t.Fatal(err)
	}
	near := func(what string, got, want int64) {
		if math.Abs(float64(got-want)) > 0.1*float64(want) {
			t.Errorf("%s: %d before measuring, %d behind it", what, got, want)
		}
	}
	near("memory", guess.Memory, known.Memory)
	near("disk", guess.Disk, known.Disk+info.Size())
	near("disk of a size", asked.Disk-guess.Disk, 2*(asked.Bytes-known.Bytes))
}
