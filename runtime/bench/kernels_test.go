package bench

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/kerneltest"
)

func TestShape(t *testing.T) {
	for _, s := range append(Shapes(), Shape{7, 33, 256}) {
		if got, err := ParseShape(s.String()); err != nil || got != s {
			t.Errorf("%v reads as %v, %v", s, got, err)
		}
	}
	for _, text := range []string{"", "1", "1x2", "1x2x3x4", "0x1x1", "-1x1x1", "1x1xk", "1x262145x1", "1x262144x262144", "262144x262144x1"} {
		var unsupported *formats.UnsupportedError
		if s, err := ParseShape(text); !errors.As(err, &unsupported) {
			t.Errorf("%q reads as %v, %v", text, s, err)
		}
	}
}

func TestKernels(t *testing.T) {
	if testing.Short() {
		t.Skip("validating and timing every kernel takes a while")
	}
	seen := map[string]Kernel{}
	o := KernelOptions{Threads: 2, Repeat: 1, Sample: time.Millisecond, Shapes: []Shape{{1, 70, 256}, {17, 70, 288}},
		Done: func(k Kernel) { seen[k.Kernel+" "+k.Shape] = k }}
	if err := Kernels(context.Background(), cpu.Best(), o); err != nil {
		t.Fatal(err)
	}
	for _, name := range cpu.Integers() {
		few, ok := seen[name+" 1x70x256"]
		if !ok || few.Unit != "GB/s" || few.Bound != "read" || few.Threads != 2 {
			t.Errorf("%s: %+v", name, few)
		}
		many, ok := seen[name+" 17x70x288"]
		if fits := cpu.Best().Integer(name).Fits(288); ok != fits {
			t.Errorf("%s at K=288 is timed: %v, it fits: %v", name, ok, fits)
		} else if ok && (many.Unit != "GFLOP/s" || many.Bound != cpu.PeakInt8) {
			t.Errorf("%s: %+v", name, many)
		}
	}
	for _, c := range kerneltest.Codings() {
		if k := seen[c.Name+" 1x70x256"]; k.Unit != "GB/s" || k.Threads != 2 {
			t.Errorf("%s: %+v", c.Name, k)
		}
	}
	for _, name := range []string{"Gemm T=64,N=2048,K=2048", "MatVecF32 256MiB", "RMSNorm 4096"} {
		if k := seen[name]; k.Threads != 1 {
			t.Errorf("%s: %+v of %d", name, k, len(seen))
		}
	}
	kinds := []string{boundRead}
	for _, p := range cpu.Best().Peaks() {
		kinds = append(kinds, p.Kind())
	}
	for name, k := range seen {
		positive(t, name, k.Rate)
		if slices.Contains(kinds, k.Bound) {
			positive(t, name+"'s limit", k.Limit)
			near(t, name, k.Share, k.Rate.Median/k.Limit.Median)
		}
	}
}

func TestKernelsEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Kernels(ctx, cpu.Best(), KernelOptions{Threads: 1, Repeat: 1, Shapes: Shapes()}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
