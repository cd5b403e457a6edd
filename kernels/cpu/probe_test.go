package cpu_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
)

// Every byte is read, and none behind the end.
func TestReadWords(t *testing.T) {
	eachLevel(t, func(t *testing.T, s *cpu.Set) {
		r := rand.New(rand.NewPCG(1, 2))
		for n := range 1200 {
			buf := make([]byte, n+9)
			for i := range buf {
				buf[i] = byte(r.Uint32())
			}
			p := buf[1 : n+1]
			var want uint64
			for i, b := range p {
				want ^= uint64(b) << (i % 8 * 8)
			}
			if got := s.ReadWords(p); got != want {
				t.Fatalf("%d bytes: %x, want %x", n, got, want)
			}
		}
	})
}

// The loops do what is counted: the sums are those of the products. It is also
// what holds the instructions that are spelled in bytes.
func TestPeaks(t *testing.T) {
	eachLevel(t, func(t *testing.T, s *cpu.Set) {
		kinds := map[string]bool{}
		for _, p := range s.Peaks() {
			if kinds[p.Kind()] || p.Ops() == 0 {
				t.Errorf("%s twice, or with %d operations", p.Kind(), p.Ops())
			}
			kinds[p.Kind()] = true
			for _, rounds := range []int{0, 1, 7, 1000} {
				if got, want := p.Run(rounds), float64(rounds)*float64(p.Ops())/2; got != want {
					t.Errorf("%s: %d rounds sum to %g, want %g", p.Kind(), rounds, got, want)
				}
			}
		}
		t.Logf("%v", kinds)
		if !kinds[cpu.PeakF32] {
			t.Error("no float32 loop")
		}
	})
}

func BenchmarkReadWords(b *testing.B) {
	p := make([]byte, 256<<20)
	for i := 0; i < len(p); i += 8 {
		binary.LittleEndian.PutUint64(p[i:], uint64(i))
	}
	for _, l := range cpu.Levels() {
		s, err := cpu.ForLevel(l)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(l.String(), func(b *testing.B) {
			b.SetBytes(int64(len(p)))
			for b.Loop() {
				s.ReadWords(p)
			}
		})
	}
}

func BenchmarkPeaks(b *testing.B) {
	for _, l := range cpu.Levels() {
		s, err := cpu.ForLevel(l)
		if err != nil {
			b.Fatal(err)
		}
		for _, p := range s.Peaks() {
			b.Run(l.String()+"/"+p.Kind(), func(b *testing.B) {
				for b.Loop() {
					p.Run(1000)
				}
				b.ReportMetric(float64(b.N)*1000*float64(p.Ops())/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
