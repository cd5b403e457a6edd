package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/formats/work"
	"github.com/nstf/nstf/quantize/encode"
	"github.com/nstf/nstf/quantize/pipeline"
	"github.com/nstf/nstf/quantize/plan/planner"
	"github.com/nstf/nstf/runtime/place"
)

// quantizeFlags are the flags of quantize.
type quantizeFlags struct {
	planFlags
	on                             deviceFlag // where trellis codes are searched
	text                           textFlags
	out, scheme, embed, head       string
	plan, source, memory           string
	stats, verify                  string
	tries                          int
	maxDrift                       float64
	effort                         int64
	sequential, parallel, dry      bool
	resume, discard, times, asJSON bool
	threads                        int
	limit                          int64 // bytes of --memory
}

const quantizeLong = `Make a model smaller. What is asked for is one of
  --bpw 3, --size 3.9GiB   the most accurate package of that size
  --max-kld 0.02           the smallest whose measured divergence stays below
  --scheme q4_k            one scheme for all matrices
  --plan plan.json         what the plan says (see nstf plan)

The first two and --scheme with tcq are calibrated on text like what the model will
read: --calib names it (.txt, .jsonl or .parquet). A first pass measures the model and how much an
error in each tensor costs; --stats takes that from a file instead. Then the blocks are
compressed in order, each behind those that are compressed already (--sequential), or all
by the first pass (--parallel). An eighth of the text is held out to measure what the
package costs; the package carries this as its ledger, with its plan. --max-drift bounds how
far hidden states go from the model's, block by block: a block that goes too far gets more
bits, at the cost of those behind it, or the command stops.

Trellis codes are searched on a GPU where --device names one or, with auto, one is found:
in minutes instead of hours, and to the same bytes, so that --resume goes on on either.

What is finished lies in OUT.work until the package is whole. After an interrupt, --resume
goes on there and --discard begins anew. With a package and --source MODEL, --plan redoes
only the tensors whose recipe is another than in the package.

--scheme without --calib rounds: the head (or the embedding table that it is tied to) gets
q6_k where SCHEME has fewer bits; norms, biases, learned positions and routers stay; rows
that no block divides get the nearest scheme that fits, which is listed.

Schemes: %s.
tcq2 to tcq6 are trellis codes of 2 to 6 bits over rotated weights: a fraction of the
error of the others at the same size, found by a search that takes minutes instead of
seconds on the processor. --schemes ggml makes what nstf export gives to llama.cpp.`

// wrapped lists words between commas, in lines of about so many columns.
func wrapped(words []string, columns int) string {
	var out strings.Builder
	line := 0
	for i, w := range words {
		switch {
		case i == 0:
		case line > columns-len(w):
			out.WriteString(",\n")
			line = 0
		default:
			out.WriteString(", ")
		}
		out.WriteString(w)
		line += len(w) + 2
	}
	return out.String()
}

