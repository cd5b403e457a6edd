package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/corpus"
	"github.com/nstf/nstf/formats/imatrix"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/quantize/pipeline"
)

// textFlags say what text a model is calibrated on.
type textFlags struct {
	path         string
	samples, ctx int
	seed         int64
	set          *pflag.FlagSet // that they were given in
	read         *corpus.Text   // nil before it was read
}

func (f *textFlags) add(s *pflag.FlagSet) {
	f.set = s
	s.StringVar(&f.path, "calib", "", "text to calibrate on: .txt, .jsonl, .parquet, a pipe, or -; default: a mixed text")
	s.IntVar(&f.samples, "samples", 128, "windows of the text; 0: all")
	s.IntVar(&f.ctx, "ctx", defaultWindow, "tokens of a window; unless given, no more than the model was made for")
	s.Int64Var(&f.seed, "seed", 1, "choice of windows and of rotations")
}

// maxSeed is what every reader of a package's JSON can tell from its neighbours.
const maxSeed = 1<<53 - 1

// maxTokens bounds windows and their tokens: products of two stay far inside an int.
const maxTokens = 1 << 24

func (f *textFlags) check() error {
	if f.seed < 0 || f.seed > maxSeed || f.samples < 0 || f.ctx < 2 || f.samples > maxTokens || f.ctx > maxTokens {
		return usagef("--seed is in 0 to %d, --samples in 0 to %d, and --ctx in 2 to %d", int64(maxSeed), maxTokens, maxTokens)
	}
	return nil
}

// defaultWindow is how many tokens a window has where nobody says.
const defaultWindow = 512

// fitTo makes windows no longer than what the model was made for, or warns where
// longer ones were asked for.
func (f *textFlags) fitTo(a *app, m *model.Model) error {
	most := int(m.Graph.Context)
	switch {
	case f.ctx <= most:
	case !f.set.Changed("ctx"):
		f.ctx = max(most, 2)
	case m.Graph.Embed.Positions != "":
		e := formats.Unsupportedf(m.Path, m.Graph.Embed.Positions, "windows of %d tokens: the model has learned %d positions", f.ctx, most)
		e.Hint = fmt.Sprintf("give --ctx %d or less", most)
		return e
	default:
		a.warn(fmt.Sprintf("--ctx %d is beyond the %d positions that the model was made for", f.ctx, most))
	}
	return nil
}

// name is what the text is called in a ledger.
func (f *textFlags) name() string {
	if f.path == "" {
		return corpus.DefaultName
	}
	if f.path == corpus.Standard {
		return "standard input"
	}
	return filepath.Base(f.path)
}

// flags are those that decided something.
func (f *textFlags) flags() []string {
	return []string{fmt.Sprintf("--samples=%d", f.samples), fmt.Sprintf("--ctx=%d", f.ctx), fmt.Sprintf("--seed=%d", f.seed)}
}

// sources name the text's file; the default text has none.
func (f *textFlags) sources() []nstf.Source {
	if f.path == "" {
		return nil
	}
	if t := f.read; t != nil && t.Piped {
		return []nstf.Source{{Role: "text", Name: f.name(), Size: t.Size, Hash: t.Hash}}
	}
	return []nstf.Source{{Role: "text", Name: f.name(), Path: f.path}}
}

// windows cuts the text, or the default one, and holds some of it out.
func (a *app) windows(ctx context.Context, m *model.Model, f *textFlags) (fit, held [][]int32, err error) {
	if f.path == "" {
		a.warn("calibrating on a small mixed text: --calib FILE with text like what the model will read serves it better")
	}
	if err := f.fitTo(a, m); err != nil {
		return nil, nil, err
	}
	all, err := f.cut(ctx, a, m, f.path, f.samples)
	if err != nil {
		return nil, nil, err
	}
	fit, held = calibrate.Split(all)
	return fit, held, nil
}

// other cuts all of another text.
func (f *textFlags) other(ctx context.Context, a *app, m *model.Model, path string) ([][]int32, error) {
	return f.cut(ctx, a, m, path, 0)
}

// What is read of a text: so many bytes for each token that is wanted, and enough to
// choose from.
const (
	bytesForToken = 256
	leastText     = 4 << 20
)

