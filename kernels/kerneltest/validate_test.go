package kerneltest

import (
	"strings"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
)

// Whatever is timed is held by a case, and passes it.
func TestTimingsAreValidated(t *testing.T) {
	b := Processor(cpu.Best())
	ts := Timings(&b)
	if len(ts) < 20 {
		t.Fatalf("only %d timings", len(ts))
	}
	done := map[string]bool{}
	for _, x := range ts {
		op, _, _ := strings.Cut(x.Name, "/")
		if done[op] {
			continue
		}
		done[op] = true
		if err := Validate(&b, op); err != nil {
			t.Error(err)
		}
	}
	for _, x := range IntegerProcessor(cpu.Best()).Schemes {
		if err := ValidateInteger(IntegerProcessor(cpu.Best()), x); err != nil {
			t.Error(err)
		}
	}
}

// A wrong kernel is not valid, nor is one that is not there.
func TestValidateFindsFaults(t *testing.T) {
	b := Processor(cpu.Best())
	b.Name = "broken"
	right := b.DecodeF16
	b.Add = func(dst, x []float32) {}
	b.DecodeF16 = func(dst []float32, src []byte) {
		right(dst, src)
		if len(dst) == 7 {
			dst[6] = 0
		}
	}
	b.Scale = nil
	for _, op := range []string{"Add", "DecodeF16", "Scale", "nosuch"} {
		if err := Validate(&b, op); err == nil || !strings.Contains(err.Error(), op) {
			t.Errorf("%s: %v", op, err)
		}
	}
	i := IntegerProcessor(cpu.Best())
	multiply := i.MatMul
	i.MatMul = func(s string, c []float32, ldc int, w []byte, a []float32, t, n0, n1, k int) {
		multiply(s, c, ldc, w, a, t, n0, n1, k)
		if t == 9 {
			c[len(c)-1] += 0.1
		}
	}
	if err := ValidateInteger(i, "q4_k"); err == nil || !strings.Contains(err.Error(), "T=9") {
		t.Errorf("%v", err)
	}
	if err := ValidateInteger(i, "f32"); err == nil {
		t.Error("f32 has integer kernels")
	}
}
