package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/attention"
	"github.com/nstf/nstf/formats/ledger"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/formats/work"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/quantize/encode"
	"github.com/nstf/nstf/quantize/fit"
	"github.com/nstf/nstf/quantize/plan/planner"
	"github.com/nstf/nstf/runtime/exec"
)

// A Request says what package to make of a model.
type Request struct {
	Out *atomicfile.Output // the package; nil where it is only predicted
	// Windows are fitted to, Held are measured on; Held may be empty.
	Windows, Held  [][]int32
	Text, HeldText string // what they were cut from, for the ledger
	Seed           int64  // of their choice

	// Plan is executed where it is set; else Planner makes one of statistics.
	Plan    *plan.Plan
	Planner Planner
	// Decided names, for the journal, what Plan or Planner were made from.
	Decided map[string]string
	// Layers says of a plan that Planner made what methods would save in each layer, for the
	// ledger; nil: nobody knows.
	Layers func(ctx context.Context, s *stats.File, p *plan.Plan) ([]ledger.Layer, error)
	// Long says what the package carries for long contexts; nil: nothing.
	Long *Long
	// MaxKLD, where it is not 0, is what the measured divergence and two
	// standard errors stay below; Planner is asked until they do, at most Tries
	// times.
	MaxKLD float64
	Tries  int
	// MaxDrift, where it is not 0, bounds the drift of hidden states on Held, see
	// [Watch].
	MaxDrift float64

	Stats    *stats.File                                                        // measured before; nil: measured where they are needed
	Earlier  map[string]Reused                                                  // of an earlier result
	Parallel bool                                                               // see Options
	Threads  int                                                                // 0: all
	On       *exec.Opened                                                       // see Options
	Searcher fit.Searcher                                                       // see Options
	Memory   int64                                                              // limit in bytes; 0: none
	Resume   bool                                                               // go on with an interrupted run's work, if there is some
	Work     work.Place                                                         // where shards meet; nil: OUT.work
	Silence  time.Duration                                                      // after which another process that shares Work counts as dead
	Shard    *Shard                                                             // see [Share]
	Merge    bool                                                               // fit nothing: shards have, in Work
	Discard  bool                                                               // remove it
	Times    bool                                                               // write the seconds of each tensor into the ledger
	Sources  []nstf.Source                                                      // files that decided something
	Tool     string                                                             // program and version
	Flags    []string                                                           // that decided something
	Progress func(what, unit string) (step func(done, total int64), end func()) // nil: nobody
	// Expected is told at the start how long all of it will take, about, where
	// matrices without a plan get codes such as Typical; nil: nobody asks.
	Expected func(seconds float64)
	// Of a plan that is to be made, for Expected and Predict alone.
	Typical plan.Code
	Effort  int   // 0: the default
	Asked   int64 // bytes of the tensors; 0: not known
}

// A Planner makes a plan of a model's statistics and of what was found on the
// way, at first nothing. loss bounds the predicted divergence; 0: the planner
// keeps its own budget.
type Planner func(ctx context.Context, s *stats.File, loss float64, r Revision) (*plan.Plan, error)

// An Outcome is a package and what it costs.
type Outcome struct {
	*encode.Report
	Plan     *plan.Plan     `json:"plan"`
	Ledger   *ledger.Ledger `json:"ledger"`
	Measured *Measured      `json:"measured,omitempty"`
	Tries    []Try          `json:"tries,omitempty"`
	// Kept and Policy are what was measured for long contexts, nil where it was not.
	Kept   *attention.Kept   `json:"kv,omitempty"`
	Policy *attention.Policy `json:"attention,omitempty"`
}

// A Try is one package made for a bound on the divergence.
type Try struct {
	Predicted float64 `json:"predicted_kld"`
	Measured  float64 `json:"measured_kld"`
	Bound     float64 `json:"bound"` // mean and two standard errors
	Bytes     int64   `json:"bytes"`
}

// Quantize makes a package: it measures statistics where the plan needs some,
// plans, fits, measures on the held-out windows and writes the package with its
// plan and its ledger. What is finished lies in OUT.work until the package is
// whole; after an error or an interrupt it stays there, for Resume, unless
// nothing was finished. The package does not depend on interruptions.
func Quantize(ctx context.Context, m *model.Model, q Request) (*Outcome, error) {
	f, err := q.begin(ctx, m)
	if err != nil {
		return nil, err
	}
	out, err := f.run(ctx)
	f.close()
	if err != nil {
		if !q.Merge && f.work.Empty(ctx) {
			return nil, errors.Join(err, f.work.Remove(ctx))
		}
		return nil, errors.Join(err, f.work.Close())
	}
	return out, f.work.Remove(ctx)
}