func (a *app) quantizeCommand() *cobra.Command {
	var f quantizeFlags
	c := &cobra.Command{
		Use: "quantize SRC -o OUT.nstf (--bpw N | --size N | --max-kld N | --scheme NAME | --plan FILE)", Short: "Make a model smaller, to a size, a divergence, a scheme or a plan", Args: cobra.ExactArgs(1),
		Long: fmt.Sprintf(quantizeLong, wrapped(encode.Schemes(), 80)),
		Example: `  nstf quantize ./Llama-3.2-1B -o llama-q4.nstf --scheme q4_k
  nstf quantize ./Llama-3.2-1B -o llama-3bit.nstf --bpw 3 --calib text.jsonl
  nstf quantize ./Llama-3.2-1B -o llama.nstf --max-kld 0.02 --calib text.jsonl --keep 'embed=q8_0'
  nstf quantize llama.nstf --source ./Llama-3.2-1B --plan edited.json -o llama2.nstf`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if !f.calibrated() {
				return a.rounded(c.Context(), args[0], &f)
			}
			return a.quantize(c.Context(), args[0], &f)
		},
	}
	s := c.Flags()
	s.StringVarP(&f.out, "output", "o", "", "package to write")
	s.Float64Var(&f.bpw, "bpw", 0, "bits per weight of all tensors together")
	s.StringVar(&f.size, "size", "", "size of the package, such as 3.9GiB or 900MB")
	s.Float64Var(&f.maxKLD, "max-kld", 0, "mean KL divergence in nats to keep, measured, with twice its standard error")
	s.IntVar(&f.tries, "tries", 6, "packages made for --max-kld at most")
	s.Float64Var(&f.maxDrift, "max-drift", 0, "what hidden states may drift, of their square, on held-out text")
	f.objectiveFlags(s, "latency-device")
	s.StringVar(&f.on.name, "device", string(place.Auto), "where trellis codes are searched: auto, cpu, hip[:N], cuda[:N]")
	s.StringVar(&f.scheme, "scheme", "", "scheme of the linear layers")
	s.StringVar(&f.embed, "embed-scheme", "", "with --scheme: of the embedding table; default: SCHEME")
	s.StringVar(&f.head, "head-scheme", "", "with --scheme: of the head; default: q6_k or SCHEME, one bit more for tcq")
	s.StringVar(&f.plan, "plan", "", "plan to execute, made by nstf plan or edited")
	s.StringVar(&f.source, "source", "", "model that the package SRC was made from, with --plan")
	s.StringArrayVar(&f.keep, "keep", nil, "recipe for tensors by name, 'REGEX=RECIPE'; may be repeated")
	s.StringVar(&f.schemes, "schemes", "all", "recipes to choose from: all, ggml, or a list")
	s.BoolVar(&f.forms, "forms", false, "consider factors too: products, corrections, shared matrices, tensor trains")
	f.text.add(s)
	s.StringVar(&f.stats, "stats", "", "of nstf calibrate, or an importance matrix of llama.cpp, instead of a first pass")
	s.StringVar(&f.verify, "verify-text", "", "text to measure on, instead of the part of --calib that is held out")
	s.Int64Var(&f.effort, "effort", 0, "of the search for codes, 1 the least; 0: the default")
	s.BoolVar(&f.sequential, "sequential", false, "measure each block behind those compressed already (default)")
	s.BoolVar(&f.parallel, "parallel", false, "fit all blocks by the original model's statistics")
	s.BoolVar(&f.dry, "dry-run", false, "say size, predicted divergence, time, memory and disk; write nothing")
	s.StringVar(&f.memory, "memory", "", "memory that must be enough, such as 8GiB; checked before anything is read")
	s.BoolVar(&f.resume, "resume", false, "go on where an interrupted run stopped")
	s.BoolVar(&f.discard, "discard", false, "remove what an interrupted run left, and begin anew")
	s.BoolVar(&f.times, "ledger-times", false, "write seconds into the ledger; the package then differs from run to run")
	s.IntVar(&f.threads, "threads", 0, "threads; 0: one per core")
	s.BoolVar(&f.asJSON, "json", false, "print a JSON report")
	c.MarkFlagRequired("output")
	return c
}

// rounded quantizes without text.
func (a *app) rounded(ctx context.Context, src string, f *quantizeFlags) error {
	p, err := encode.NewPolicy(f.scheme, f.embed, f.head)
	if err != nil {
		return &usageError{err}
	}
	if f.dry {
		return a.wouldRound(ctx, src, f)
	}
	return a.encode(ctx, src, f.out, encode.Options{Policy: p, Flags: f.schemeFlags()}, "quantizing", f.asJSON)
}

