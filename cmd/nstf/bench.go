package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats/model"
	kernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/bench"
	"github.com/nstf/nstf/runtime/place"
)

// benchFlags are the flags of bench.
type benchFlags struct {
	bench.Options
	probe, fresh, json bool
}

func (a *app) benchCommand() *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use: "bench MODEL | --probe", Short: "Measure speed beside what the machine could do", Args: cobra.MaximumNArgs(1),
		Long: `Measure how fast a model reads a prompt and decodes tokens: the median of some rounds
with the 10th and 90th percentile, and what share that is of what the machine does in
the same rounds. Decoding is held to the speed of reading memory, and of reading the
weights where they lie, which is faster where they fit a cache; the prompt to the speed
of multiplying on registers alone. The time to the first token is that of a process of
its own, from its start. Ids are made up: speed does not depend on them.

--probe prints what the machine is and what it can do. That is measured once and kept in
the user's cache folder; --fresh measures again.`,
		Example: `  nstf bench model.nstf
  nstf bench model.gguf --prompt 0 --gen 64 --depth 1024 --threads 4 --json
  nstf bench --probe`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return err
			}
			if f.probe {
				return a.probe(c.Context(), &f)
			}
			return a.bench(c.Context(), args[0], &f)
		},
	}
	s := c.Flags()
	s.IntVar(&f.Prompt, "prompt", 512, "tokens of the prompt; 0: time none")
	s.IntVar(&f.Gen, "gen", 128, "tokens decoded one by one; 0: time none")
	s.IntVar(&f.Depth, "depth", 0, "tokens in front of the decoded ones")
	s.IntVar(&f.Repeat, "repeat", 5, "rounds")
	s.IntVar(&f.Threads, "threads", 0, "threads; 0: one per core")
	s.StringVar(&f.Level, "level", "", "SIMD level of the kernels; default: the best this machine runs")
	s.BoolVar(&f.Exact, "exact", false, "compute in float32 throughout, instead of with int8 activations")
	s.StringVar(&f.KV, "kv", "", "how keys and values are kept: f32, f16 or q8; default: f16, with --exact f32")
	s.BoolVar(&f.Pin, "pin", false, "keep each thread on a processor of its own (Linux)")
	s.BoolVar(&f.probe, "probe", false, "print what the machine is and can do")
	s.BoolVar(&f.fresh, "fresh", false, "with --probe, measure again")
	s.BoolVar(&f.json, "json", false, "print JSON")
	return c
}

// check refuses flags that do not go together.
func (f *benchFlags) check(args []string) error {
	switch {
	case f.probe && len(args) > 0:
		return usagef("--probe is about the machine and takes no model")
	case !f.probe && len(args) == 0:
		return usagef("give a model, or --probe")
	case f.fresh && !f.probe:
		return usagef("--fresh goes with --probe")
	case f.Prompt < 0 || f.Gen < 0 || f.Depth < 0 || f.Threads < 0:
		return usagef("--prompt, --gen, --depth and --threads are not negative")
	case f.Prompt+f.Gen == 0:
		return usagef("--prompt 0 with --gen 0 measures nothing")
	case f.Repeat < 1:
		return usagef("--repeat %d is not positive", f.Repeat)
	}
	if f.Level != "" {
		if _, err := kernels.ParseLevel(f.Level); err != nil {
			return &usageError{err}
		}
	}
	if f.KV != "" {
		if _, err := kernels.ParseKVFormat(f.KV); err != nil {
			return &usageError{err}
		}
	}
	return nil
}

// plain reports whether the model is executed as run does it.
func (f *benchFlags) plain() bool { return f.Level == "" && f.KV == "" && !f.Exact && !f.Pin }

func (a *app) bench(ctx context.Context, path string, f *benchFlags) error {
	m, err := model.Open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	if a.self != nil && f.plain() {
		if _, err := m.Tokenizer(); err == nil { // run needs one
			f.FirstToken = func(ctx context.Context) (time.Duration, error) { return a.firstToken(ctx, path, f.Threads) }
		}
	}
	step, end := a.progress("measuring", false)
	defer end()
	f.Progress = step
	r, err := bench.Run(ctx, m, f.Options)
	end()
	if err != nil {
		return err
	}
	if f.json {
		return printJSON(a.out, r)
	}
	a.printBench(r)
	return nil
}

// firstToken runs this program and returns the time from its start until its first
// byte: the text of a token, or the end of the line where that has none.
func (a *app) firstToken(ctx context.Context, path string, threads int) (time.Duration, error) {
	c := a.self(ctx, "run", path, "-p", "Hello", "--greedy", "--max-tokens", "1", "--threads", strconv.Itoa(threads))
	var errs strings.Builder
	c.Stderr = &errs
	out, err := c.StdoutPipe()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := c.Start(); err != nil {
		return 0, err
	}
	_, readErr := io.ReadFull(out, make([]byte, 1))
	d := time.Since(start)
	io.Copy(io.Discard, out)
	if err := c.Wait(); err != nil {
		return 0, fmt.Errorf("%w: %s", err, strings.TrimSpace(errs.String()))
	}
	return d, readErr
}

