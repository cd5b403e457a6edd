package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	kernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/bench"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/place"
)

// A tuning is what bench --tune prints as JSON.
type tuning struct {
	Trials []bench.Trial `json:"trials"`
	Best   kernels.Tiles `json:"best"`
	Kept   string        `json:"kept"` // file
}

// tune looks for the best tiles and keeps them.
func (a *app) tune(ctx context.Context, f *benchFlags) error {
	set := kernels.Best()
	m := place.Discover(set)
	dir, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("no folder to keep the result in: %w", err)
	}
	o := bench.TuneOptions{Threads: f.threads(), Repeat: f.Repeat}
	o.Prompt, o.Token = bench.TuneShapes()
	var r tuning
	const line = "%-7s %7s %6s %10s  %s\n"
	if !f.json {
		fmt.Fprintf(a.out, line, "product", "tokens", "rows", "bytes", "rate")
	}
	units := map[string]string{"prompt": "GFLOP/s", "token": "GB/s"}
	o.Done = func(t bench.Trial) {
		if r.Trials = append(r.Trials, t); !f.json {
			fmt.Fprintf(a.out, line, t.What, fmt.Sprint(t.Tiles.BlockTokens), fmt.Sprint(t.Tiles.PartRows), fmt.Sprint(t.Tiles.PartBytes), spread(t.Rate)+" "+units[t.What])
		}
	}
	if r.Best, err = bench.Tune(ctx, set, m.UsualTiles(), o); err != nil {
		return err
	}
	dir = filepath.Join(dir, "nstf")
	r.Kept = m.TilesPath(dir)
	if err := place.SaveTiles(dir, &m, r.Best); err != nil {
		return err
	}
	if f.json {
		return printJSON(a.out, r)
	}
	fmt.Fprintf(a.out, line, "best", fmt.Sprint(r.Best.BlockTokens), fmt.Sprint(r.Best.PartRows), fmt.Sprint(r.Best.PartBytes), "kept for later runs")
	return nil
}

// tuneGPU looks for the divisions of a GPU's work that are fastest on a model.
func (a *app) tuneGPU(ctx context.Context, path string, f *benchFlags) error {
	m, err := checkpoint.Open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	var all []device.Tuned
	const line = "%6s %10s %10s  %s\n"
	f.Device, f.FirstToken = a.device(&f.device), nil
	f.Tuned = func(t device.Tuned) {
		if all = append(all, t); f.json {
			return
		}
		if len(all) == 1 {
			fmt.Fprintf(a.out, line, "tokens", "usual us", "best us", "operation: choice")
		}
		fmt.Fprintf(a.out, line, strconv.Itoa(t.Rows), figure(t.Usual), figure(t.Best), formats.Printable(t.Operation+": "+t.Choice))
	}
	r, err := bench.Run(ctx, m, f.Options)
	if err != nil {
		return err
	}
	if f.json {
		return printJSON(a.out, struct {
			Device     string         `json:"device"`
			Operations []device.Tuned `json:"operations"`
			Kept       string         `json:"kept"` // file
		}{r.Device, all, r.Tuning})
	}
	fmt.Fprintf(a.out, "kept for later runs on %s\n", formats.Printable(r.Device))
	return nil
}
