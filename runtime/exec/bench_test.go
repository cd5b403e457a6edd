package exec

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// benchModel opens what NSTF_BENCH names, or base-llama in NSTF_SHARED, with
// keys and values as NSTF_BENCH_KV says and by NSTF_BENCH_THREADS threads, and makes n
// tokens.
func benchModel(b *testing.B, n int) (*Executor, []int32) {
	path := os.Getenv("NSTF_BENCH")
	if path == "" {
		path = filepath.Join(shared(b), "base-llama")
	}
	threads, _ := strconv.Atoi(os.Getenv("NSTF_BENCH_THREADS"))
	e := open(b, path, Options{KV: os.Getenv("NSTF_BENCH_KV"), Threads: threads, Sequences: 16})
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

// BenchmarkSteps reports tokens/s of sequences that are decoded together behind 64
// tokens each: a server's steps.
func BenchmarkSteps(b *testing.B) {
	e, ids := benchModel(b, 128)
	for _, n := range []int{1, 2, 4, 8, 16} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var seqs []*Sequence
			for i := range n {
				s := sequence(b, e)
				if err := s.Prefill(context.Background(), ids[i:64], nil); err != nil {
					b.Fatal(err)
				}
				seqs = append(seqs, s)
			}
			const round = 8 // steps: the least time of a round is what others disturb least
			least := time.Duration(math.MaxInt64)
			for b.Loop() {
				for _, s := range seqs {
					s.Truncate(64 - n)
				}
				began := time.Now()
				for range round {
					if _, err := e.stepBatch(seqs, ids[:n]); err != nil {
						b.Fatal(err)
					}
				}
				least = min(least, time.Since(began))
			}
			b.ReportMetric(float64(least.Microseconds())/round, "µs/step")
			b.ReportMetric(float64(n*round)/least.Seconds(), "tokens/s")
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
