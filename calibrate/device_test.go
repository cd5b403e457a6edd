package calibrate_test

import (
	"errors"
	"flag"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/gpu"
	"github.com/nstf/nstf/runtime/place"
)

var (
	deviceFlag  = flag.String("device", "cpu", "device that TestMeasureOn measures on")
	kernelsFlag = flag.String("kernels", "", "folder that keeps kernels which a GPU needs")
)

// TestMeasureOn measures on the device that the flag names, and holds it to the processor
// alone; with room for all hidden states, for some and in a file the bits are the same,
// and the device holds no more than was said: one block, the text's hidden states and one
// input's sums.
func TestMeasureOn(t *testing.T) {
	r, err := place.ParseRequest(*deviceFlag)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"llama-31", "mixtral"} {
		if r.GPU() && testing.Short() && name == "mixtral" {
			continue // runtime/exec has mixtures
		}
		m := openMicro(t, name)
		windows := textWindows(m)
		want := measured(t, m, windows, calibrate.Options{Threads: 1})
		sensitive := name == "llama-31" // is enough under emulation
		if sensitive {
			sensitivities(t, m, want, windows, calibrate.Options{Threads: 1})
		}
		d := exec.Device{Request: r, Kernels: *kernelsFlag}
		if d.Kernels == "" {
			d.Kernels = filepath.Join(t.TempDir(), "kernels")
		}
		on, err := exec.OpenDevice(d)
		var missing *gpu.MissingError
		if errors.As(err, &missing) {
			t.Skipf("no device %s: %v", *deviceFlag, err)
		}
		if err != nil {
			t.Fatal(err)
		}
		whole := room(t, m, windows, on)
		if on != nil {
			on.Limit = whole
		}
		got := measured(t, m, windows, calibrate.Options{Threads: 2, On: on})
		if on != nil {
			if _, most := on.GPU().Used(); most > whole {
				t.Errorf("%s: %d bytes of the device were in use, %d were said", name, most, whole)
			}
			on.Limit = 0
		}
		if sensitive {
			sensitivities(t, m, got, windows, calibrate.Options{Threads: 2, On: on})
		}
		closeTo(t, name, got, want)
		for i, o := range []calibrate.Options{{On: on, Memory: 1, Dir: t.TempDir()}, {On: on, Memory: 1 << 30}} {
			if on != nil { // room for some groups of windows, and for none
				need := walkNeed(t, m, on)
				on.Limit = (need + int64(1-i)*(whole-need)*3/4) * 16 / 15 // a sixteenth is left
			}
			sameBits(t, name, measured(t, m, windows, o), got)
		}
		if err := on.Close(); err != nil {
			t.Error(err)
		}
	}
}

// textWindows are enough for several groups.
func textWindows(m *model.Model) (out [][]int32) {
	for i := range 3 {
		w := make([]int32, 700+i)
		for j := range w {
			w[j] = int32((j*j+31*i*j+7*i)%int(m.Graph.Vocab-1)) + 1
		}
		out = append(out, w)
	}
	return append(out, []int32{1, 2, 3})
}

func walkNeed(t *testing.T, m *model.Model, on *exec.Opened) int64 {
	t.Helper()
	need, err := on.Need(m, exec.Walk{Context: 702, Gather: true})
	if err != nil {
		t.Fatal(err)
	}
	return need
}

// room is what a device holds at most with all hidden states on it and all sums of a
// block.
func room(t *testing.T, m *model.Model, windows [][]int32, on *exec.Opened) (n int64) {
	t.Helper()
	for _, w := range windows {
		n += calibrate.Bytes(int64(len(w)), m.Graph.Width)
	}
	return n + walkNeed(t, m, on)
}

func measured(t *testing.T, m *model.Model, windows [][]int32, o calibrate.Options) *stats.File {
	t.Helper()
	s, err := calibrate.Measure(t.Context(), m, windows, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func sensitivities(t *testing.T, m *model.Model, s *stats.File, windows [][]int32, o calibrate.Options) {
	t.Helper()
	if err := calibrate.Sensitivities(t.Context(), m, s, windows, calibrate.SensitivityOptions{Options: o, Tokens: 100}); err != nil {
		t.Fatal(err)
	}
}

// inputs calls f with what two statistics have of each input.
func inputs(t *testing.T, got, want *stats.File, f func(input string, expert int, got, want []float64)) {
	t.Helper()
	if len(got.Inputs) != len(want.Inputs) || len(got.Inputs) == 0 {
		t.Fatalf("%d inputs, want %d", len(got.Inputs), len(want.Inputs))
	}
	for input, w := range want.Inputs {
		if g := got.Inputs[input]; g == nil || g.Tokens != w.Tokens {
			t.Fatalf("%s: %+v, want %d tokens", input, g, w.Tokens)
		}
		for expert := -1; expert < len(want.Experts[input]); expert++ {
			g, err := got.Moments(input, expert)
			if err != nil {
				t.Fatal(err)
			}
			w, err := want.Moments(input, expert)
			if err != nil {
				t.Fatal(err)
			}
			f(input, expert, g, w)
		}
	}
}

// closeTo holds statistics of a device to the processor's.
func closeTo(t *testing.T, name string, got, want *stats.File) {
	t.Helper()
	inputs(t, got, want, func(input string, expert int, g, w []float64) {
		k := int(math.Sqrt(float64(len(w))))
		for i, v := range g {
			if size := math.Sqrt(w[i/k*k+i/k] * w[i%k*k+i%k]); math.Abs(v-w[i]) > 1e-4*size {
				t.Fatalf("%s: %s of expert %d: [%d][%d] is %g, want %g", name, input, expert, i/k, i%k, v, w[i])
			}
		}
	})
	for tensor, w := range want.Sensitivity {
		if g, ok := got.Sensitivity[tensor]; !ok || math.Abs(g-w) > 0.02*w+1e-9 {
			t.Errorf("%s: %s is sensitive by %g, want %g", name, tensor, g, w)
		}
	}
}

// sameBits wants the very same.
func sameBits(t *testing.T, name string, got, want *stats.File) {
	t.Helper()
	inputs(t, got, want, func(input string, expert int, g, w []float64) {
		if !slices.Equal(g, w) {
			t.Errorf("%s: %s of expert %d has other bits", name, input, expert)
		}
	})
}
