package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats/checkpoint"
	kernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/bench"
	"github.com/nstf/nstf/runtime/place"
)

// mostAtOnce bounds the requests of bench --concurrency: those that a scheduler has wait.
const mostAtOnce = 1024

// benchFlags are the flags of bench.
type benchFlags struct {
	bench.Options
	probe, kernels, tune, fresh, json bool
	shapes                            []string
	concurrency                       []int
	device                            deviceFlag
	serverFlags
	rates     []float64
	ramp      time.Duration
	prompts   []int
	requests  int
	attention attentionFlag
}

func (a *app) benchCommand() *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use: "bench MODEL | --server URL | --kernels | --probe | --tune", Short: "Measure speed beside what the machine could do", Args: cobra.MaximumNArgs(1),
		Long: `Measure how fast a model reads a prompt and decodes tokens: the median of some rounds
with the 10th and 90th percentile, and what share that is of what the machine does in
the same rounds. Decoding is held to the speed of reading memory, and of reading the
weights where they lie: where a cache holds them both are faster than memory, whose share
is then above 100 %. The prompt is held to the speed of multiplying on registers alone.
On a GPU, tokens are chosen there, and the limit is copying its memory. The time to the
first token is that of a process of its own, from its start. Ids are made up: speed does
not depend on them.

--kernels holds every kernel to the reference and then times it, by itself: products with
coded weights on all threads at --shape, everything else on one. The limit beside it is
reading as many bytes, or multiplying on registers.

--concurrency serves so many requests at once, by the scheduler of the server in this
process: how fast their prompts are read, their tokens decoded where the prompts are kept
from before, and both together; how long the first token takes, and the next ones.

--server measures a server over its network instead, this project's or another's that
speaks OpenAI's completions and takes tokens: with --concurrency so many requests at once,
each followed by the next, with --rate so many arriving in a second, whatever the server
makes of them. With --ramp those at once do not come as a crowd: they arrive over that time,
and what begins in it is left out of the times. The time to the first token counts from when a request was due. Prompts
have --prompt tokens, or by turns the numbers of --prompts, answers --gen; they are made
anew by every run, so that the server has none of them kept.

--probe prints what the machine is and what it can do. That is measured once and kept in
the user's cache folder; --fresh measures again.

--tune looks for the sizes of pieces that products are cut into with which this machine
is the fastest. They are kept beside that, and every later run takes them; without, they
follow from the sizes of its caches. Results do not depend on them. With a model and a GPU as
--device it looks for the divisions of the GPU's work that are fastest on that model's
matrices: minutes, once for each card and kind of model.`,
		Example: `  nstf bench model.nstf
  nstf bench model.gguf --prompt 0 --gen 64 --depth 1024 --threads 4 --json
  nstf bench model.nstf --concurrency 1,8,32,128 --gen 64 --repeat 1
  nstf bench --server http://127.0.0.1:8080 --concurrency 1,8,32 --rate 2,4 --prompts 128,512,2048 --json
  nstf bench --server http://127.0.0.1:8080 --concurrency 32 --ramp 2s --requests 320
  nstf bench --kernels --shape 1x11008x4096 --shape 512x11008x4096
  nstf bench --probe
  nstf bench --tune
  nstf bench model.nstf --device hip --tune`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return err
			}
			switch {
			case f.server != "":
				return a.benchServer(c.Context(), &f)
			case f.probe:
				return a.probe(c.Context(), &f)
			case f.tune && len(args) > 0:
				return a.tuneGPU(c.Context(), args[0], &f)
			case f.tune:
				return a.tune(c.Context(), &f)
			case f.kernels:
				return a.benchKernels(c.Context(), &f)
			case len(f.concurrency) > 0:
				return a.benchServing(c.Context(), args[0], &f)
			}
			return a.bench(c.Context(), args[0], &f)
		},
	}
	s := c.Flags()
	s.IntVarP(&f.Prompt, "prompt", "p", 512, "tokens of the prompt; 0: time none")
	s.IntVarP(&f.Gen, "gen", "n", 128, "tokens decoded one by one; 0: time none")
	s.IntVarP(&f.Depth, "depth", "d", 0, "tokens in front of the decoded ones")
	s.IntVarP(&f.Repeat, "repeat", "r", 5, "rounds")
	s.IntVarP(&f.Threads, "threads", "t", 0, "threads; 0: one per core")
	s.StringVar(&f.Level, "level", "", "SIMD level of the kernels; default: the best this machine runs")
	s.BoolVar(&f.Exact, "exact", false, "compute in float32 throughout, instead of with int8 activations")
	f.attention.add(s)
	s.StringVar(&f.KV, "kv", "", "how keys and values are kept: "+strings.Join(kernels.KVFormatNames(), ", ")+"; default: f16, with --exact f32")
	f.device.addSeveral(s)
	f.device.addMemory(s)
	s.BoolVar(&f.Profile, "profile", false, "on a GPU, time the kernels of a step too")
	s.BoolVar(&f.Pin, "pin", false, "keep each thread on a processor of its own (Linux)")
	s.IntSliceVar(&f.concurrency, "concurrency", nil, "serve so many requests at once, one number after the other")
	f.serverFlags.add(s)
	s.Float64SliceVar(&f.rates, "rate", nil, "with --server, `requests` that arrive in a second, one number\nafter the other")
	s.DurationVar(&f.ramp, "ramp", 0, "with --server and --concurrency, the `time` over which those at once\narrive; requests that begin in it are left out of the times")
	s.IntSliceVar(&f.prompts, "prompts", nil, "with --server, `tokens` of prompts, by turns")
	s.IntVar(&f.requests, "requests", 0, "with --server, requests of each load; 0: four times as many\nas at once, or those of 30 seconds")
	s.BoolVar(&f.kernels, "kernels", false, "time kernels instead of a model")
	s.StringArrayVar(&f.shapes, "shape", nil, "with --kernels, tokens x outputs x inputs; default: 1x4096x4096 and 512x4096x4096")
	s.BoolVar(&f.probe, "probe", false, "print what the machine is and can do")
	s.BoolVar(&f.tune, "tune", false, "find the sizes of pieces that suit this machine, and keep them")
	s.BoolVar(&f.fresh, "fresh", false, "with --probe, measure again")
	s.BoolVar(&f.json, "json", false, "print JSON")
	return c
}

