package hip

import (
	"testing"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
)

// What is tried has a key of its own, can be launched, and is accepted when it is
// read again.
func TestTuning(t *testing.T) {
	s, _ := scheme.ByName("q4_k")
	f, err := FormatOf(s, nil, 4096)
	if err != nil {
		t.Fatal(err)
	}
	product := func(n, k int) Product { return Product{W: Weight{Format: f, N: n, K: k, Data: 256}, Y: 256} }
	rms := Normal{Weight: 256, Eps: 1e-5}
	keys := map[string]bool{}
	fresh := func(key string) {
		if key == "" || keys[key] {
			t.Errorf("key %q is empty, or another operation's", key)
		}
		keys[key] = true
	}
	for _, target := range []Target{{API: CUDA, Arch: "sm_90", Wave: 32, Units: 132, LDS: 227 << 10},
		{API: HIP, Arch: "gfx1100", Wave: 32, Units: 96, LDS: 64 << 10}, {API: HIP, Arch: "gfx942", Wave: 64, Units: 304, LDS: 64 << 10}} {
		clear(keys)
		for _, o := range []*Matvec{
			{T: 1, X: 256, Products: []Product{product(4096, 4096)}},
			{T: 1, X: 256, Norm: rms, Products: []Product{product(4096, 4096), product(1024, 4096)}},
			{T: 1, X: 256, Norm: rms, Gated: true, Products: []Product{product(14336, 4096), product(14336, 4096)}},
			{T: 1, X: 256, Norm: rms, Gated: true, Rounded: Acts{Data: 256, T: 1, K: 14336}, Products: []Product{product(14336, 4096), product(14336, 4096)}},
			{T: 4, X: 256, Products: []Product{product(3, 4096)}},
		} {
			fresh(o.Key())
			shapes := o.Shapes(target)
			if len(shapes) < 3 {
				t.Errorf("%v: %s: only %d divisions are tried", target.Arch, o.Key(), len(shapes))
			}
			for _, shape := range shapes {
				u := &Tuning{Matvec: map[string]MatvecShape{o.Key(): shape}}
				tuned := *o
				u.Apply(&tuned)
				if tuned.Shape == nil || *tuned.Shape != shape || !u.Sound(target) {
					t.Errorf("%v: %v is not applied, or not sound", target.Arch, shape)
				}
				if c := tuned.Calls(target)[0]; c.Block[0] > 1024 || c.Grid[0] == 0 {
					t.Errorf("%v: %v: %d blocks of %d threads", target.Arch, shape, c.Grid[0], c.Block[0])
				}
			}
		}
		m := &Matmul{T: 512, X: 256, Scratch: 256, Products: []Product{product(4096, 4096)}}
		fresh(m.Key())
		if tiles := m.Tiles(target); len(tiles) < 2 || !(&Tuning{Matmul: map[string]MatmulTile{m.Key(): tiles[0]}}).Sound(target) {
			t.Errorf("%v: tiles %v", target.Arch, tiles)
		}
		a := &Attend{Rows: Rows{T: 1}, KV: KV{Format: cpu.KVF16, Heads: 8, Dim: 128}, Heads: 32, Capacity: 8192}
		fresh(a.Key())
		if shapes := a.Shapes(target); !(&Tuning{Attend: map[string]AttendShape{a.Key(): shapes[0]}}).Sound(target) {
			t.Errorf("%v: shapes %v", target.Arch, shapes)
		}
		for _, shape := range a.Shapes(target) { // several rows, on a card that was tuned or was not
			several := *a
			several.T, several.Shape = 4, &shape
			want := target.API == CUDA && several.registers(target, several.split(target).queries) <= 170
			if got := several.split(target).resident == 2; got != want {
				t.Errorf("%v: %+v of four rows leaves room for two blocks: %t, want %t", target.Arch, shape, got, want)
			}
		}
		for _, u := range []*Tuning{
			{Matvec: map[string]MatvecShape{"": {Rows: 1, Lanes: 24, Waves: 4, Split: 1, Steps: 1, Blocks: 1}}},
			{Matvec: map[string]MatvecShape{"": {Rows: 1, Lanes: 32, Waves: 400, Split: 1, Steps: 1, Blocks: 1}}},
			{Matmul: map[string]MatmulTile{"": {Features: 7}}},
			{Attend: map[string]AttendShape{"": {Waves: 256 / target.Wave, Queries: 1, Fill: 1, Least: 100}}},
			{Attend: map[string]AttendShape{"": {Waves: 256 / target.Wave, Queries: 1, Fill: 1, Least: 128, Resident: 9}}},
			{Attend: map[string]AttendShape{"": {Waves: 256 / target.Wave, Queries: 1, Fill: 1, Least: 128, Rows: 64}}},
			{Matvec: map[string]MatvecShape{"": {Rows: 1, Lanes: 32, Waves: 4, Split: 1, Steps: 1, Blocks: 1, Features: 2}}},
			{Matvec: map[string]MatvecShape{"": {Rows: 1, Lanes: 32, Waves: 4, Split: 1, Steps: 1, Blocks: 1, Direct: true}}},
			{Matvec: map[string]MatvecShape{"": {Rows: 1, Lanes: 32, Waves: 4, Split: 1, Steps: 1, Blocks: 1, Ahead: 1 << 30}}},
		} {
			if u.Sound(target) {
				t.Errorf("%+v is taken for sound", u)
			}
		}
	}
}
