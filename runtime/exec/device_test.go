package exec

import (
	"errors"
	"flag"
	"iter"
	"path/filepath"
	"testing"

	"github.com/nstf/nstf/runtime/gpu"
	"github.com/nstf/nstf/runtime/place"
)

// onDevice is where the tests' models run. The tests of a GPU are these tests:
//
//	go test ./runtime/exec -device hip
var (
	onDevice  = flag.String("device", "cpu", "device that the models of the tests run on")
	onLevel   = flag.String("level", "", "SIMD level of the processor's kernels; default: the best this machine runs")
	kernels   = flag.String("kernels", "", "folder that keeps kernels which a GPU needs; default: each test compiles its own")
	partsFlag = flag.Int("parts", 1, "of so many parts of each list of graphs, checkpoints and codings, ...")
	partFlag  = flag.Int("part", 0, "... run this one, from 0 on, and the first of every list")
)

// request returns the device asked for.
func request(t testing.TB) place.Request {
	t.Helper()
	r, err := place.ParseRequest(*onDevice)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// gpuTested reports whether the tests run on a GPU: there are fewer threads and
// levels of SIMD to vary then, and fewer repetitions, for it may be an emulated
// one.
func gpuTested(t testing.TB) bool { return request(t).GPU() }

// byTurns is a list and the numbers of its elements, without those that other parts run: emulated processors and
// GPUs need their time and get one part a run.
func byTurns[T any](list []T) iter.Seq2[int, T] {
	return func(yield func(int, T) bool) {
		for i, x := range list {
			if (i == 0 || i%*partsFlag == *partFlag) && !yield(i, x) {
				return
			}
		}
	}
}

// processorOnly skips a test of what only the processor has.
func processorOnly(t testing.TB, what string) {
	t.Helper()
	if gpuTested(t) {
		t.Skipf("%s: the processor's only", what)
	}
}

// onFlag puts a model where the flag says.
func onFlag(t testing.TB, o Options) Options {
	t.Helper()
	if o.Level == "" {
		o.Level = *onLevel
	}
	if o.Sequences == 0 {
		o.Sequences = 40 // which the tests never give back
	}
	o.Device.Request, o.Device.Rows = request(t), 64 // several passes for a text of some length
	if o.Device.Kernels = *kernels; *kernels == "" {
		o.Device.Kernels = filepath.Join(t.TempDir(), "kernels")
	}
	return o
}

// opened fails the test where a model was not opened, and skips it where there
// is no device.
func opened(t testing.TB, err error) {
	t.Helper()
	var missing *gpu.MissingError
	if errors.As(err, &missing) {
		t.Skipf("no device %s: %v", *onDevice, err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