// begin opens the work folder.
func (q Request) begin(ctx context.Context, m *model.Model) (*flow, error) {
	if err := q.check(m); err != nil {
		return nil, err
	}
	hash, err := stats.Fingerprint(m)
	if err != nil {
		return nil, err
	}
	folder, err := q.folder(ctx, hash)
	if err != nil {
		return nil, err
	}
	return &flow{Request: q, m: m, hash: hash, work: folder}, nil
}

// check refuses what can be known to fail before anything is read.
func (q *Request) check(m *model.Model) error {
	if q.Plan == nil {
		return leastNeed(m, q.options(q.Stats)).check(q.Memory, "before anything is read")
	}
	if err := CheckPlan("", m, q.Plan); err != nil {
		return err
	}
	return Need(m, q.Plan, q.options(nil).least()).check(q.Memory, "before anything is read")
}

// folder opens the work folder for a model of that hash.
func (q *Request) folder(ctx context.Context, hash string) (*work.Folder, error) {
	job := work.Job{"program": q.Tool, "model": hash, "calibration text": stats.HashWindows(q.Windows), "held-out text": stats.HashWindows(q.Held),
		"bound on the divergence": fmt.Sprint(q.MaxKLD, q.Tries), "bound on the drift": fmt.Sprint(q.MaxDrift), "order (--sequential, --parallel)": fmt.Sprint(q.Parallel), "processor": cpu.Best().Arithmetic(), "device": q.On.String()}
	if q.Plan != nil {
		job["plan"] = hashOf(q.Plan.Encode())
	}
	if q.Stats != nil {
		job["statistics"] = statisticsOf(q.Stats)
	}
	if q.Long != nil {
		job["long contexts"] = q.Long.job()
	}
	for k, v := range q.Decided {
		job[k] = v
	}
	switch {
	case q.Shard != nil:
		return work.Join(ctx, q.Work, job, q.Silence)
	case q.Merge:
		return work.Gather(ctx, q.Work, job, q.Silence)
	}
	path := work.Path(q.Out.Path())
	if q.Discard {
		if err := work.Discard(path); err != nil {
			return nil, err
		}
	}
	if q.Resume {
		return work.Resume(path, job)
	}
	return work.Create(path, job)
}

// statisticsOf tells statistics of one text from one another, without reading the
// moments: what else is in them, and how long the file is.
func statisticsOf(s *stats.File) string {
	known, err := json.Marshal(s.Sensitivity)
	if err != nil {
		return err.Error() // figures that are not finite are refused where they are read
	}
	var size int64
	if info, err := os.Stat(s.Path); err == nil {
		size = info.Size()
	}
	return fmt.Sprint(s.Source, " ", hashOf(known), " ", size)
}

// options returns how a plan is executed.
func (q *Request) options(s *stats.File) Options {
	return Options{Windows: q.Windows, Stats: s, Parallel: q.Parallel, Reuse: q.Earlier, Threads: q.Threads, On: q.On, Searcher: q.Searcher}
}

// A flow is a request on its way.
type flow struct {
	Request
	m     *model.Model
	hash  string // of m
	work  *work.Folder
	stats *stats.File
	open  []*work.Folder     // of tries
	found map[string]float64 // sensitivities that tries found
}

func (f *flow) close() {
	for _, w := range f.open {
		w.Close()
	}
	if f.stats != nil && f.stats != f.Stats {
		f.stats.Close()
	}
}

func (f *flow) run(ctx context.Context) (*Outcome, error) {
	if f.Expected != nil && !f.Merge {
		seconds, err := f.expect(ctx)
		if err != nil {
			return nil, err
		}
		f.Expected(seconds)
	}
	if err := f.statistics(ctx); err != nil {
		return nil, err
	}
	if f.MaxKLD > 0 {
		return f.bounded(ctx)
	}
	p, err := f.planned(ctx, "plan.json", 0)
	if err != nil {
		return nil, err
	}
	if err := f.room(p); err != nil {
		return nil, err
	}
	r, err := f.fit(ctx, p, f.work, 0, f.Earlier)
	if err != nil {
		return nil, err
	}
	measured, err := f.measure(ctx, r)
	if err != nil {
		return nil, err
	}
	return f.write(ctx, r.Plan, r, measured)
}

// read reads a file of a work folder.
func read[T any](ctx context.Context, w *work.Folder, file string, read func(path string) (T, error)) (out T, err error) {
	path, err := w.Fetch(ctx, file)
	if err != nil {
		return out, err
	}
	return read(path)
}

// statsOf opens statistics in a work folder.
func statsOf(ctx context.Context, w *work.Folder, file string) (*stats.File, error) {
	return read(ctx, w, file, stats.Open)
}

