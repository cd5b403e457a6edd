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
	for _, want := range []string{"&lt;model&gt;", "block 1 &amp; 2", "blocks.3.ffn_up", "small.nstf", "attn_k", "not measured"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	for _, bad := range []string{"NaN", "Inf", "src=", "href=\"http", "url(", "@import", "<script"} {
		if strings.Contains(text, bad) {
			t.Errorf("%q is in the report", bad)
		}
	}
}

func Example() {
	var out bytes.Buffer
	err := report.Write(&out, []report.Package{{Name: "a.nstf", Ledger: &ledger.Ledger{}}})
	fmt.Println(err, strings.Contains(out.String(), "a.nstf"))
	// Output: <nil> true
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.00 KiB", 3 << 19: "1.50 MiB", 5 << 50: "5120.00 TiB"} {
		if got := report.Size(n); got != want {
			t.Errorf("%d bytes are %q, want %q", n, got, want)
		}
	}
}