// check refuses flags that do not go together.
func (f *benchFlags) check(args []string) error {
	if f.server != "" || f.model != "" || f.keyFile != "" || len(f.rates)+len(f.prompts) > 0 || f.ramp != 0 || f.requests != 0 {
		if err := f.checkServer(args); err != nil || f.server != "" {
			return err
		}
	}
	switch {
	case f.probe && f.kernels || f.probe && f.tune || f.kernels && f.tune:
		return usagef("--probe, --kernels and --tune are three things")
	case (f.probe || f.kernels) && len(args) > 0:
		return usagef("--probe and --kernels are about the machine and take no model")
	case f.tune && len(args) > 0 && (f.device.name == string(place.Auto) || f.device.name == "cpu"):
		return usagef("--tune with a model is for a GPU: name it with --device, or leave the model out to tune the processor")
	case f.tune && len(args) == 0 && f.device.named():
		return usagef("--tune of a GPU needs a model: its matrices are what is tried")
	case !f.probe && !f.kernels && !f.tune && len(args) == 0:
		return usagef("give a model, --kernels, --probe or --tune")
	case f.tune && f.Level != "":
		return usagef("--tune takes no --level: runs use the best")
	case len(f.shapes) > 0 && !f.kernels:
		return usagef("--shape goes with --kernels")
	case f.fresh && !f.probe:
		return usagef("--fresh goes with --probe")
	case f.Prompt < 0 || f.Gen < 0 || f.Depth < 0 || f.Threads < 0:
		return usagef("--prompt, --gen, --depth and --threads are not negative")
	case f.Prompt+f.Gen == 0:
		return usagef("--prompt 0 with --gen 0 measures nothing")
	case len(f.concurrency) > 0 && (f.probe || f.kernels || f.tune || f.Profile || f.Depth > 0):
		return usagef("--concurrency measures serving alone")
	case len(f.concurrency) > 0 && (f.Prompt == 0 || f.Gen == 0 || slices.Min(f.concurrency) < 1 || slices.Max(f.concurrency) > mostAtOnce):
		return usagef("--concurrency takes numbers from 1 to %d, and wants --prompt and --gen", mostAtOnce)
	case f.Repeat < 1:
		return usagef("--repeat %d is not positive", f.Repeat)
	}
	var err error
	if f.Policy, err = f.attention.policy(); err != nil {
		return err
	}
	if bytes, _ := f.attention.hosted(); bytes > 0 && (f.tune || len(f.concurrency) > 0) {
		return usagef("--kv-host goes with neither --tune nor --concurrency")
	}
	if err := f.device.check(); err != nil {
		return err
	}
	if f.tune && len(args) > 0 && len(f.device.requests) > 1 {
		return usagef("--tune looks at one device")
	}
	if f.Level != "" {
		if _, err := kernels.ParseLevel(f.Level); err != nil {
			return &usageError{err: err}
		}
	}
	if f.KV != "" {
		if _, err := kernels.ParseKVFormats(f.KV); err != nil {
			return &usageError{err: err}
		}
	}
	return nil
}