// step calls f with a place to report progress to.
func (f *flow) step(what, unit string, do func(progress func(done, total int64)) error) error {
	if f.Progress == nil {
		return do(nil)
	}
	step, end := f.Progress(what, unit)
	defer end()
	return do(step)
}

// statsFile is where a work folder keeps what was measured of the original model.
const statsFile = "stats.nstats"

// measures reports whether statistics are measured.
func (f *flow) measures() bool {
	return f.Stats == nil && len(f.Windows) > 0 && (f.Plan == nil || f.Parallel || f.m.Graph.Tied())
}

// statistics measures the original model where a plan is to be made of it, or
// tensors are fitted by it.
func (f *flow) statistics(ctx context.Context) error {
	if f.Stats != nil {
		f.stats = f.Stats
		return f.Stats.Check(f.m)
	}
	if !f.measures() {
		return nil
	}
	measure, drop := f.measured, func(context.Context) error { return nil }
	if f.Shard != nil {
		o := f.original()
		defer o.close()
		if err := o.share(ctx); err != nil {
			return err
		}
		measure, drop = o.joined, o.drop
	}
	done, err := f.once(ctx, "statistics", func() (err error) {
		f.stats, err = statsOf(ctx, f.work, statsFile)
		return err
	})
	if err != nil {
		return err
	}
	defer done()
	if f.stats != nil {
		return f.stats.Check(f.m)
	}
	s, err := measure(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(f.work.Write(ctx, statsFile, s.Write), s.Close()); err != nil {
		return err
	}
	if err := drop(ctx); err != nil {
		return err
	}
	f.stats, err = statsOf(ctx, f.work, statsFile) // as a run that resumes reads them
	return err
}

// measuring returns how the original model is measured.
func (f *flow) measuring() calibrate.Options {
	return calibrate.Options{Threads: f.Threads, On: f.On, Memory: f.Memory / 2, Dir: filepath.Dir(f.work.Own("")), Text: f.Text, Seed: uint64(f.Seed), Tool: f.Tool}
}

// measured measures the original model.
func (f *flow) measured(ctx context.Context) (s *stats.File, err error) {
	o := f.measuring()
	err = f.step("calibrating", "blocks", func(progress func(done, total int64)) (err error) {
		o.Progress = progress
		s, err = calibrate.Measure(ctx, f.m, f.Windows, o)
		return err
	})
	if err == nil && f.Plan == nil {
		err = f.step("measuring sensitivities", "steps", func(progress func(done, total int64)) error {
			o.Progress = progress
			return calibrate.Sensitivities(ctx, f.m, s, f.Windows, calibrate.SensitivityOptions{Options: o})
		})
	}
	if err != nil && s != nil {
		err = errors.Join(err, s.Close())
	}
	return s, err
}

// planned returns the plan to execute, from a file of the work folder where an
// interrupted run left it.
func (f *flow) planned(ctx context.Context, file string, loss float64) (*plan.Plan, error) {
	p := f.Plan
	if p == nil {
		done, err := f.once(ctx, "plan", func() (err error) {
			p, err = read(ctx, f.work, file, plan.Read)
			return err
		})
		if err != nil {
			return nil, err
		}
		defer done()
		if p == nil {
			if p, err = f.Planner(ctx, f.stats, loss, Revision{Assumed: f.found}); err != nil {
				return nil, err
			}
			if err := f.work.Write(ctx, file, p.Write); err != nil {
				return nil, err
			}
			if p, err = read(ctx, f.work, file, plan.Read); err != nil { // as a run that resumes reads it
				return nil, err
			}
			if _, err := f.layers(ctx, p); err != nil { // while what they are found by is there
				return nil, err
			}
		}
	}
	return p, Need(f.m, p, f.options(f.stats).least()).check(f.Memory, "before anything is fitted")
}

// fit fits a plan's tensors, in a work folder. loss is what the plan was made
// for: a watch may replace it.
func (f *flow) fit(ctx context.Context, p *plan.Plan, w *work.Folder, loss float64, reuse map[string]Reused) (r *Result, err error) {
	o := f.options(f.stats)
	o.Work, o.Reuse, o.Merge = w, reuse, f.Merge
	o.Alone = f.Memory > 0 && Need(f.m, p, o).Memory > f.Memory
	if f.Shard != nil {
		o.Shard = *f.Shard
	}
	if o.Watch, err = f.watch(w, loss); err != nil {
		return nil, err
	}
	if o.Watch != nil {
		if again, err := read(ctx, w, replanned, plan.Read); err == nil {
			p = again // of a run that was interrupted
		}
	}
	err = f.step("fitting", "weights", func(progress func(done, total int64)) error {
		o.Progress = progress
		r, err = Run(ctx, f.m, p, o)
		return err
	})
	if o.Watch != nil {
		f.found = o.Watch.found.Assumed
	}
	return r, err
}

// replanned is where a work folder keeps the plan that a watch made.
const replanned = "again.json"

// watch returns what bounds the drift, nil where nothing does.
func (f *flow) watch(w *work.Folder, loss float64) (*Watch, error) {
	switch {
	case f.MaxDrift == 0:
		return nil, nil
	case len(f.Held) == 0:
		return nil, fmt.Errorf("a bound on the drift needs text to measure on, beside that to fit to")
	case f.Parallel:
		return nil, fmt.Errorf("a bound on the drift needs blocks to be fitted in order")
	}
	out := &Watch{Held: f.Held, Most: f.MaxDrift, File: w.Own("drift.json"), found: revisions{Assumed: maps.Clone(f.found)}}
	if f.Planner != nil {
		out.Replan = func(ctx context.Context, r Revision) (*plan.Plan, error) {
			p, err := f.Planner(ctx, f.stats, loss, r)
			if err != nil {
				return nil, err
			}
			if err := w.Write(ctx, replanned, p.Write); err != nil {
				return nil, err
			}
			return read(ctx, w, replanned, plan.Read) // as a run that resumes reads it
		}
	}
	return out, nil
}

// measure measures fitted tensors, nil where nothing was held out.
func (f *flow) measure(ctx context.Context, r *Result) (measured *Measured, err error) {
	if len(f.Held) == 0 {
		return nil, nil
	}
	err = f.step("measuring", "tokens", func(progress func(done, total int64)) error {
		measured, err = Measure(ctx, f.m, r.Tensors, f.Held, MeasureOptions{f.Threads, f.On, progress})
		return err
	})
	return measured, err
}

// write writes the package with its plan and its ledger.
func (f *flow) write(ctx context.Context, p *plan.Plan, r *Result, measured *Measured) (*Outcome, error) {
	l := account(f.m, p, r, measured, f.source())
	if f.stats != nil {
		l.Experts = experts(f.stats)
	}
	if f.Times {
		for i := range l.Tensors {
			l.Tensors[i].Seconds = r.Fits[l.Tensors[i].Name].Seconds
		}
	}
	out := &Outcome{Plan: p, Ledger: l, Measured: measured}
	var err error
	if out.Kept, out.Policy, err = f.measureLong(ctx, r); err != nil {
		return nil, err
	}
	if l.Layers, err = f.layers(ctx, p); err != nil {
		return nil, err
	}
	if f.Long != nil {
		planner.Attended(l.Layers, out.Kept, out.Policy, f.Long.LayerPages)
	}
	files := append([]nstf.File{{Name: nstf.LedgerFile, Data: l.Encode()}, {Name: nstf.PlanFile, Data: p.Encode()}}, longFiles(out.Kept, out.Policy)...)
	if f.stats != nil {
		if u := f.stats.Uses(f.m.Graph); u != nil {
			files = append(files, nstf.File{Name: nstf.ExpertsFile, Data: u.Encode()})
		}
	}
	err = f.step("writing", "bytes", func(progress func(done, total int64)) (err error) {
		out.Report, err = encode.Run(ctx, f.m, f.Out, encode.Options{Fitted: r.Tensors, Files: files, Sources: f.Sources,
			Tool: f.Tool, Flags: f.Flags, Progress: progress})
		return err
	})
	for i := range l.Tensors { // the caller may want to know, whatever the package says
		l.Tensors[i].Seconds = r.Fits[l.Tensors[i].Name].Seconds
	}
	return out, err
}

// source says, for the ledger, what was fitted to and measured on.
func (f *flow) source() ledger.Source {
	s := ledger.Source{Model: filepath.Base(f.m.Path), Hash: f.hash, Text: f.Text, Windows: int64(len(f.Windows)), Held: f.HeldText, HeldCount: int64(len(f.Held)), Seed: f.Seed}
	if len(f.Windows) > 0 {
		s.TextHash, s.Context = stats.HashWindows(f.Windows), int64(len(f.Windows[0]))
	}
	return s
}

// experts lists a mixture's experts that too few tokens came to.
func experts(s *stats.File) []ledger.Expert {
	out := []ledger.Expert{}
	for _, c := range s.Coverage() {
		for _, list := range []struct {
			experts []int
			used    stats.Coverage
		}{{c.Shrunk, stats.CoverShrunk}, {c.Block, stats.CoverBlock}} {
			for _, e := range list.experts {
				out = append(out, ledger.Expert{Input: c.Input, Expert: int64(e), Tokens: c.Tokens[e], Used: string(list.used)})
			}
		}
	}
	return out
}
