package gpu

import (
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/kernels/hip"
)

// TestUnits lists kernels for targets that are not here.
func TestUnits(t *testing.T) {
	m, err := checkpoint.Open("../../testdata/demo/model")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, arch := range []string{"gfx1100", "gfx90a", "sm_90"} {
		target, err := hip.ParseTarget(arch)
		if err != nil {
			t.Fatal(err)
		}
		units, err := Units(m.Graph, m.Tensor, target, Options{})
		if err != nil {
			t.Fatalf("%s: %v", arch, err)
		}
		var files []string
		for _, u := range units {
			files = append(files, u.File)
		}
		slices.Sort(files)
		files = slices.Compact(files)
		for _, want := range []string{"attend.hip", "embed.hip", "matmul.hip", "matvec.hip", "norm.hip", "rope.hip", "sample.hip"} {
			if !slices.Contains(files, want) {
				t.Errorf("%s: no unit of %s among %s", arch, want, strings.Join(files, " "))
			}
		}
	}
	if _, err := Units(m.Graph, m.Tensor, hip.Target{}, Options{KV: "q2"}); err == nil {
		t.Error("listed kernels for a KV format that does not exist")
	}
}

// What a mixture needs whose experts the processor computes is among its kernels.
func TestUnitsOfExpertsApart(t *testing.T) {
	m, err := checkpoint.Open("../../testdata/micro/glm4_moe")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	target, _ := hip.ParseTarget("gfx1100")
	units, err := Units(m.Graph, m.Tensor, target, Options{})
	if err != nil {
		t.Fatal(err)
	}
	sum := hip.Combine{T: 1, D: 32, TopK: 1, Parts: 1, Chosen: 1, Shared: 1, Out: 1}
	if want := sum.Calls(target)[0].Unit; !slices.Contains(units, want) {
		t.Errorf("%v is not among %d kernels", want, len(units))
	}
}

// TestUsualUnits bounds how long building ahead takes.
func TestUsualUnits(t *testing.T) {
	target, _ := hip.ParseTarget("gfx1100")
	target.Units = 48
	units, err := UsualUnits(target)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, u := range units {
		count[u.File]++
	}
	t.Logf("%d units: %v", len(units), count)
	if len(units) < 50 || len(units) > 5000 {
		t.Errorf("%d units", len(units))
	}
}
