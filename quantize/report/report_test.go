package report_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/ledger"
	"github.com/nstf/nstf/quantize/report"
)

func example(blocks int) *ledger.Ledger {
	l := &ledger.Ledger{Source: ledger.Source{Model: "<model>", Text: "calib.jsonl"}, Model: ledger.Model{BPW: 3, PredictedKLD: 0.02, KLD: &ledger.Figure{Mean: 0.03, SE: 0.001}},
		Notes: []string{"block 1 & 2 were planned again"}, Experts: []ledger.Expert{{Input: "x", Expert: 3}}}
	for b := range blocks {
		l.Blocks = append(l.Blocks, ledger.Block{Index: int64(b), Drift: 0.001 * float64(b+1)})
		for i, role := range []string{"attn_q", "attn_k", "ffn_up"} {
			e := math.Pow(4, -float64(2+(b+i)%3))
			l.Tensors = append(l.Tensors, ledger.Tensor{Name: fmt.Sprintf("blocks.%d.%s", b, role), Role: role, Block: int64(b), Recipe: "tcq3", Method: "feedback",
				Bits: float64(2 + (b+i)%3), Predicted: e, Obtained: e * 1.1, Loss: e / 10, RunnerUp: &ledger.Alternative{Recipe: "tcq4"}})
		}
	}
	l.Layers = []ledger.Layer{{Block: 0, Bytes: 3 << 20, Loss: 0.001, Bits: &ledger.Saving{Tensors: 3, Bytes: 1 << 20, Loss: 0.0123}, KV: &ledger.KeptKV{Format: "q5", Bytes: 336, KLD: 0.00045}, Pages: &ledger.PagesOf{Read: 0.125, KLD: 0.0067}}, {Block: -1}}
	l.Tensors = append(l.Tensors, ledger.Tensor{Name: "norm", Role: "norm", Block: -1, Recipe: "keep"})
	return l
}

// TestWrite makes a report that is well formed, whole by itself, and the same
// twice.
func TestWrite(t *testing.T) {
	bare := &ledger.Ledger{}
	packages := []report.Package{{"small.nstf", 1 << 20, example(4)}, {"one block.nstf", 3 << 20, example(1)}, {"bare.nstf", 5 << 20, bare}}
	var a, b bytes.Buffer
	if err := errors.Join(report.Write(&a, packages), report.Write(&b, packages)); err != nil {
		t.Fatal(err)
	}
	if a.String() != b.String() {
		t.Error("two reports of the same differ")
	}
	text := a.String()
	if n := strings.Count(text, "<svg"); n != 1+4+4 {
		t.Errorf("%d plots", n)
	}
	for _, want := range []string{"&lt;model&gt;", "block 1 &amp; 2", "blocks.3.ffn_up", "small.nstf", "attn_k", "not measured",
		"<td>1.00 MiB</td><td>0.0123</td><td></td><td></td><td class=\"text\">q5</td><td>336</td><td>0.00045</td><td>88 %</td><td>0.0067</td>", "<td>others</td>"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	if !strings.Contains(text, "12 tensors for which there was a choice, of 13 in the model") {
		t.Error("the count of tensors is not explained")
	}
	if strings.Contains(text, "rotate(") {
		t.Error("an axis has an upright name, which lies on its labels")
	}
	if !strings.Contains(text, "size of the package in MiB") {
		t.Error("small packages are not drawn in MiB")
	}
	var large bytes.Buffer
	if err := report.Write(&large, []report.Package{{"small.nstf", 1 << 20, example(4)}, {"large.nstf", 100 << 30, example(4)}}); err != nil || !strings.Contains(large.String(), "size of the package in GiB") {
		t.Errorf("large packages are not drawn in GiB, %v", err)
	}
	if strings.Contains(text, "-9223372036854775") {
		t.Error("an axis without values is drawn at minus infinity")
	}
	for _, bad := range []string{"NaN", "Inf", "src=", "href=\"http", "url(", "@import", "<script"} {
		if strings.Contains(text, bad) {
			t.Errorf("%q is in the report", bad)
		}
	}
}

// Packages that were measured on other windows are not drawn into one plot.
func TestOtherWindows(t *testing.T) {
	on := func(held, hash string, windows int64) *ledger.Ledger {
		l := example(1)
		l.Source.Held, l.Source.TextHash, l.Source.HeldCount, l.Source.Context = held, hash, windows, 512
		return l
	}
	same := []report.Package{{"a", 1, on("held-out windows of t", "x", 4)}, {"b", 2, on("held-out windows of t", "x", 4)}, {"c", 3, on("book.txt", "x", 4)}, {"d", 4, on("book.txt", "y", 4)}}
	for i, c := range []struct {
		packages []report.Package
		groups   int
	}{
		{same[:2], 1}, {same[2:], 1}, {same, 2},
		{[]report.Package{same[0], {"e", 1, on("held-out windows of t", "y", 4)}}, 2},
		{[]report.Package{same[0], {"e", 1, on("held-out windows of t", "x", 8)}, same[1]}, 2},
	} {
		var page bytes.Buffer
		if err := report.Write(&page, c.packages); err != nil {
			t.Fatal(err)
		}
		if got := len(report.Alike(c.packages)); got != c.groups {
			t.Errorf("case %d: %d groups, want %d", i, got, c.groups)
		}
		if n := strings.Count(page.String(), ">noise floor<"); n != c.groups || strings.Contains(page.String(), "cannot be held against") != (c.groups > 1) {
			t.Errorf("case %d: %d tables", i, n)
		}
		if c.groups > 1 && !strings.Contains(page.String(), "Measured on 4 windows of 512 tokens: held-out windows of t") {
			t.Errorf("case %d: it is not said what was measured on", i)
		}
	}
}

func Example() {
	var out bytes.Buffer
	err := report.Write(&out, []report.Package{{Name: "a.nstf", Ledger: &ledger.Ledger{}}})
	fmt.Println(err, strings.Contains(out.String(), "a.nstf"))
	// Output: <nil> true
}
