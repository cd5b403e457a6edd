package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/formats/work"
	"github.com/nstf/nstf/quantize/encode"
	"github.com/nstf/nstf/quantize/fit"
	"github.com/nstf/nstf/quantize/pipeline"
	"github.com/nstf/nstf/quantize/plan/candidates"
	"github.com/nstf/nstf/quantize/plan/planner"
	"github.com/nstf/nstf/runtime/place"
)

// quantizeFlags are the flags of quantize.
type quantizeFlags struct {
	planFlags
	on                             deviceFlag // where text is run, and trellis codes are searched
	text                           textFlags
	out                            outputFlag
	scheme, embed, head            string
	plan, source, memory           string
	stats, verify                  string
	tries                          int
	maxDrift                       float64
	effort                         int64
	sequential, parallel, dry      bool
	resume, discard, times, asJSON bool
	threads                        int
	limit                          int64 // bytes of --memory
	long                           longFlags
	shardFlags
}

const quantizeLong = `Make a model smaller. What is asked for is one of
  --bpw 3, --size 3.9GiB   the most accurate package of that size
  --max-kld 0.02           the smallest whose measured divergence stays below
  --scheme q4_k            one scheme for all matrices
  --plan plan.json         what the plan says (see nstf plan)

The first two and --scheme with tcq are calibrated on text like what the model will
read: --calib names it (.txt, .jsonl, .parquet, a pipe, or - for standard input). Of a long
text 256 bytes are read for each token asked for (at least 4 MiB), from all its parts.
A first pass measures the model and how much an error in each tensor costs; --stats takes
that from a file instead. Then the blocks are compressed in order, each behind those that
are compressed already (--sequential), or all by the first pass (--parallel). An eighth of
the text is held out to measure what the package costs; the package carries this as its
ledger, with its plan. --max-drift bounds how far hidden states go from the model's, block
by block: a block that goes too far gets more bits, at the cost of those behind it, or the
command stops.

Text is run through the model, and trellis codes are searched, on a GPU where --device
names one or, with auto, one is found: in minutes instead of hours. Codes are the same
whoever searched; what text gives differs in the last digits, so that --resume goes on on
the device that began.

With --stream a model of a hub (see nstf pull) is read as it is needed, without room for it
on the disk: each part two to four times, the last time to hold all of it to its hash.

A size that not even the smallest recipes of all tensors keep is refused at once.

What is finished lies in OUT.work until the package is whole. After an interrupt, --resume
goes on there and --discard begins anew. With a package and --source MODEL, --plan redoes
only the tensors whose recipe is another than in the package.

Several processes, on machines that see one folder or one object store, share the work: each
gets the same flags and --shard i/N --work DIR instead of -o (i of N is taken from
SLURM_ARRAY_TASK_ID or JOB_COMPLETION_INDEX where --shard is not given), and --merge --work DIR
-o OUT makes the package when they have ended, with the bytes that one process would have made
on the processor. Text is run on the processor, codes are searched where --device says.
--work s3://BUCKET/PREFIX is in a store with S3's interface and conditional writes:
AWS_ENDPOINT_URL and AWS_REGION name it, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE
or the machine's role open it.

--long-context measures, of the package's own tensors, how few bits its keys and values may be
kept in, and what its heads lose that read few pages of them: run and others then keep keys and
values so, and --attention policy reads by it. The divergence of the bits is 0.001 at most, or
what --kv-kld says, or they are as many as --kv-bpw says; with one of these two and without
--long-context bits alone are chosen. All of it is measured on the processor, on long windows of
--calib, as calibrate --attention and --kv-bpw do; the ledger shows what each layer would save.

--scheme without --calib rounds: the head (or the embedding table that it is tied to) gets
q6_k where SCHEME has fewer bits; norms, biases, learned positions and routers stay, and so
do tensors in codes of no more bits than SCHEME's, as gpt-oss' experts in MXFP4 are; rows
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

// quantizeArgs wants a model, and tells those who write a command line of llama-quantize.
func quantizeArgs(c *cobra.Command, args []string) error {
	if len(args) == 3 {
		return &usageError{err: fmt.Errorf("the output and the scheme are flags here"),
			hint: fmt.Sprintf("nstf quantize %s -o %s.nstf --scheme %s", args[0], strings.TrimSuffix(args[1], filepath.Ext(args[1])), cmp.Or(mixtures[strings.ToLower(args[2])], strings.ToLower(args[2])))}
	}
	if len(args) == 2 {
		if s := strings.ToLower(args[1]); slices.Contains(schemeNames(), s) || mixtures[s] != "" {
			return &usageError{err: errors.New("the scheme is a flag here"), hint: fmt.Sprintf("nstf quantize %s -o OUT.nstf --scheme %s", args[0], cmp.Or(mixtures[s], s))}
		}
	}
	return outputIsFlag(cobra.ExactArgs(1))(c, args)
}

func (a *app) quantizeCommand() *cobra.Command {
	var f quantizeFlags
	c := &cobra.Command{
		Use: "quantize SRC (-o OUT.nstf | --dry-run) (--bpw N | --size N | --max-kld N | --scheme NAME | --plan FILE)", Short: "Make a model smaller, to a size, a divergence, a scheme or a plan", Args: quantizeArgs,
		Long: fmt.Sprintf(quantizeLong, wrapped(schemeNames(), 80)),
		Example: `  nstf quantize ./Llama-3.2-1B -o llama-q4.nstf --scheme q4_k
  nstf quantize ./Llama-3.2-1B -o llama-3bit.nstf --bpw 3 --calib text.jsonl
  nstf quantize ./Llama-3.2-1B -o llama.nstf --max-kld 0.02 --calib text.jsonl --keep 'embed=q8_0'
  nstf quantize llama.nstf --source ./Llama-3.2-1B --plan edited.json -o llama2.nstf`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.shardFlags.read(a.env.get, &f); err != nil {
				return err
			}
			if !c.Flags().Changed("output") && !f.dry && f.part == nil {
				return usagef("give the package to write by -o OUT.nstf, or ask what it would take by --dry-run")
			}
			if err := f.check(); err != nil {
				return err
			}
			a.warnNothingLeft(&f)
			if !f.calibrated() {
				return a.rounded(c.Context(), args[0], &f)
			}
			return a.quantize(c.Context(), args[0], &f)
		},
	}
	s := c.Flags()
	f.out.add(s, "package to write")
	addStream(s)
	s.Float64Var(&f.bpw, "bpw", 0, "bits per weight of all tensors together")
	s.StringVar(&f.size, "size", "", "size of the package, such as 3.9GiB or 900MB")
	s.Float64Var(&f.maxKLD, "max-kld", 0, "mean KL divergence in nats to keep, measured, with twice its standard error")
	s.IntVar(&f.tries, "tries", 6, "packages made for --max-kld at most")
	s.Float64Var(&f.maxDrift, "max-drift", 0, "what hidden states may drift, of their square, on held-out text")
	f.objectiveFlags(s, "latency-device")
	s.StringVar(&f.on.name, "device", string(place.Auto), "where trellis codes are searched: auto, cpu, hip[:N], cuda[:N]")
	f.on.flag = s.Lookup("device")
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
	s.BoolVar(&f.dry, "dry-run", false, "say size, time, memory and disk, with --stats the predicted divergence; write nothing")
	s.StringVar(&f.memory, "memory", "", "memory that must be enough, such as 8GiB; checked before anything is read")
	s.BoolVar(&f.resume, "resume", false, "go on where an interrupted run stopped")
	s.BoolVar(&f.discard, "discard", false, "remove what an interrupted run left, and begin anew")
	f.long.add(s)
	f.shardFlags.add(s)
	s.BoolVar(&f.times, "ledger-times", false, "write seconds into the ledger; the package then differs from run to run")
	s.IntVarP(&f.threads, "threads", "t", 0, "threads; 0: one per core")
	s.BoolVar(&f.asJSON, "json", false, "print a JSON report")
	return c
}

// rounded quantizes without text.
func (a *app) rounded(ctx context.Context, src string, f *quantizeFlags) error {
	p, err := encode.NewPolicy(f.scheme, f.embed, f.head)
	if err != nil {
		return &usageError{err: err}
	}
	if f.dry {
		return a.wouldRound(ctx, src, f)
	}
	return a.encode(ctx, src, f.out, encode.Options{Policy: p, Flags: f.schemeFlags()}, "quantizing", f.asJSON)
}

// wouldRound says what rounding would take, and writes nothing.
func (a *app) wouldRound(ctx context.Context, src string, f *quantizeFlags) error {
	m, err := checkpoint.OpenFrom(a.remote, src)
	if err != nil {
		return err
	}
	defer m.Close()
	q := pipeline.Request{Threads: f.threads}
	if q.Plan, err = (pipeline.Chosen{Scheme: f.scheme, Embed: f.embed, Head: f.head}).Plan(m); err != nil {
		return &usageError{err: err}
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
	m, err := checkpoint.OpenFrom(a.remote, src)
	if err != nil {
		return err
	}
	defer m.Close()
	out, err := a.quantizeTo(m, f, earlier)
	if err != nil {
		return err
	}
	if f.scheme == "" && f.plan == "" {
		if err := f.possible(m, f.text.seed); err != nil {
			return err
		}
	}
	q, err := a.request(ctx, m, f)
	if err != nil {
		return err
	}
	q.Out = out
	if q.Stats != nil {
		defer q.Stats.Close()
	}
	if !f.shared() {
		if q.On, err = a.opened(&f.on, m, q.Windows, q.Held); err != nil {
			return err
		}
		defer q.On.Close()
	}
	searcher, err := pipeline.NewSearcher(a.device(&f.on), q.On)
	if err != nil {
		return err
	}
	if searcher != nil {
		defer searcher.Close()
		q.Searcher = searcher
	}
	if earlier != "" {
		e, err := checkpoint.OpenFrom(a.remote, earlier)
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
	if err := f.typical(m, q); err != nil {
		return err
	}
	if f.dry {
		forecast, err := pipeline.Predict(ctx, m, *q)
		if err != nil {
			return err
		}
		if q.Stats == nil && q.Plan == nil {
			a.sayGuessed(f)
		}
		return a.printForecast(forecast, f.asJSON)
	}
	if f.shared() {
		var err error
		if q.Work, err = a.meeting(f.work); err != nil {
			return err
		}
		q.Silence, q.Shard, q.Merge = f.silence, f.part, f.merge
	}
	if q.Shard != nil {
		return pipeline.Share(ctx, m, *q)
	}
	q.Expected = func(seconds float64) { // before hours begin
		fmt.Fprintf(a.err, "quantizing takes about %s here, by samples; --dry-run says more\n", brief(time.Duration(seconds*float64(time.Second))))
	}
	was := describeFile(f.out.path)
	out, err := pipeline.Quantize(ctx, m, *q)
	if err != nil {
		var busy *atomicfile.BusyError
		if !errors.Is(err, work.ErrExists) && !errors.As(err, &busy) && !f.merge {
			a.warnWork(f.out.path)
		}
		return err
	}
	a.sayReplaced(f.out.path, was)
	return a.printOutcome(out, f.asJSON)
}

// typical sets what is asked for of a plan that is to be made, and by which code matrices
// of about that size are stored.
func (f *quantizeFlags) typical(m *model.Model, q *pipeline.Request) error {
	bits := 3.0
	if params := float64(m.Graph.Params()); f.budget.Bytes > 0 || f.budget.BPW > 0 {
		q.Asked = max(f.budget.Bytes, int64(f.budget.BPW/8*params))
		bits = 8 * float64(q.Asked) / params
	}
	q.Typical, q.Effort = plan.Trellis(int(min(max(math.Round(bits), scheme.TCQMinBits), scheme.TCQMaxBits))), int(f.effort)
	if f.schemes == "all" || strings.Contains(f.schemes, "tcq") {
		return nil
	}
	codes, err := candidates.Codes(f.schemes)
	if err == nil {
		q.Typical = codes[len(codes)/2]
	}
	return err
}

// warnWork says what the work folder of an output is for, where there is one.
func (a *app) warnWork(out string) {
	if _, err := os.Stat(work.Path(out)); err == nil {
		a.warn(work.Path(out) + " keeps what is finished: --resume goes on there, --discard removes it")
	}
}

// warnNothingLeft says that --resume begins at the start, where no work was left.
func (a *app) warnNothingLeft(f *quantizeFlags) {
	if _, err := os.Stat(work.Path(f.out.path)); f.resume && errors.Is(err, fs.ErrNotExist) {
		a.warn("--resume finds nothing to go on with: there is no " + work.Path(f.out.path) + ", so all is done from the start")
	}
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
	q := &pipeline.Request{Seed: f.text.seed, MaxKLD: f.maxKLD, Tries: f.tries, MaxDrift: f.maxDrift, Parallel: f.parallel, Threads: f.threads,
		Memory: f.limit, Resume: f.resume, Discard: f.discard, Times: f.times, Tool: toolName(), Progress: a.progress, Decided: map[string]string{}}
	if f.limit > 0 {
		q.Memory = max(f.limit-a.streams, 1)
	}
	if err := a.texts(ctx, m, f, q); err != nil {
		return nil, err
	}
	if t := f.text.read; f.long.wanted() && t != nil && t.Piped {
		return nil, usagef("%s is a pipe, and long contexts are measured on text that is read twice", f.text.path)
	}
	var err error
	if q.Long, err = f.long.cut(ctx, a, m, f.text); err != nil {
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
	if f.long.wanted() {
		q.Flags = append(q.Flags, f.long.flags()...)
	}
	if q.Plan == nil {
		tokens := int64(len(q.Windows)) * int64(f.text.ctx)
		if q.Stats != nil {
			tokens = q.Stats.Source.Tokens
		}
		a.warnFew(tokens)
		return q, a.planBy(ctx, m, f, q)
	}
	return q, nil
}

// texts cuts the calibration text, and the text to measure on.
func (a *app) texts(ctx context.Context, m *model.Model, f *quantizeFlags, q *pipeline.Request) error {
	if f.text.path == "" && f.stats != "" && f.parallel && f.verify == "" {
		return nil // statistics are all that is needed
	}
	var err error
	if q.Windows, q.Held, err = a.windows(ctx, m, &f.text); err != nil {
		return err
	}
	q.Text, q.HeldText = f.text.name(), "held-out windows of "+f.text.name()
	q.Sources = append(q.Sources, f.text.sources()...)
	if f.verify != "" {
		if q.Held, err = f.text.other(ctx, a, m, f.verify); err != nil {
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
			return &usageError{err: err}
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
		Made: nstf.Provenance{Tool: q.Tool, Flags: q.Flags, Sources: q.Sources}, Attached: q.Long.Expected(m),
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
		if on, ok := q.Searcher.(*pipeline.Searcher); ok && r.Done == nil { // a device that has nothing to do meanwhile
			defer on.Prepare(ctx, f.trellises())()
		}
		return by.Again(ctx, s, b, r.Done, r.Assumed)
	}
	q.Layers = by.Layers
	return nil
}

// trellises lists the bits of the trellis codes that a plan may choose, those near the
// budget first.
func (f *quantizeFlags) trellises() (bits []int) {
	codes, err := candidates.Codes(f.schemes)
	if err != nil {
		return nil // and the planner says so
	}
	if codes == nil {
		codes = fit.Codes() // all
	}
	for _, c := range codes {
		if c.Bits > 0 && !slices.Contains(bits, c.Bits) {
			bits = append(bits, c.Bits)
		}
	}
	slices.SortStableFunc(bits, func(a, b int) int {
		return cmp.Compare(math.Abs(float64(a)-f.budget.BPW), math.Abs(float64(b)-f.budget.BPW))
	})
	return bits
}
