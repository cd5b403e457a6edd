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
	// keptTries bounds how often a choice is measured that is to keep to a divergence.
	keptTries = 8
	// keptMemory is how many bytes logits take that others are compared with, or those of one
	// window.
	keptMemory = 1 << 30
)

// KeptLeast is how long a window of [Kept] is at least, so that most of what its end sees is
// codes.
const KeptLeast = 1024

// Kept measures what each block of a model loses where it alone keeps keys and values in
// each format, from half precision, behind windows of text, and chooses a format for each:
// those that lose the least in so many bits, or the fewest bits that lose no more on held-out
// windows than is allowed. The processor measures, in float32 throughout.
func Kept(ctx context.Context, m *model.Model, windows, held [][]int32, o KeptOptions) (*attention.Kept, error) {
	all := append(slices.Clone(windows), held...)
	for _, ids := range all {
		if len(ids) < KeptLeast {
			err := formats.Unsupportedf(m.Path, "", "choosing bits for keys and values by windows of %d tokens: %d are the least", len(ids), KeptLeast)
			err.Hint = "give longer windows (--ctx)"
			return nil, err
		}
	}
	if err := CheckKept(m, o.Bits); err != nil {
		return nil, err
	}
	k := &attention.Kept{Formats: keptFormats(), Blocks: KeptBlocks(m), Source: attention.Source{Model: filepath.Base(m.Path), Text: o.Text, TextHash: hashTokens(windows, held),
		Context: int64(longest(all)), Windows: int64(len(windows)), Held: int64(len(held)), Steps: keptRows}}
	w := &keptWalk{m: m, o: &o, k: k, set: cpu.Best(), rows: make([]float32, m.Graph.Vocab)}
	if len(held) == 0 {
		held = windows
	}
	tries := 1
	if o.Bits == 0 {
		tries = keptTries
	}
	w.total = len(windows)*len(k.Blocks)*(len(k.Formats)-1) + len(held)*tries
	if err := w.measure(ctx, windows); err != nil {
		return nil, err
	}
	return k, w.choose(ctx, held)
}

// CheckKept says whether a model keeps keys and values, and can in so many bits a number; 0:
// any.
func CheckKept(m *model.Model, bits float64) error {
	k := attention.Kept{Formats: keptFormats(), Blocks: KeptBlocks(m)}
	if len(k.Blocks) == 0 {
		return formats.Unsupportedf(m.Path, "graph.blocks", "bits for keys and values of a model that keeps none")
	}
	if _, fewest, _ := k.Choose(0); bits > 0 && bits < fewest*(1-1e-9) {
		return formats.Unsupportedf(m.Path, "", "keys and values in %g bits: %.3f are the fewest", bits, fewest)
	}
	return nil
}

// keptFormats are those that blocks are measured in.
func keptFormats() []string { return cpu.KVFormatNames()[cpu.KVF16:] }

// KeptBlocks lists the blocks of a model that keep keys and values, and what a number takes
// in each format that [Kept] measures; divergences are 0.
func KeptBlocks(m *model.Model) (out []attention.KeptBlock) {
	names := keptFormats()
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
	of          [][]int32   // windows whose logits want holds
	want        [][]float32 // of the first format
	done, total int         // windows that are run
}

// run gives each of the last positions' logits of windows, by formats of blocks. The row is
// good until each returns.
func (w *keptWalk) run(ctx context.Context, windows [][]int32, list string, each func(row []float32)) error {
	ex, seq, err := exec.Alone(w.m, exec.Options{Threads: w.o.threads(), Context: int64(longest(windows)), KV: list, Exact: true})
	if err != nil {
		return err
	}
	defer ex.Close()
	defer seq.Close()
	for _, ids := range windows {
		seq.Reset()
		n := len(ids) - keptRows
		if err := seq.Prefill(ctx, ids[:n], nil); err != nil {
			return err
		}
		err := seq.Prefill(ctx, ids[n:], func(_ int, row []float32) error {
			each(row)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// compare returns, for each list, the divergences of all positions where blocks are kept as
// it says. Windows are taken so many at a time that keptMemory holds their logits, which are
// those of the first format.
func (w *keptWalk) compare(ctx context.Context, windows [][]int32, lists ...string) ([]divergenceSum, error) {
	sums := make([]divergenceSum, len(lists))
	for group := range slices.Chunk(windows, max(1, keptMemory/(4*keptRows*len(w.rows)))) {
		if len(w.of) != len(group) || &w.of[0] != &group[0] { // else those of the time before are these
			w.of, w.want = nil, w.want[:0]
			if err := w.run(ctx, group, w.k.Formats[0], func(row []float32) { w.want = append(w.want, slices.Clone(row)) }); err != nil {
				return nil, err
			}
			w.of = group
		}
		for i, list := range lists {
			at := 0
			err := w.run(ctx, group, list, func(row []float32) {
				sums[i].add(divergence(w.set, w.rows, w.want[at], row), top(w.want[at]) == top(row))
				at++
			})
			if err != nil {
				return nil, err
			}
			if w.done += len(group); w.o.Progress != nil {
				w.o.Progress(int64(w.done), int64(w.total))
			}
		}
	}
	for _, s := range sums {
		if math.IsNaN(s.sum) || math.IsInf(s.sum, 0) {
			return nil, fmt.Errorf("calibrate: logits that are not finite")
		}
	}
	return sums, nil
}

// measure finds what each block loses alone.
func (w *keptWalk) measure(ctx context.Context, windows [][]int32) error {
	k := w.k
	var lists []string
	for i := range k.Blocks {
		for _, f := range k.Formats[1:] {
			list := slices.Repeat([]string{k.Formats[0]}, len(w.m.Graph.Blocks))
			list[k.Blocks[i].Block] = f
			lists = append(lists, strings.Join(list, ","))
		}
	}
	sums, err := w.compare(ctx, windows, lists...)
	if err != nil {
		return err
	}
	for i := range k.Blocks {
		for f := range k.Formats[1:] {
			k.Blocks[i].KLD[1+f] = sums[i*(len(k.Formats)-1)+f].mean()
		}
	}
	return nil
}

// choose finds formats and measures what they lose together. Of a divergence that is
// allowed, the bits are halved in between, keptTries times.
func (w *keptWalk) choose(ctx context.Context, held [][]int32) error {
	k := w.k
	try := func(bits float64) (chosen []int, p attention.KeptPoint, err error) {
		chosen, mean, _ := k.Choose(bits)
		k.Set(len(w.m.Graph.Blocks), chosen)
		s, err := w.compare(ctx, held, k.List())
		if err != nil {
			return nil, p, err
		}
		x := s[0].point(0)
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
