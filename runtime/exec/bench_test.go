package exec

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// benchModel opens what NSTF_BENCH names, or base-llama in NSTF_SHARED, with
// keys and values as NSTF_BENCH_KV says, and makes n tokens.
func benchModel(b *testing.B, n int) (*Executor, []int32) {
	path := os.Getenv("NSTF_BENCH")
	if path == "" {
		path = filepath.Join(shared(b), "base-llama")
	}
	e := open(b, path, Options{KV: os.Getenv("NSTF_BENCH_KV")})
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(int64(i*7919+13) % e.Graph().Vocab)
	}
	return e, ids
}

// BenchmarkDecode reports tokens/s behind some contexts, within 64 tokens.
func BenchmarkDecode(b *testing.B) {
	for _, n := range []int{64, 512, 1984} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			e, ids := benchModel(b, n+64)
			s := sequence(b, e)
			if err := s.Prefill(context.Background(), ids[:n], nil); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if s.Len() == n+64 {
					s.Truncate(n)
				}
				if _, err := s.Step(ids[s.Len()]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// BenchmarkPrefill reports tokens/s of a prompt, the last row's logits
// included.
func BenchmarkPrefill(b *testing.B) {
	for _, n := range []int{512, 2048} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			e, ids := benchModel(b, n)
			s := sequence(b, e)
			for b.Loop() {
				s.Reset()
				if _, err := s.PrefillLast(context.Background(), ids); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*len(ids))/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// BenchmarkAllLogits is BenchmarkPrefill of 512 with the logits of every token, as
// eval asks for them.
func BenchmarkAllLogits(b *testing.B) {
	e, ids := benchModel(b, 512)
	s := sequence(b, e)
	for b.Loop() {
		s.Reset()
		if err := s.Prefill(context.Background(), ids, func(int, []float32) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*len(ids))/b.Elapsed().Seconds(), "tokens/s")
}
