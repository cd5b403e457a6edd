package cpu

import (
	"fmt"
	"testing"
)

// A step of 32 heads of 128 x 128, as a layer of Qwen3.5-9B has: 2 MiB of memory.
func BenchmarkDeltaStep(b *testing.B) {
	const d, heads = 128, 32
	memory := make([]float32, heads*d*d)
	q, k, v := make([]float32, d), make([]float32, d), make([]float32, d)
	fade := make([]float32, d)
	for i := range fade {
		fade[i] = 0.9
	}
	for i := range q {
		q[i], k[i] = 1/float32(d+i), 1/float32(2*d-i)
	}
	for _, l := range Levels() {
		s := newSet(l)
		for _, rows := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/rows=%d", l, rows), func(b *testing.B) {
				for b.Loop() {
					for h := range heads {
						for range rows {
							for i := range v {
								v[i] = float32(i)
							}
							s.DeltaStep(memory[h*d*d:(h+1)*d*d], q, k, v, 0.9, 0.5)
						}
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*heads*rows), "ns/step")
			})
		}
		b.Run(fmt.Sprintf("%s/by channel", l), func(b *testing.B) {
			for b.Loop() {
				for h := range heads {
					for i := range v {
						v[i] = float32(i)
					}
					s.DeltaStepByChannel(memory[h*d*d:(h+1)*d*d], q, k, v, fade, 0.5)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*heads), "ns/step")
		})
	}
	s := newSet(Levels()[len(Levels())-1])
	b.Run("of rows", func(b *testing.B) {
		for b.Loop() {
			s.deltaStepOfRows(memory[:d*d], q, k, v, 0.9, 0.5)
		}
	})
}