// wouldRound says what rounding would take, and writes nothing.
func (a *app) wouldRound(ctx context.Context, src string, f *quantizeFlags) error {
	m, err := model.Open(src)
	if err != nil {
		return err
	}
	defer m.Close()
	q := pipeline.Request{Threads: f.threads}
	if q.Plan, err = (pipeline.Chosen{Scheme: f.scheme, Embed: f.embed, Head: f.head}).Plan(m); err != nil {
		return &usageError{err}
	}
	forecast, err := pipeline.Predict(ctx, m, q)
	if err != nil {
		return err
	}
	forecast.Disk = forecast.Bytes // rounded tensors go into the package at once
	return a.printForecast(forecast, f.asJSON)
}

// quantize makes a package by statistics, or by a plan.
func (a *app) quantize(ctx context.Context, src string, f *quantizeFlags) error {
	f.keepMemory()
	earlier := ""
	if f.source != "" {
		src, earlier = f.source, src
	}
	m, err := model.Open(src)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := f.writable(m, earlier); err != nil {
		return err
	}
	q, err := a.request(ctx, m, f)
	if err != nil {
		return err
	}
	if q.Stats != nil {
		defer q.Stats.Close()
	}
	searcher, err := pipeline.NewSearcher(a.device(&f.on))
	if err != nil {
		return err
	}
	if searcher != nil {
		defer searcher.Close()
		q.Searcher = searcher
	}
	if earlier != "" {
		e, err := model.Open(earlier)
		if err != nil {
			return err
		}
		defer e.Close()
		if q.Earlier, err = pipeline.Earlier(m, e, q.Plan); err != nil {
			return err
		}
		q.Sources = append(q.Sources, nstf.Source{Role: "package", Name: filepath.Base(earlier), Path: earlier})
		if q.Decided["earlier package"], err = stats.Fingerprint(e); err != nil {
			return err
		}
	}
	return a.execute(ctx, m, q, f)
}

// execute does what is asked for, or says what it would take.
func (a *app) execute(ctx context.Context, m *model.Model, q *pipeline.Request, f *quantizeFlags) error {
	if f.dry {
		forecast, err := pipeline.Predict(ctx, m, *q)
		if err != nil {
			return err
		}
		return a.printForecast(forecast, f.asJSON)
	}
	out, err := pipeline.Quantize(ctx, m, *q)
	if err != nil {
		if _, left := os.Stat(work.Path(f.out)); left == nil && !errors.Is(err, work.ErrExists) {
			a.warn(work.Path(f.out) + " keeps what is finished: --resume goes on there, --discard removes it")
		}
		return err
	}
	return a.printOutcome(out, f.asJSON)
}

// keepMemory makes the collector of garbage keep the limit, so that what is
// dropped does not count beside what is used.
func (f *quantizeFlags) keepMemory() {
	const usual = 5 << 30
	limit := int64(usual)
	if f.limit > 0 {
		limit = f.limit / 16 * 15
	}
	debug.SetMemoryLimit(limit)
}

// request turns flags into what is asked for.
func (a *app) request(ctx context.Context, m *model.Model, f *quantizeFlags) (*pipeline.Request, error) {
	q := &pipeline.Request{Out: f.out, Seed: f.text.seed, MaxKLD: f.maxKLD, Tries: f.tries, MaxDrift: f.maxDrift, Parallel: f.parallel, Threads: f.threads,
		Memory: f.limit, Resume: f.resume, Discard: f.discard, Times: f.times, Tool: toolName(), Progress: a.progress, Decided: map[string]string{}}
	if err := a.texts(m, f, q); err != nil {
		return nil, err
	}
	if f.stats != "" {
		s, err := a.openStats(f.stats, m)
		if err != nil {
			return nil, err
		}
		q.Stats = s
		a.warnOtherWindows(f, q)
		q.Sources = append(q.Sources, nstf.Source{Role: "statistics", Name: filepath.Base(f.stats), Path: f.stats})
	}
	if err := a.planFor(m, f, q); err != nil {
		return nil, err
	}
	q.Flags = append(q.Flags, f.text.flags()...)
	if f.parallel {
		q.Flags = append(q.Flags, "--parallel")
	}
	if q.Plan == nil {
		return q, a.planBy(ctx, m, f, q)
	}
	return q, nil
}