// checkServer is check of what is about a server.
func (f *benchFlags) checkServer(args []string) error {
	switch {
	case f.server == "":
		return usagef("--server-model, --key-file, --rate, --ramp, --prompts and --requests are about a server: name it by --server URL")
	case len(args) > 0 || f.probe || f.kernels || f.tune || f.Profile || f.Depth > 0 || f.Level != "" || f.KV != "" || f.attention.kind != attentionDense || f.Exact || f.Pin:
		return usagef("--server measures a server as it is: no model, and nothing about how it is executed")
	case len(f.concurrency)+len(f.rates) == 0:
		return usagef("say how many requests come by --concurrency or --rate")
	case len(f.concurrency) > 0 && (slices.Min(f.concurrency) < 1 || slices.Max(f.concurrency) > mostAtOnce):
		return usagef("--concurrency takes numbers from 1 to %d", mostAtOnce)
	case len(f.rates) > 0 && !(slices.Min(f.rates) > 0 && slices.Max(f.rates) <= 10_000):
		return usagef("--rate takes numbers above 0, 10000 at most")
	case f.ramp < 0 || f.ramp > time.Hour || f.ramp > 0 && len(f.concurrency) == 0:
		return usagef("--ramp takes a time of at most an hour, and is about --concurrency")
	case f.Gen < 1 || f.Prompt < 1 || len(f.prompts) > 0 && slices.Min(f.prompts) < 1 || f.requests < 0:
		return usagef("--prompt, --prompts and --gen are at least 1 with --server, and --requests is not negative")
	}
	return nil
}

// plain reports whether the model is executed as run does it.
func (f *benchFlags) plain() bool {
	return f.Level == "" && f.KV == "" && f.Policy == nil && !f.Exact && !f.Pin
}

func (a *app) bench(ctx context.Context, path string, f *benchFlags) error {
	m, err := checkpoint.Open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	if a.self != nil && f.plain() {
		if _, err := m.Tokenizer(); err == nil { // run needs one
			f.FirstToken = func(ctx context.Context) (time.Duration, error) { return a.firstToken(ctx, path, f) }
		}
	}
	f.Device = f.attention.on(a.device(&f.device))
	step, end := a.progress("measuring", "rounds")
	defer end()
	f.Progress = step
	if err := errors.Join(f.attention.fit(f.Policy, m), a.keep(m, &f.KV, f.Exact)); err != nil {
		return err
	}
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
func (a *app) firstToken(ctx context.Context, path string, f *benchFlags) (time.Duration, error) {
	c := a.self(ctx, append([]string{"run", path, "-p", "Hello", "--greedy", "--max-tokens", "1", "--threads", strconv.Itoa(f.Threads)}, f.device.args()...)...)
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

// set returns the kernels of --level.
func (f *benchFlags) set() (*kernels.Set, error) {
	if f.Level == "" {
		return kernels.Best(), nil
	}
	level, err := kernels.ParseLevel(f.Level)
	if err != nil {
		return nil, err
	}
	return kernels.ForLevel(level)
}

// threads returns the number of --threads.
func (f *benchFlags) threads() int {
	if f.Threads == 0 {
		return goruntime.GOMAXPROCS(0)
	}
	return f.Threads
}

// benchKernels times kernels and prints each as soon as it is done.
func (a *app) benchKernels(ctx context.Context, f *benchFlags) error {
	set, err := f.set()
	if err != nil {
		return err
	}
	o := bench.KernelOptions{Threads: f.threads(), Repeat: f.Repeat, Shapes: bench.Shapes()}
	if len(f.shapes) > 0 {
		o.Shapes = nil
	}
	for _, text := range f.shapes {
		s, err := bench.ParseShape(text)
		if err != nil {
			return &usageError{err: err}
		}
		o.Shapes = append(o.Shapes, s)
	}
	all := []bench.Kernel{}
	const line = "%-10s %-41s %3s %8s %-8s %s\n" // spreads are in the JSON
	if !f.json {
		fmt.Fprintf(a.out, line, "kernel", "shape", "thr", "median", "", "share of the limit")
	}
	o.Done = func(k bench.Kernel) {
		if f.json {
			all = append(all, k)
			return
		}
		share := "-" // this level has no such multiplication
		if k.Share > 0 {
			share = fmt.Sprintf("%.1f %% of %s %s", 100*k.Share, figure(k.Limit.Median), k.Bound)
		}
		fmt.Fprintf(a.out, line, k.Kernel, k.Shape, strconv.Itoa(k.Threads), figure(k.Rate.Median), k.Unit, share)
	}
	if err := bench.Kernels(ctx, set, o); err != nil {
		return err
	}
	if f.json {
		return printJSON(a.out, all)
	}
	return nil
}

// probe prints the machine's profile.
func (a *app) probe(ctx context.Context, f *benchFlags) error {
	set, err := f.set()
	if err != nil {
		return err
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
	threads := f.threads()
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
