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
		if f, err := (&Options{KV: name}).formats(3); err != nil || len(f) != 1 || f.Of(2) != want {
			t.Errorf("%q: %v, %v", name, f, err)
		}
	}
	if f, err := (&Options{Exact: true}).formats(3); err != nil || f.Of(0) != cpu.KVF32 {
		t.Errorf("exact: %v, %v", f, err)
	}
	var e *formats.UnsupportedError
	for _, bad := range []string{"q2", "q4,q5", "q4*0,q5", "q4*4", "q4*", ",", "q4*99999999999"} {
		if _, err := (&Options{KV: bad}).formats(3); !errors.As(err, &e) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if f, err := (&Options{KV: "q8,q4*2"}).formats(3); err != nil || f.Of(0) != cpu.KVQ8 || f.Of(2) != cpu.KVQ4 || f.String() != "q8,q4*2" {
		t.Errorf("a list: %v, %v", f, err)
	}
}

// A choice of pages that is not the device's own is refused.
func TestPolicyOfAGPU(t *testing.T) {
	p := device.DefaultPolicy()
	p.Rank = func(*device.Ranking) {}
	var e *formats.UnsupportedError
	if _, err := followed(nil, device.Span{}, &p); !errors.As(err, &e) {
		t.Errorf("a policy: %v", err)
	}
}
