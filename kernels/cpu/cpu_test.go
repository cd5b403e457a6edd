package cpu_test

import (
	"runtime"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/kerneltest"
)

// backend gives a level's kernels to the common table.
func backend(s *cpu.Set) kerneltest.Backend { return kerneltest.Processor(s) }

// family lists the levels of the architecture that this was built for.
func family() []cpu.Level {
	if runtime.GOARCH == "arm64" {
		return []cpu.Level{cpu.LevelGeneric, cpu.LevelNEON, cpu.LevelDotProd}
	}
	return []cpu.Level{cpu.LevelGeneric, cpu.LevelAVX2, cpu.LevelAVX512}
}

// eachLevel runs a test for every level of the family, skipping by name those
// that this machine or build lacks.
func eachLevel(t *testing.T, f func(t *testing.T, s *cpu.Set)) {
	for _, l := range family() {
		t.Run(l.String(), func(t *testing.T) {
			s, err := cpu.ForLevel(l)
			if err != nil {
				t.Skip(err)
			}
			f(t, s)
		})
	}
}

func TestKernels(t *testing.T) {
	eachLevel(t, func(t *testing.T, s *cpu.Set) { kerneltest.Test(t, backend(s)) })
}

func BenchmarkKernels(b *testing.B) {
	for _, l := range cpu.Levels() {
		s, err := cpu.ForLevel(l)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(l.String(), func(b *testing.B) { kerneltest.Bench(b, backend(s)) })
	}
}
