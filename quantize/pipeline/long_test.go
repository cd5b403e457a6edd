package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/inspect"
	"github.com/nstf/nstf/quantize/pipeline"
)

// What was measured for long contexts before an interruption is not measured again, and the
// package is that of a run that nobody interrupted; with other windows nothing is taken over.
func TestLongResumed(t *testing.T) {
	m := open(t, "llama-31")
	ids := slices.Concat(windows(m.Graph.Vocab, 48)...)
	request := func(path string, more int) pipeline.Request {
		w := [][]int32{ids[:1060], ids[1060:2120]}
		return pipeline.Request{Out: atomicfile.Scratch(path), Plan: planned(t, m, "q8_0"), Windows: windows(m.Graph.Vocab, 2), Held: windows(m.Graph.Vocab, 1), Resume: true,
			Long: &pipeline.Long{Text: "ids", Kept: w[:1], KeptHeld: w[1:], Bits: 9, Windows: w[:1], Held: w[1:], Steps: 2 + more, Pages: []float64{0.5}, LayerPages: 0.5}}
	}
	dir := t.TempDir()
	whole, parts := filepath.Join(dir, "whole.nstf"), filepath.Join(dir, "parts.nstf")
	out, err := pipeline.Quantize(t.Context(), m, request(whole, 0))
	if err != nil {
		t.Fatal(err)
	}
	if k := out.Kept; !(k.Measured.Bits <= 9 && k.Measured.KLD > 0) || len(out.Policy.Measured) != 1 || len(out.Ledger.Layers) != len(m.Graph.Blocks)+1 {
		t.Errorf("%+v, %+v, %d layers", k.Measured, out.Policy.Measured, len(out.Ledger.Layers))
	}
	if p, err := inspect.Attention(whole); err != nil || !bytes.Equal(p.Encode(), out.Policy.Encode()) {
		t.Errorf("the package's policy is another (%v)", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	q := request(parts, 0)
	q.Progress = func(what, _ string) (func(done, total int64), func()) {
		if what == "measuring heads" {
			cancel()
		}
		return func(int64, int64) {}, func() {}
	}
	if _, err := pipeline.Quantize(ctx, m, q); !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v", err)
	}
	if _, err := pipeline.Quantize(t.Context(), m, request(parts, 1)); err == nil || !strings.Contains(err.Error(), "long contexts") {
		t.Errorf("another measurement goes on there: %v", err)
	}
	q = request(parts, 0)
	var did []string
	q.Progress = func(what, _ string) (func(done, total int64), func()) {
		did = append(did, what)
		return func(int64, int64) {}, func() {}
	}
	if _, err := pipeline.Quantize(t.Context(), m, q); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(did, "measuring keys and values") || !slices.Contains(did, "measuring heads") {
		t.Errorf("resumed: %v", did)
	}
	a, err := os.ReadFile(whole)
	b, err2 := os.ReadFile(parts)
	if err != nil || err2 != nil || !bytes.Equal(a, b) {
		t.Errorf("the package of a run that was interrupted differs (%v, %v)", err, err2)
	}
}
