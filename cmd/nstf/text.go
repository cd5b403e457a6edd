package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats/corpus"
	"github.com/nstf/nstf/formats/imatrix"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/stats"
)

// textFlags say what text a model is calibrated on.
type textFlags struct {
	path         string
	samples, ctx int
	seed         int64
}

func (f *textFlags) add(s *pflag.FlagSet) {
	s.StringVar(&f.path, "calib", "", "text to calibrate on, .txt, .jsonl or .parquet; default: a small mixed text")
	s.IntVar(&f.samples, "samples", 128, "windows of the text; 0: all")
	s.IntVar(&f.ctx, "ctx", 512, "tokens of a window")
	s.Int64Var(&f.seed, "seed", 1, "choice of windows and of rotations")
}

func (f *textFlags) check() error {
	if f.seed < 0 || f.samples < 0 || f.ctx < 2 {
		return usagef("--seed and --samples are not negative, and --ctx is at least 2")
	}
	return nil
}

// name is what the text is called in a ledger.
func (f *textFlags) name() string {
	if f.path == "" {
		return corpus.DefaultName
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
	return []nstf.Source{{Role: "text", Name: f.name(), Path: f.path}}
}

// windows cuts the text, or the default one, and holds some of it out.
func (a *app) windows(m *model.Model, f *textFlags) (fit, held [][]int32, err error) {
	if f.path == "" {
		a.warn("calibrating on a small mixed text: --calib FILE with text like what the model will read serves it better")
	}
	all, err := f.cut(m, f.path, f.samples)
	if err != nil {
		return nil, nil, err
	}
	fit, held = calibrate.Split(all)
	return fit, held, nil
}

// other cuts all of another text.
func (f *textFlags) other(m *model.Model, path string) ([][]int32, error) { return f.cut(m, path, 0) }

func (f *textFlags) cut(m *model.Model, path string, samples int) ([][]int32, error) {
	texts, err := corpus.Default()
	if path != "" {
		texts, err = corpus.ReadSamples(path)
	}
	if err != nil {
		return nil, err
	}
	tok, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
	return calibrate.Windows{Context: f.ctx, Samples: samples, Seed: uint64(f.seed)}.CutSamples(tok, cmp.Or(path, corpus.DefaultName), texts)
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
func openStats(path string, m *model.Model) (*stats.File, error) {
	switch filepath.Ext(path) {
	case ".dat", ".gguf", ".imatrix":
		f, err := imatrix.Open(path)
		if err != nil {
			return nil, err
		}
		return f.Stats(m)
	}
	return stats.Open(path)
}