// texts cuts the calibration text, and the text to measure on.
func (a *app) texts(m *model.Model, f *quantizeFlags, q *pipeline.Request) error {
	if f.text.path == "" && f.stats != "" && f.parallel && f.verify == "" {
		return nil // statistics are all that is needed
	}
	var err error
	if q.Windows, q.Held, err = a.windows(m, &f.text); err != nil {
		return err
	}
	q.Text, q.HeldText = f.text.name(), "held-out windows of "+f.text.name()
	q.Sources = append(q.Sources, f.text.sources()...)
	if f.verify != "" {
		if q.Held, err = f.text.other(m, f.verify); err != nil {
			return err
		}
		q.HeldText = filepath.Base(f.verify)
		q.Sources = append(q.Sources, nstf.Source{Role: "text", Name: q.HeldText, Path: f.verify})
	}
	return nil
}

// planFor sets the plan that was given, or says what one is made by.
func (a *app) planFor(m *model.Model, f *quantizeFlags, q *pipeline.Request) (err error) {
	switch {
	case f.scheme != "":
		q.Flags = append(q.Flags, f.schemeFlags()...)
		if q.Plan, err = (pipeline.Chosen{Scheme: f.scheme, Embed: f.embed, Head: f.head}).Plan(m); err != nil {
			return &usageError{err}
		}
		q.Plan.Seed, q.Plan.Effort = f.text.seed, f.effort
		return nil
	case f.plan != "":
		q.Sources = append(q.Sources, nstf.Source{Role: "plan", Name: filepath.Base(f.plan), Path: f.plan})
		if err := noFolder(f.plan); err != nil {
			return err
		}
		if q.Plan, err = plan.Read(f.plan); err != nil {
			return err
		}
		if name, ok := pipeline.EditOf(m, q.Plan); ok && f.source == "" {
			return usagef("%s was made by a plan like this one, and its weights are coded already: give --source MODEL, which was called %q, to redo what the plan changes", m.Path, name)
		}
		return pipeline.CheckPlan(f.plan, m, q.Plan)
	}
	q.Flags = append(q.Flags, f.planFlags.flags()...)
	if f.effort > 0 {
		q.Flags = append(q.Flags, fmt.Sprintf("--effort=%d", f.effort))
	}
	if f.maxDrift > 0 {
		q.Flags = append(q.Flags, fmt.Sprintf("--max-drift=%g", f.maxDrift))
	}
	if f.maxKLD > 0 {
		q.Flags = append(q.Flags, fmt.Sprintf("--tries=%d", f.tries))
	}
	q.Decided["aim"] = strings.Join(q.Flags, " ")
	return nil
}

// planBy sets who makes a plan, of whom the request says all but that.
func (a *app) planBy(ctx context.Context, m *model.Model, f *quantizeFlags, q *pipeline.Request) error {
	device, err := a.onDevice(ctx, f.device, f.threads)
	if err != nil {
		return err
	}
	var step func(done, total int64)
	by := planner.New(m, planner.Options{Schemes: f.schemes, Forms: f.forms, Device: device, Keep: f.rules, Seed: f.text.seed, Effort: f.effort, Threads: f.threads,
		Made: nstf.Provenance{Tool: q.Tool, Flags: q.Flags, Sources: q.Sources},
		Progress: func(done, total int64) {
			if step != nil {
				step(done, total)
			}
		}})
	q.Planner = func(ctx context.Context, s *stats.File, loss float64, r pipeline.Revision) (*plan.Plan, error) {
		b := f.budget
		if b.MaxLoss > 0 {
			b.MaxLoss = loss
		}
		var end func()
		step, end = a.progress("planning", "weights")
		defer end()
		return by.Again(ctx, s, b, r.Done, r.Assumed)
	}
	return nil
}
