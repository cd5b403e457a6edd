package hip

import (
	"testing"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/cpu"
)

// TestFine holds the groups in which inputs are rounded to the processor's: else
// their default modes drift apart.
func TestFine(t *testing.T) {
	compared := 0
	for _, s := range scheme.Table() {
		k := cpu.Best().Integer(s.Name)
		if s.BlockBytes == 0 || k == nil {
			continue
		}
		f, err := FormatOf(s, nil, 4096)
		if err != nil || !f.Integer() {
			t.Errorf("%s: %v, integer=%v", s.Name, err, f.Integer())
			continue
		}
		if compared++; group(f.Fine()) != k.Group() {
			t.Errorf("%s: groups of %d, on the processor of %d", s.Name, group(f.Fine()), k.Group())
		}
	}
	if compared < 10 {
		t.Errorf("%d schemes compared", compared)
	}
}

// TestFineAffine holds affine codes to the same: their groups depend on their bits.
func TestFineAffine(t *testing.T) {
	if cpu.Best().Level() == cpu.LevelGeneric {
		t.Skip("plain Go multiplies affine codes in float32")
	}
	s, _ := scheme.ByName("affine")
	scale, _ := scheme.ByName("f16")
	const n, k = 4, 256
	for _, bits := range []int64{4, 8} {
		params := map[string]int64{"bits": bits, "group": 64, "scale": int64(scale.ID), "zero": 0, "index": 0}
		x, err := scheme.New("w", s, []int64{n, k}, params, tensor.BytesBlob(make([]byte, n*k*bits/8)), tensor.BytesBlob(make([]byte, 2*n*k/64)))
		if err != nil {
			t.Fatal(err)
		}
		m, err := scheme.Open(&x)
		if err != nil {
			t.Fatal(err)
		}
		c := cpu.Best().Coded(m)
		f, err := FormatOf(s, params, k)
		if err != nil || c == nil || !f.Integer() || group(f.Fine()) != c.Group() {
			t.Errorf("%d bits: %v, groups of %d, on the processor %+v", bits, err, group(f.Fine()), c)
		}
	}
}
