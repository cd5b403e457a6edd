package plan

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/plan"
)

func randomItems(rng *rand.Rand, n int) []Item {
	out := make([]Item, n)
	for i := range out {
		k := int64(64 << rng.IntN(4))
		it := Item{Name: fmt.Sprintf("t%d", i), Role: "ffn_up", Shape: []int64{k, 256}}
		scale := math.Exp(rng.NormFloat64())
		for bits := int64(2); bits <= 6; bits++ {
			e := 1.1 * math.Exp2(float64(-2*bits))
			it.Candidates = append(it.Candidates, Candidate{Recipe: plan.Dense(plan.Trellis(int(bits))), Bytes: k*256*bits/8 + k/8, Error: e, Loss: e * scale})
		}
		it.Candidates = append(it.Candidates, Candidate{Bytes: k * 512})
		out[i] = it
	}
	return out
}

// paged is a package with a header and page-aligned tensors.
type paged struct{ header int64 }

func (p paged) Most(name string, recipe plan.Recipe) (int64, error) { return 0, errors.New("unused") }

type counted struct {
	paged
	bytes map[string]map[plan.Recipe]int64
}

func (c counted) Most(name string, recipe plan.Recipe) (int64, error) {
	return (c.bytes[name][recipe]+4095)/4096*4096 + 300, nil
}

func (c counted) Size(p *plan.Plan) (int64, error) {
	n := c.header
	head := int64(0)
	for _, t := range p.Tensors {
		n += (t.Bytes + 4095) / 4096 * 4096
		head += 290 + int64(len(t.Recipe.String()))
	}
	return n + (head+4095)/4096*4096, nil
}

func packageOf(items []Item, header int64) counted {
	c := counted{paged{header}, map[string]map[plan.Recipe]int64{}}
	for _, it := range items {
		c.bytes[it.Name] = map[plan.Recipe]int64{}
		for _, x := range it.Candidates {
			c.bytes[it.Name][x.Recipe] = x.Bytes
		}
	}
	return c
}

// TestBudgets keeps each kind of budget, spends nearly all of it, and does no
// worse with more of it.
func TestBudgets(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	items := randomItems(rng, 60)
	pkg := packageOf(items, 400_000)
	last := math.Inf(1)
	for _, bpw := range []float64{2.1, 2.5, 3, 3.7, 4.2, 5.9, 8, 16} {
		p, err := Solve(items, Budget{BPW: bpw, Package: pkg})
		if err != nil {
			t.Fatal(err)
		}
		if p.Predicted.BPW > bpw || p.Predicted.BPW < bpw-0.02 || p.Predicted.KLD > last || p.Budget.BPW != bpw {
			t.Errorf("%g bpw: %+v after %g", bpw, p.Predicted, last)
		}
		last = p.Predicted.KLD
		q, err := Solve(items, Budget{Bytes: p.Predicted.Bytes, Package: pkg})
		if err != nil {
			t.Fatal(err)
		}
		if q.Predicted.Bytes > p.Predicted.Bytes || q.Predicted.KLD > p.Predicted.KLD*(1+2*tolerance) {
			t.Errorf("%d bytes: %+v, by bits %+v", p.Predicted.Bytes, q.Predicted, p.Predicted)
		}
		if p.Predicted.KLD == 0 {
			continue
		}
		r, err := Solve(items, Budget{MaxLoss: p.Predicted.KLD, Package: pkg})
		if err != nil {
			t.Fatal(err)
		}
		if r.Predicted.KLD > p.Predicted.KLD || float64(r.Predicted.Bytes) > float64(p.Predicted.Bytes)*(1+2*tolerance) {
			t.Errorf("loss %g: %+v, by bits %+v", p.Predicted.KLD, r.Predicted, p.Predicted)
		}
	}
}

// TestSame solves twice, items shuffled in their candidates.
func TestSame(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	items := randomItems(rng, 40)
	p, err := Solve(items, Budget{BPW: 3.3})
	if err != nil {
		t.Fatal(err)
	}
	for i := range items {
		c := items[i].Candidates
		rng.Shuffle(len(c), func(a, b int) { c[a], c[b] = c[b], c[a] })
	}
	q, err := Solve(items, Budget{BPW: 3.3})
	if err != nil || !reflect.DeepEqual(p, q) {
		t.Errorf("%v: the order of candidates matters", err)
	}
	for i := range p.Tensors {
		x := &p.Tensors[i]
		if x.RunnerUp == nil || x.RunnerUp.Recipe == x.Recipe {
			t.Errorf("%s: runner-up %+v", x.Name, x.RunnerUp)
		}
		if (x.RunnerUp.Bytes < x.Bytes) != (x.RunnerUp.Loss > x.Loss) {
			t.Errorf("%s: runner-up %+v of %+v", x.Name, x.RunnerUp, x)
		}
	}
}