func (f *textFlags) cut(ctx context.Context, a *app, m *model.Model, path string, samples int) ([][]int32, error) {
	texts, err := corpus.Default()
	if path != "" {
		var t *corpus.Text
		if t, err = a.loadText(path, int64(samples)*int64(f.ctx)); err == nil {
			texts = t.Samples
		}
		if path == f.path {
			f.read = t
		}
	}
	if err != nil {
		return nil, err
	}
	tok, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
	return calibrate.Windows{Context: f.ctx, Samples: samples, Seed: uint64(f.seed)}.CutSamples(ctx, tok, cmp.Or(path, corpus.DefaultName), texts)
}

// loadText reads as much of a text as so many tokens are chosen from, 0 all of it, from
// all parts of it where it is a file.
func (a *app) loadText(path string, tokens int64) (*corpus.Text, error) {
	want := corpus.Want{Spread: true, Input: a.in}
	if tokens > 0 {
		want.Most = max(bytesForToken*tokens, leastText)
	}
	t, err := corpus.Load(path, want)
	if err == nil && t.Invalid > 0 {
		a.warn(fmt.Sprintf("%s: %d sequences of bytes are not UTF-8, and are read as U+FFFD", path, t.Invalid))
	}
	return t, err
}

// parseSize reads "3.9GiB", "900MB", "4096".
func parseSize(s string) (int64, error) {
	units := []struct {
		name string
		size float64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1}}
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if n := v * u.size; err == nil && n >= 1 && n < 1<<62 {
			return int64(n), nil
		}
		break
	}
	return 0, fmt.Errorf("%q is no size: write 3.9GiB, 900MB or a number of bytes", s)
}

// openStats reads statistics: a .nstats file, or an importance matrix of
// llama.cpp (.dat or .gguf), which knows diagonals alone.
func (a *app) openStats(path string, m *model.Model) (*stats.File, error) {
	if err := noFolder(path); err != nil {
		return nil, err
	}
	switch filepath.Ext(path) {
	case ".dat", ".gguf", ".imatrix":
		f, err := imatrix.Open(path)
		if err != nil {
			return nil, err
		}
		s, err := f.Stats(m)
		if err == nil {
			a.warnMissing(path, m, s)
		}
		return s, err
	}
	s, err := stats.Open(path)
	if err != nil {
		return nil, err
	}
	if err := s.Check(m); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// noFolder refuses a folder where a file is read.
func noFolder(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return formats.Errorf(path, "", "a folder: give one file")
	}
	return nil
}

// warnMissing names inputs that an importance matrix of another program knows nothing
// of: it may be another model's.
func (a *app) warnMissing(path string, m *model.Model, s *stats.File) {
	missing := map[string]bool{}
	for i := range m.Graph.Blocks {
		for _, l := range m.Graph.Blocks[i].Linears() {
			if s.Inputs[l.Input] == nil {
				missing[l.Input] = true
			}
		}
	}
	if len(missing) > 0 {
		names := slices.Sorted(maps.Keys(missing))
		a.warn(fmt.Sprintf("%s says nothing of %d inputs of the blocks, such as %s: errors there count alike", path, len(names), names[0]))
	}
}

// enoughTokens is what predictions need. Of tiny-llama at 4 bits per weight, calibrated on 8,
// 16, 32, 64 and 128 windows of 512 tokens of which an eighth was held out, the prediction
// was 26, 15, 19, 11 and 3 % below what was measured on another text (docs/planning.md).
const enoughTokens = 24 << 10

// warnFew says when what will be predicted rests on few tokens; 0: it is not known on how
// many.
func (a *app) warnFew(tokens int64) {
	if tokens > 0 && tokens < enoughTokens {
		a.warn(fmt.Sprintf("%d tokens of calibration text are few: predicted divergences may be a third off; --samples 128 --ctx 512 is the default", tokens))
	}
}

// warnOtherWindows says when statistics are of the same text in other windows, of which
// some may be held out now.
func (a *app) warnOtherWindows(f *quantizeFlags, q *pipeline.Request) {
	s := q.Stats.Source
	if len(q.Held) > 0 && f.verify == "" && s.TextHash != "" && s.Text == f.text.name() && s.TextHash != stats.HashWindows(q.Windows) {
		a.warn(fmt.Sprintf("%s was measured on other windows of %s: what is held out may have been among them; "+
			"give both the same --ctx, --samples and --seed, or --verify-text here", f.stats, s.Text))
	}
}
