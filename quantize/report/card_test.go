package report_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/inspect"
	"github.com/nstf/nstf/formats/ledger"
	"github.com/nstf/nstf/quantize/report"
)

func TestWriteCard(t *testing.T) {
	l := example(2)
	l.Model.Perplexity, l.Model.Original, l.Model.Top1 = &ledger.Figure{Mean: 9.5, SE: 0.1}, &ledger.Figure{Mean: 9.25, SE: 0.1}, &ledger.Figure{Mean: 0.875, SE: 0.01}
	l.Source.Held, l.Source.HeldCount, l.Source.Context = "held-out windows of <b>x</b>.jsonl", 7, 512
	p := &inspect.Report{Architecture: "llama", Params: 1234, FileBytes: 5 << 20, BPW: 3.25, Schemes: []inspect.Group{{Name: "tcq3", Tensors: 4, Bytes: 1 << 20, BPW: 3.1}},
		Provenance: &inspect.Provenance{Tool: "nstf 1", Flags: []string{"--bpw=3"}, Root: "abc", Notes: []string{"![x](http://evil)"},
			Sources: []inspect.Source{{Role: "model", Name: "a|b\n---\nlicense: evil", Bytes: 9, Hash: "def"}}}}
	c := report.Card{Repo: "org/small", File: "small_q3.nstf", BaseModel: "org/base", Package: p, Ledger: l}
	card := string(report.WriteCard(c))
	for _, want := range []string{"---\nlibrary_name: nstf\n", `base_model: "org/base"`, "base_model_relation: quantized", `- "llama"`, "# small\n", "nstf run org/small --chat", "| KL divergence, nats | 0.03 ± 0.001 |",
		"| same best token, % | 87.5 ± 1 |", "7 windows of 512 tokens: held-out windows of &lt;b&gt;x", "tcq3 | 4 tensors, 1.00 MiB", "made by | nstf 1 --bpw=3 |", "block 1 &amp; 2", `a\|b`, "\n```\nnstf inspect small_q3.nstf --ledger\n```\n"} {
		if !strings.Contains(card, want) {
			t.Errorf("no %q in\n%s", want, card)
		}
	}
	if strings.Count(card, "\n---\n") != 1 || strings.Contains(card, "\nlicense: evil") || strings.Contains(card, "![x]") || strings.Contains(card, "<b>") {
		t.Errorf("names of files act as markup:\n%s", card)
	}
	if !bytes.Equal(report.WriteCard(c), []byte(card)) || !report.IsCard([]byte(card)) || report.IsCard([]byte("# mine")) {
		t.Error("two cards of the same differ, or are not known")
	}
	c.File = "x```\n<b>.nstf"
	if card := string(report.WriteCard(c)); !strings.Contains(card, "\n````\nnstf inspect x```\\n<b>.nstf --ledger\n````\n") {
		t.Errorf("a name ends the block:\n%s", card)
	}
	c.Ledger = nil
	if card := string(report.WriteCard(c)); !strings.Contains(card, "Nothing was measured") || strings.Contains(card, "KL divergence") {
		t.Error(card)
	}
	c.Ledger, p.Architecture, c.BaseModel = &ledger.Ledger{Source: ledger.Source{Text: "t.txt"}}, "x: [", ""
	if card := string(report.WriteCard(c)); !strings.Contains(card, "fitted to t.txt and not measured") || strings.Contains(card, "base_model") || strings.Contains(card, "- x") {
		t.Error(card)
	}
}
