package gpu

import (
	"errors"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/device"
)

// GPUs keep keys and values in every format, and refuse others by their name.
func TestKeysAndValuesOfAGPU(t *testing.T) {
	want := map[string]cpu.KVFormat{"": cpu.KVF16}
	for i, name := range cpu.KVFormatNames() {
		want[name] = cpu.KVFormat(i)
	}
	for name, want := range want {
		if f, err := (&Options{KV: name}).format(); err != nil || f != want {
			t.Errorf("%q: %v, %v", name, f, err)
		}
	}
	if f, err := (&Options{Exact: true}).format(); err != nil || f != cpu.KVF32 {
		t.Errorf("exact: %v, %v", f, err)
	}
	var e *formats.UnsupportedError
	if _, err := (&Options{KV: "q2"}).format(); !errors.As(err, &e) {
		t.Errorf("q2: %v", err)
	}
}

// So is attention by a policy.
func TestAttentionOfAGPU(t *testing.T) {
	p := device.DefaultPolicy()
	var e *formats.UnsupportedError
	if _, err := (&Options{Policy: &p}).format(); !errors.As(err, &e) || e.Hint == "" {
		t.Errorf("a policy: %v", err)
	}
}
