package calibrate

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/attention"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/exec"
)

// KeptOptions say how bits of keys and values are chosen.
type KeptOptions struct {
	Options
	// Bits are those of a number, scales included, at most, in the mean of all blocks; 0:
	// what KLD says.
	Bits float64
	// KLD is the mean KL divergence from half precision that is allowed on windows that were
	// held out, in nats; where there are none on the others.
	KLD float64
}

const (
	// keptRows is how many positions at the end of a window are compared.
	keptRows = 256
	// keptLeast is how long a window is at least, so that most of what its end sees is codes.
	keptLeast = 1024
	// keptTries bounds how often a choice is measured that is to keep to a divergence.
	keptTries = 8
)

// Kept measures what each block of a model loses where it alone keeps keys and values in
// each format, from half precision, behind windows of text, and chooses a format for each:
// those that lose the least in so many bits, or the fewest bits that lose no more on held-out
// windows than is allowed. The processor measures, in float32 throughout.
func Kept(ctx context.Context, m *model.Model, windows, held [][]int32, o KeptOptions) (*attention.Kept, error) {
	all := append(slices.Clone(windows), held...)
	for _, ids := range all {
		if len(ids) < keptLeast {
			err := formats.Unsupportedf(m.Path, "", "choosing bits for keys and values by windows of %d tokens: %d are the least", len(ids), keptLeast)
			err.Hint = "give longer windows (--ctx)"
			return nil, err
		}
	}
	k := &attention.Kept{Formats: cpu.KVFormatNames()[cpu.KVF16:], Source: attention.Source{Model: filepath.Base(m.Path), Text: o.Text, TextHash: hashTokens(windows, held),
		Context: int64(longest(all)), Windows: int64(len(windows)), Held: int64(len(held)), Steps: keptRows}}
	k.Blocks = keptBlocks(m, k.Formats)
	if len(k.Blocks) == 0 {
		return nil, formats.Unsupportedf(m.Path, "graph.blocks", "bits for keys and values of a model that keeps none")
	}
	if _, fewest, _ := k.Choose(0); o.Bits > 0 && o.Bits < fewest*(1-1e-9) {
		return nil, formats.Unsupportedf(m.Path, "", "keys and values in %g bits: %.3f are the fewest", o.Bits, fewest)
	}
	w := &keptWalk{m: m, o: &o, k: k, set: cpu.Best(), rows: make([]float32, m.Graph.Vocab)}
	w.total = 2 + len(k.Blocks)*(len(k.Formats)-1)
	if err := w.measure(ctx, windows); err != nil {
		return nil, err
	}
	if len(held) == 0 {
		held = windows
	}
	return k, w.choose(ctx, held)
}

// keptBlocks lists the blocks that keep keys and values, and what a number takes.
func keptBlocks(m *model.Model, names []string) (out []attention.KeptBlock) {
	for i := range m.Graph.Blocks {
		b := &m.Graph.Blocks[i]
		heads, key, value := int64(1), 0, 0
		switch {
		case b.Attn != nil && b.Attn.KVFrom == nil:
			heads, key, value = b.Attn.KVHeads, int(b.Attn.HeadDim), int(b.Attn.HeadDim)
		case b.Latent != nil:
			key, value = int(b.Latent.KeyDim()), int(b.Latent.Rank)
		default:
			continue
		}
		k := attention.KeptBlock{Block: int64(i), Numbers: heads * int64(key+value), KLD: make([]float64, len(names))}
		for f := range names {
			k.Bits = append(k.Bits, 8*float64((cpu.KVF16+cpu.KVFormat(f)).BlockBytes(key, value))/float64(cpu.KVPositions*(key+value)))
		}
		out = append(out, k)
	}
	return out
}

// A keptWalk is the measuring of one model.
type keptWalk struct {
	m           *model.Model
	o           *KeptOptions
	k           *attention.Kept
	set         *cpu.Set
	rows        []float32
	done, total int
}

