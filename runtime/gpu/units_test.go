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

// What a mixture needs whose experts the processor computes, all or those that are not pinned, is among its kernels.
func TestUnitsOfExpertsApart(t *testing.T) {
	target, _ := hip.ParseTarget("gfx1100")
	for _, c := range []struct {
		model  string
		topK   int
		shared hip.Address // 0: the mixture has no shared layer
	}{{"glm4_moe", 2, 1}, {"gpt_oss", 2, 0}} {
		m, err := checkpoint.Open("../../testdata/micro/" + c.model)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		units, err := Units(m.Graph, m.Tensor, target, Options{})
		if err != nil {
			t.Fatal(err)
		}
		pinned := hip.Combine{T: 1, D: 32, TopK: c.topK, Parts: 1, Chosen: 1, Share: 1, Shared: c.shared, Out: 1, Some: true}
		sum := hip.Combine{T: 1, D: 32, TopK: 1, Parts: 1, Chosen: 1, Shared: 1, Out: 1} // with what the processor gives
		here := hip.Here{N: c.topK}
		for _, calls := range [][]hip.Call{sum.Calls(target), pinned.Calls(target), here.Calls(target)} {
			if want := calls[0].Unit; !slices.Contains(units, want) {
				t.Errorf("%s: %v is not among %d kernels", c.model, want, len(units))
			}
		}
	}
}

// Ranks need kernels for what they exchange, and for their parts of experts; what is not cut has
// none.
func TestTeamUnits(t *testing.T) {
	target, _ := hip.ParseTarget("gfx942")
	m, err := checkpoint.Open("../../testdata/micro/mixtral")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	units, err := TeamUnits(m.Graph, m.Tensor, target, Options{}, 2)
	if err != nil {
		t.Fatal(err)
	}
	ranks, x := hip.Ranks{Count: 2, FewSlot: 64, ManySlot: 64}, m.Graph.Blocks[0].MoE
	want := hip.Combine{T: 1, D: int(m.Graph.Width), TopK: int(x.TopK), Parts: 1, Chosen: 1, Share: 1, Out: 1}
	for _, calls := range [][]hip.Call{(&hip.Send{Exchange: hip.Exchange{Ranks: &ranks, Many: true, Half: true}, T: 1, D: 32}).Calls(target), want.Calls(target)} {
		if !slices.Contains(units, calls[0].Unit) {
			t.Errorf("%v is not among %d kernels", calls[0].Unit, len(units))
		}
	}
	for _, define := range []string{"MATVEC_SEND=1", "MATMUL_SEND=1", "NORM_FROM=1", "NORM_FROM=2"} {
		if !slices.ContainsFunc(units, func(u hip.Unit) bool { return strings.Contains(u.Defines+" ", define+" ") }) {
			t.Errorf("no kernel with %s is among %d", define, len(units))
		}
	}
	if _, err := TeamUnits(m.Graph, m.Tensor, target, Options{}, hip.MostRanks+1); err == nil {
		t.Error("more ranks than there may be")
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