func TestImpossible(t *testing.T) {
	items := randomItems(rand.New(rand.NewPCG(9, 10)), 10)
	pkg := packageOf(items, 400_000)
	for _, c := range []struct {
		b    Budget
		says string
	}{
		{Budget{BPW: 1.2}, "1.2 bits per weight is impossible: the smallest is 2.004"},
		{Budget{Bytes: 1000}, "0.001MiB is impossible"},
		{Budget{Bytes: 400_000, Package: pkg}, "0.382MiB is impossible: the smallest is"},
	} {
		_, err := Solve(items, c.b)
		var impossible *ImpossibleError
		if !errors.As(err, &impossible) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c.b, err)
		}
	}
	// What the error names is possible.
	_, err := Solve(items, Budget{Bytes: 400_000, Package: pkg})
	var mib float64
	var impossible *ImpossibleError
	if !errors.As(err, &impossible) {
		t.Fatal(err)
	}
	fmt.Sscanf(impossible.Least, "%fMiB", &mib)
	least := int64(mib * (1 << 20))
	if p, err := Solve(items, Budget{Bytes: least, Package: pkg}); err != nil || p.Predicted.Bytes > least {
		t.Errorf("%d bytes: %v", least, err)
	}
	if _, err := Solve(items, Budget{Bytes: least - 1<<20/1000 - 1, Package: pkg}); !errors.As(err, &impossible) {
		t.Errorf("a step less than %d bytes: %v", least, err)
	}
	for i := range items {
		items[i].Candidates = items[i].Candidates[:3]
	}
	var loss, bits float64
	if _, err := Solve(items, Budget{MaxLoss: 1e-9}); !errors.As(err, &impossible) {
		t.Errorf("%v", err)
	}
	fmt.Sscan(impossible.Least, &loss)
	if _, err := Solve(items, Budget{MaxLoss: loss}); err != nil {
		t.Errorf("%s: %v", impossible.Least, err)
	}
	large := []Item{{Name: "t", Shape: []int64{1, 32}, Candidates: []Candidate{{Recipe: plan.MustRecipe("q8_0"), Bytes: 41}}}} // 10.25 bits
	large = append(large, Item{Name: "u", Shape: []int64{3, 1}, Candidates: []Candidate{{Recipe: plan.MustRecipe("q8_0"), Bytes: 4}}})
	if _, err := Solve(large, Budget{BPW: 3}); !errors.As(err, &impossible) {
		t.Errorf("%v", err)
	}
	fmt.Sscan(impossible.Least, &bits)
	if _, err := Solve(large, Budget{BPW: bits}); err != nil {
		t.Errorf("%s: %v", impossible.Least, err)
	}
	items[3].Candidates = nil
	if _, err := Solve(items, Budget{BPW: 4}); err == nil || !strings.Contains(err.Error(), "t3") {
		t.Errorf("%v", err)
	}
}

// TestFastest takes blocks of ggml on a device that is short of operations,
// and trellis codes on one that is short of bandwidth.
func TestFastest(t *testing.T) {
	item := func(d Device) []Item {
		it := Item{Name: "w", Shape: []int64{4096, 4096}}
		for _, c := range []Candidate{{Recipe: plan.MustRecipe("tcq4"), Bytes: 8 << 20, Loss: 0.004}, {Recipe: plan.MustRecipe("q4_k"), Bytes: 9 << 20, Loss: 0.006}, {Recipe: plan.MustRecipe("q8_0"), Bytes: 17 << 20, Loss: 0.0001},
			{Recipe: plan.MustRecipe("tcq2+lr:64:q8_0"), Bytes: 5 << 20, Loss: 0.005}} {
			c.Seconds = d.Seconds(c.Recipe, plan.MustCode("bf16").Scheme, 4096, 4096, c.Bytes, 1)
			it.Candidates = append(it.Candidates, c)
		}
		return []Item{it}
	}
	for _, c := range []struct {
		d    Device
		loss float64
		want string
	}{
		{Device{Bytes: 1e12, Ops: 1e14}, 0.01, "tcq2+lr:64:q8_0"},
		{Device{Bytes: 1e12, Ops: 1e14, Start: 1e-4}, 0.01, "tcq4"},
		{Device{Bytes: 1e12, Ops: 2e12}, 0.01, "q4_k"},
		{Device{Bytes: 1e12, Ops: 2e12}, 0.001, "q8_0"},
	} {
		p, err := Solve(item(c.d), Budget{MaxLoss: c.loss, Fastest: true, ByteSeconds: 0.01 / c.d.Bytes})
		if err != nil || p.Tensors[0].Recipe.String() != c.want || p.Predicted.Seconds <= 0 {
			t.Errorf("%+v within %g: %+v, %v", c.d, c.loss, p, err)
		}
	}
	if a, b := (Device{Bytes: 1e12, Ops: 1e14}).Seconds(plan.Recipe{}, plan.MustCode("bf16").Scheme, 64, 64, 8192, 1), 8192/1e12; math.Abs(a-b) > 1e-15 {
		t.Errorf("%g seconds, want %g", a, b)
	}
	if len(Devices()) == 0 {
		t.Error("no devices")
	}
}

func Example() {
	items := []Item{
		{Name: "a", Shape: []int64{64, 64}, Candidates: []Candidate{{Recipe: plan.MustRecipe("tcq2"), Bytes: 1032, Loss: 0.7}, {Recipe: plan.MustRecipe("tcq4"), Bytes: 2056, Loss: 0.05}}},
		{Name: "b", Shape: []int64{64, 64}, Candidates: []Candidate{{Recipe: plan.MustRecipe("tcq2"), Bytes: 1032, Loss: 0.07}, {Recipe: plan.MustRecipe("tcq4"), Bytes: 2056, Loss: 0.005}}},
	}
	p, _ := Solve(items, Budget{BPW: 3.1})
	for _, t := range p.Tensors {
		fmt.Println(t.Name, t.Recipe)
	}
	// Output:
	// a tcq4
	// b tcq2
}
