package exec

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// benchModel opens what NSTF_BENCH names, or base-llama in NSTF_SHARED.
func benchModel(b *testing.B) (*Executor, []int32) {
	path := os.Getenv("NSTF_BENCH")
	if path == "" {
		path = filepath.Join(shared(b), "base-llama")
	}
	e := open(b, path, Options{})
	ids := make([]int32, 512)
	for i := range ids {
		ids[i] = int32(int64(i*7919+13) % e.Graph().Vocab)
	}
	return e, ids
}

// BenchmarkDecode reports tokens/s behind a context of 128 to 512 tokens.
func BenchmarkDecode(b *testing.B) {
	e, ids := benchModel(b)
	s := sequence(b, e)
	if err := s.Prefill(context.Background(), ids[:128], nil); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if s.Len() == 512 {
			s.Truncate(128)
		}
		if _, err := s.Step(ids[s.Len()]); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
}

// BenchmarkPrefill reports tokens/s of a prompt of 512 tokens, the last row's
// logits included.
func BenchmarkPrefill(b *testing.B) {
	e, ids := benchModel(b)
	s := sequence(b, e)
	for b.Loop() {
		s.Reset()
		if _, err := s.PrefillLast(context.Background(), ids); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*len(ids))/b.Elapsed().Seconds(), "tokens/s")
}

// BenchmarkAllLogits is BenchmarkPrefill with the logits of every token, as
// eval asks for them.
func BenchmarkAllLogits(b *testing.B) {
	e, ids := benchModel(b)
	s := sequence(b, e)
	for b.Loop() {
		s.Reset()
		if err := s.Prefill(context.Background(), ids, func(int, []float32) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*len(ids))/b.Elapsed().Seconds(), "tokens/s")
}