// logits returns those of the last positions of each window, by formats of blocks.
func (w *keptWalk) logits(ctx context.Context, windows [][]int32, list string) ([][][]float32, error) {
	ex, err := exec.New(w.m, exec.Options{Threads: w.o.threads(), Context: int64(longest(windows)), KV: list, Exact: true})
	if err != nil {
		return nil, err
	}
	defer ex.Close()
	seq, err := ex.NewSequence()
	if err != nil {
		return nil, err
	}
	defer seq.Close()
	var out [][][]float32
	for _, ids := range windows {
		seq.Reset()
		n := len(ids) - keptRows
		if err := seq.Prefill(ctx, ids[:n], nil); err != nil {
			return nil, err
		}
		var rows [][]float32
		err := seq.Prefill(ctx, ids[n:], func(_ int, row []float32) error {
			rows = append(rows, slices.Clone(row))
			return nil
		})
		if err != nil {
			return nil, err
		}
		out = append(out, rows)
	}
	if w.done++; w.o.Progress != nil {
		w.o.Progress(int64(w.done), int64(w.total))
	}
	return out, nil
}

// compare returns the divergences of all positions where blocks are kept as a list says.
func (w *keptWalk) compare(ctx context.Context, windows [][]int32, want [][][]float32, list string) (s divergenceSum, err error) {
	got, err := w.logits(ctx, windows, list)
	if err != nil {
		return s, err
	}
	for i := range want {
		for j, row := range want[i] {
			s.add(divergence(w.set, w.rows, row, got[i][j]), top(row) == top(got[i][j]))
		}
	}
	if math.IsNaN(s.sum) || math.IsInf(s.sum, 0) {
		return s, fmt.Errorf("calibrate: logits that are not finite")
	}
	return s, nil
}

// measure finds what each block loses alone.
func (w *keptWalk) measure(ctx context.Context, windows [][]int32) error {
	k := w.k
	want, err := w.logits(ctx, windows, k.Formats[0])
	if err != nil {
		return err
	}
	for i := range k.Blocks {
		b := &k.Blocks[i]
		for f := 1; f < len(k.Formats); f++ {
			list := slices.Repeat([]string{k.Formats[0]}, len(w.m.Graph.Blocks))
			list[b.Block] = k.Formats[f]
			s, err := w.compare(ctx, windows, want, strings.Join(list, ","))
			if err != nil {
				return err
			}
			b.KLD[f] = s.mean()
		}
	}
	return nil
}

// choose finds formats and measures what they lose together. Of a divergence that is
// allowed, the bits are halved in between, keptTries times.
func (w *keptWalk) choose(ctx context.Context, held [][]int32) error {
	k := w.k
	want, err := w.logits(ctx, held, k.Formats[0])
	if err != nil {
		return err
	}
	try := func(bits float64) (chosen []int, p attention.KeptPoint, err error) {
		chosen, mean, _ := k.Choose(bits)
		k.Set(len(w.m.Graph.Blocks), chosen)
		s, err := w.compare(ctx, held, want, k.List())
		if err != nil {
			return nil, p, err
		}
		x := s.point(0)
		return chosen, attention.KeptPoint{Bits: mean, KLD: x.KLD, SE: x.SE, Top1: x.Top1}, nil
	}
	if w.o.Bits > 0 {
		chosen, p, err := try(w.o.Bits)
		if err != nil {
			return err
		}
		k.Set(len(w.m.Graph.Blocks), chosen)
		k.Measured = p
		return nil
	}
	high := k.Blocks[0].Bits[0]
	for i := range k.Blocks {
		high = max(high, k.Blocks[i].Bits[0])
	}
	w.total += keptTries
	low, best := 0., make([]int, len(k.Blocks))
	k.Measured = attention.KeptPoint{Bits: high, Top1: 1}
	for range keptTries {
		bits := (low + high) / 2
		chosen, p, err := try(bits)
		if err != nil {
			return err
		}
		if p.KLD > w.o.KLD {
			low = bits
			continue
		}
		best, k.Measured, high = chosen, p, min(bits, p.Bits)
	}
	k.Set(len(w.m.Graph.Blocks), best)
	return nil
}
