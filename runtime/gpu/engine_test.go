package gpu

import (
	"errors"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/device"
)

// Codes of keys and values that GPUs have no kernels for are refused by their name.
func TestKeysAndValuesOfAGPU(t *testing.T) {
	for name, want := range map[string]cpu.KVFormat{"": cpu.KVF16, "f32": cpu.KVF32, "f16": cpu.KVF16, "q8": cpu.KVQ8} {
		if f, err := (&Options{KV: name}).format(); err != nil || f != want {
			t.Errorf("%q: %v, %v", name, f, err)
		}
	}
	for _, name := range []string{"q5", "q4", "q3"} {
		var e *formats.UnsupportedError
		if _, err := (&Options{KV: name}).format(); !errors.As(err, &e) || e.Hint == "" {
			t.Errorf("%q: %v", name, err)
		}
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
