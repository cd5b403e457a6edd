package kerneltest

import (
	"math/rand/v2"
	"testing"
)

// caught reports whether the table finds fault with a backend's operation.
func caught(b *Backend, name string) bool {
	bad := false
	for _, op := range operations() {
		if op.name != name {
			continue
		}
		op.problems(rand.New(rand.NewPCG(1, 2)), func(p problem) {
			got, broken := guardedRun(b, p)
			worst, allowed, wrong := compare(p, got)
			bad = bad || broken != "" || len(wrong) > 0 || worst > allowed
		})
	}
	return bad
}

func plainRows(y, w []float32, stride int, x []float32) {
	for n := range y {
		y[n] = plainDot(0, 0, w[n*stride:n*stride+len(x)], x)
	}
}

// The table must pass a plain program and fail one that is wrong in one way.
func TestTheTableFindsFaults(t *testing.T) {
	for _, c := range []struct {
		name, op string
		backend  Backend
		want     bool
	}{
		{"plain rows", "DotRows", Backend{DotRows: plainRows}, false},
		{"rows without the last product", "DotRows", Backend{DotRows: func(y, w []float32, stride int, x []float32) {
			plainRows(y, w, stride, x[:max(len(x)-1, 0)])
		}}, true},
		{"one product too many", "DotRows", Backend{DotRows: func(y, w []float32, stride int, x []float32) {
			plainRows(y, w[:len(w)+1], stride, x[:len(x)+1])
		}}, true},
		{"a result too many", "DotRows", Backend{DotRows: func(y, w []float32, stride int, x []float32) {
			plainRows(y, w, stride, x)
			y[:len(y)+1][len(y)] = 0
		}}, true},
		{"stride ignored", "DotRows", Backend{DotRows: func(y, w []float32, _ int, x []float32) {
			plainRows(y, w, len(x), x)
		}}, true},
		{"plain sum", "Add", Backend{Add: func(dst, x []float32) {
			for i, v := range x {
				dst[i] += v
			}
		}}, false},
		{"a NaN lost", "Add", Backend{Add: func(dst, x []float32) {
			for i, v := range x {
				if v == v {
					dst[i] += v
				}
			}
		}}, true},
		{"subnormals flushed", "Scale", Backend{Scale: func(x []float32, a float32) {
			for i := range x {
				if x[i] *= a; x[i] > -0x1p-126 && x[i] < 0x1p-126 {
					x[i] = 0
				}
			}
		}}, true},
		{"plain softmax", "Softmax", Backend{Softmax: func(x []float32) {
			for i, e := range exactSoftmax(append([]float32(nil), x...)) {
				x[i] = float32(e.value)
			}
		}}, false},
		{"softmax of one half", "Softmax", Backend{Softmax: func(x []float32) {
			copy(x, plainSoftmax(x[:len(x)/2]))
		}}, true},
	} {
		if got := caught(&c.backend, c.op); got != c.want {
			t.Errorf("%s: fault found: %v, want %v", c.name, got, c.want)
		}
	}
}
