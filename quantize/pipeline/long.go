package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/attention"
	"github.com/nstf/nstf/formats/ledger"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/quantize/plan/planner"
)

// A Long says what a package carries for long contexts, which is measured of its own tensors,
// on the processor: how it keeps keys and values, then what its heads lose that read few
// pages of them, kept so. See [calibrate.Kept] and [calibrate.Attention].
type Long struct {
	Text           string    // that all windows were cut from
	Kept, KeptHeld [][]int32 // windows that bits are chosen by
	Bits, KLD      float64   // see [calibrate.KeptOptions]
	Windows, Held  [][]int32 // windows that heads are measured on; none: there is no policy
	Steps          int       // see [calibrate.AttentionOptions]
	Pages          []float64
	LayerPages     float64 // share of pages that the ledger's layers are shown at
}

// job says what decides the figures, for the journal.
func (l *Long) job() string {
	return fmt.Sprint(stats.HashWindows(l.Kept), stats.HashWindows(l.KeptHeld), l.Bits, l.KLD, stats.HashWindows(l.Windows), stats.HashWindows(l.Held), l.Steps, l.Pages)
}

// Files where a work folder keeps what was measured for long contexts.
const keptFile, policyFile = "kv.json", "attention.json"

// measureLong returns how a result keeps keys and values, and its policy of attention, nil
// where none was asked for. What an interrupted run measured is taken.
func (f *flow) measureLong(ctx context.Context, r *Result) (kept *attention.Kept, policy *attention.Policy, err error) {
	l := f.Long
	if l == nil {
		return nil, nil, nil
	}
	m := f.m.With(r.Tensors)
	o := calibrate.Options{Threads: f.Threads, Text: l.Text}
	if kept, err = read(ctx, f.work, keptFile, attention.ReadKept); err != nil {
		err = f.step("measuring keys and values", "windows", func(progress func(done, total int64)) (err error) {
			o.Progress = progress
			kept, err = calibrate.Kept(ctx, m, l.Kept, l.KeptHeld, calibrate.KeptOptions{Options: o, Bits: l.Bits, KLD: l.KLD})
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		if err := f.work.Write(ctx, keptFile, kept.Write); err != nil {
			return nil, nil, err
		}
		if kept, err = read(ctx, f.work, keptFile, attention.ReadKept); err != nil { // as a run that resumes reads it
			return nil, nil, err
		}
	}
	if len(l.Windows) == 0 {
		return kept, nil, nil
	}
	if policy, err = read(ctx, f.work, policyFile, attention.Read); err == nil {
		return kept, policy, nil
	}
	err = f.step("measuring heads", "runs", func(progress func(done, total int64)) (err error) {
		o.Progress = progress
		policy, err = calibrate.Attention(ctx, m, l.Windows, l.Held, calibrate.AttentionOptions{Options: o, KV: kept.List(), Steps: l.Steps, Pages: l.Pages})
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if err := f.work.Write(ctx, policyFile, policy.Write); err != nil {
		return nil, nil, err
	}
	policy, err = read(ctx, f.work, policyFile, attention.Read)
	return kept, policy, err
}

// longFiles are what a package carries of that.
func longFiles(kept *attention.Kept, policy *attention.Policy) (out []nstf.File) {
	if kept != nil {
		out = append(out, nstf.File{Name: nstf.KVFile, Data: kept.Encode()})
	}
	if policy != nil {
		out = append(out, nstf.File{Name: nstf.AttentionFile, Data: policy.Encode()})
	}
	return out
}

// Expected returns files of a model that take no less room than those that will be measured:
// figures are digits that do not compress.
func (l *Long) Expected(m *model.Model) []nstf.File {
	if l == nil {
		return nil
	}
	state := uint64(1)
	digits := func(n int) []float64 {
		out := make([]float64, n)
		for i := range out {
			state = state*6364136223846793005 + 1442695040888963407 // Knuth's MMIX
			out[i] = 1e-5 + float64(state>>33)/(1<<33)/500
		}
		return out
	}
	source := attention.Source{Model: filepath.Base(m.Path), Text: l.Text, TextHash: stats.HashWindows(l.Kept), Context: math.MaxInt32, Windows: math.MaxInt32, Held: math.MaxInt32, Steps: math.MaxInt32}
	k := &attention.Kept{Source: source, Formats: cpu.KVFormatNames()[cpu.KVF16:], Blocks: calibrate.KeptBlocks(m)}
	for i := range k.Blocks {
		k.Blocks[i].Bits, k.Blocks[i].KLD = digits(len(k.Formats)), digits(len(k.Formats))
	}
	for i := range m.Graph.Blocks {
		k.Chosen = append(k.Chosen, k.Formats[i*7%len(k.Formats)])
	}
	d := digits(4)
	k.Measured = attention.KeptPoint{Bits: d[0], KLD: d[1], SE: d[2], Top1: d[3]}
	if len(l.Windows) == 0 {
		return longFiles(k, nil)
	}
	p := &attention.Policy{Source: source, Grid: calibrate.AttentionGrid()}
	for b, heads := range calibrate.PolicyHeads(m) {
		for h := range heads {
			p.Heads = append(p.Heads, attention.Head{Block: int64(b), Head: h, KLD: digits(len(p.Grid)), Prompt: digits(len(p.Grid))})
		}
	}
	for _, x := range l.Pages {
		d := digits(4)
		p.Measured = append(p.Measured, attention.Point{Pages: x, Read: d[0], KLD: d[1], SE: d[2], Top1: d[3]})
		d = digits(4)
		p.Prompts = append(p.Prompts, attention.Point{Pages: x, Read: d[0], KLD: d[1], SE: d[2], Top1: d[3]})
	}
	return longFiles(k, p)
}

// maxLayers is the most bytes that a file of layers holds.
const maxLayers = 64 << 20

// layers returns what methods would save in each layer beside a plan, nil where nobody
// knows: from a file of the work folder where they were found before.
func (f *flow) layers(ctx context.Context, p *plan.Plan) (out []ledger.Layer, err error) {
	if f.Layers == nil || f.Plan != nil || f.MaxDrift > 0 { // a plan that was made again has other losses
		if f.Long == nil {
			return nil, nil
		}
		return planner.Rows(f.m, p), nil
	}
	file := "layers-" + hashOf(p.Encode()) + ".json"
	data, err := read(ctx, f.work, file, func(path string) ([]byte, error) { return formats.ReadFile(path, maxLayers, "what layers would save") })
	if err == nil && json.Unmarshal(data, &out) == nil {
		return out, nil
	}
	if out, err = f.Layers(ctx, f.stats, p); err != nil {
		return nil, err
	}
	if data, err = json.Marshal(out); err != nil {
		return nil, err
	}
	return out, f.work.Write(ctx, file, func(to *atomicfile.Output) error { return to.WriteFile(data) })
}