// ownProcess returns a process of this program.
func ownProcess(ctx context.Context, args ...string) *exec.Cmd {
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	return exec.CommandContext(ctx, path, args...)
}

// spread writes a rate with its percentiles.
func spread(r place.Rate) string {
	return fmt.Sprintf("%s (%s to %s)", figure(r.Median), figure(r.P10), figure(r.P90))
}

// figure writes three digits or more.
func figure(f float64) string {
	switch {
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

func (a *app) printBench(r *bench.Result) {
	t := newTable(2)
	row := func(name, format string, args ...any) {
		t.AppendRow([]any{name, clip(fmt.Sprintf(format, args...), tableWidth-16)})
	}
	row("model", "%s", r.Model)
	row("weights", "%s, %s", count(r.Params), size(r.Bytes))
	row("machine", "%s, %s, %d threads", r.Machine.CPU, r.Machine.Level, r.Threads)
	row("rounds", "%d, medians (10th to 90th percentile)", r.Repeat)
	if p := r.Prompt; p != nil {
		row("prompt", "%s tokens/s, %d tokens", spread(p.Rate), p.Tokens)
		if p.Kind != "" {
			row("", "%s GFLOP/s, %.1f %% of %s of %s", spread(p.Gops), 100*p.Share, figure(p.Peak.Median), p.Kind)
		}
	}
	if d := r.Decode; d != nil {
		row("decode", "%s tokens/s, %d tokens behind %d", spread(d.Rate), d.Tokens, d.Depth)
		row("", "%s GB/s: %s of weights and %s of cache a token", spread(d.GBs), size(d.WeightBytes), size(d.CacheBytes))
		row("", "%.1f %% of %s GB/s of memory", 100*d.Share, spread(d.Memory))
		if d.InPlace != nil {
			row("", "%.1f %% of %s GB/s of the weights where they lie", 100*d.InPlaceShare, spread(*d.InPlace))
		}
	}
	if r.FirstToken != nil {
		row("first token", "%s s from the start of the process", spread(*r.FirstToken))
	}
	row("load", "%.3f s", r.LoadS)
	if r.PeakRSS > 0 {
		row("peak memory", "%s, mapped weights included", size(r.PeakRSS))
	}
	printTable(a.out, t)
}

// probe prints the machine's profile.
func (a *app) probe(ctx context.Context, f *benchFlags) error {
	set := kernels.Best()
	if f.Level != "" {
		level, err := kernels.ParseLevel(f.Level)
		if err != nil {
			return err
		}
		if set, err = kernels.ForLevel(level); err != nil {
			return err
		}
	}
	p, err := a.profile(ctx, set, f)
	if err != nil {
		return err
	}
	if f.json {
		return printJSON(a.out, p)
	}
	a.printProfile(p)
	return nil
}

// profile loads what was measured before, or measures and keeps it.
func (a *app) profile(ctx context.Context, set *kernels.Set, f *benchFlags) (*place.Profile, error) {
	threads := f.Threads
	if threads == 0 {
		threads = goruntime.GOMAXPROCS(0)
	}
	m := place.Discover(set)
	dir, dirErr := os.UserCacheDir()
	dir = filepath.Join(dir, "nstf")
	if dirErr == nil && !f.fresh {
		if p, err := place.Load(dir, &m, threads); err == nil {
			return p, nil
		}
	}
	p, err := place.Measure(ctx, set, threads)
	if err != nil {
		return nil, err
	}
	if dirErr == nil {
		dirErr = p.Save(dir)
	}
	if dirErr != nil {
		a.warn(fmt.Sprintf("what was measured is not kept: %v", dirErr))
	}
	return p, nil
}

func (a *app) printProfile(p *place.Profile) {
	t := newTable(2)
	row := func(name, format string, args ...any) { t.AppendRow([]any{name, fmt.Sprintf(format, args...)}) }
	m := &p.Machine
	row("cpu", "%s, %s", m.CPU, m.System)
	row("kernels", "%s", m.Level)
	row("cores", "%d, %d threads, %d memory nodes", m.Cores, m.Threads, m.Nodes)
	for _, c := range m.Caches {
		shared := ""
		if c.Sharing > 1 {
			shared = fmt.Sprintf(", shared by %d threads", c.Sharing)
		}
		row(fmt.Sprintf("L%d", c.Level), "%s%s", size(c.Bytes), shared)
	}
	if m.Memory > 0 {
		row("memory", "%s", size(m.Memory))
	}
	row("measured", "%s, medians (10th to 90th percentile)", p.Measured.Local().Format(time.DateTime))
	row("read", "%s GB/s by 1 thread, %s by %d, of %s", spread(p.ReadOne), spread(p.ReadAll), p.Threads, size(p.Buffer))
	for _, k := range p.Peaks {
		row(k.Kind, "%s GFLOP/s by 1 thread, %s by %d", spread(k.One), spread(k.All), p.Threads)
	}
	printTable(a.out, t)
}
