package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/quantize/encode"
	"github.com/nstf/nstf/runtime/eval"
	"github.com/nstf/nstf/runtime/generate"
	"github.com/nstf/nstf/runtime/sample"
	"github.com/nstf/nstf/testdata/demo"
)

// What the demo writes about, and how. The seed was chosen among a few so
// that the paragraph reads well; it is the same on every machine up to
// rounding in the last bits of the logits.
const (
	demoPrompt = "It was a cold morning in the early spring, and we sat after breakfast on either side of a cheery fire in the old room at Baker Street."
	demoTokens = 110
	demoSeed   = 1
)

// demoSchemes are the packages that the demo makes; "" is the model as it is.
var demoSchemes = []string{"", "q8_0", "q4_k"}

func (a *app) demoCommand() *cobra.Command {
	return &cobra.Command{
		Use: "demo", Short: "Convert, quantize, measure and run a small model that is built in", Args: cobra.NoArgs,
		Long: `Take the small model inside this program through everything: convert it to a
package, quantize it, verify the packages, measure what each costs in accuracy, and let
each write a paragraph. Everything happens in a temporary folder that is removed.`,
		Example: "  nstf demo",
		RunE: func(c *cobra.Command, _ []string) error {
			if !demo.Available {
				e := formats.Unsupportedf("", "", "the demo: this program was built with -tags nodemo")
				e.Hint = "build it without that tag"
				return e
			}
			dir, err := os.MkdirTemp("", "nstf-demo-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			if err := os.CopyFS(dir, demo.Files()); err != nil {
				return err
			}
			return a.demo(c.Context(), dir)
		},
	}
}

func (a *app) demo(ctx context.Context, dir string) error {
	source, text := filepath.Join(dir, "model"), filepath.Join(dir, "text.txt")
	t := newTable(1, "package", "size", "bpw", "perplexity", "KL divergence", "same top token", "tokens/s")
	paragraph := ""
	for _, scheme := range demoSchemes {
		d := demoPackage{path: filepath.Join(dir, "model"+scheme+".nstf"), name: "as it is (bf16)"}
		var o encode.Options
		if scheme != "" {
			p, err := encode.NewPolicy(scheme, "", "")
			if err != nil {
				return err
			}
			o.Policy, d.name = p, scheme
		}
		fmt.Fprintf(a.err, "%s: writing, measuring, running\n", d.name)
		if err := d.make(ctx, source, text, o); err != nil {
			return err
		}
		t.AppendRow(d.row())
		paragraph = d.paragraph
	}
	fmt.Fprintf(a.out, "A llama of 5.8 million parameters, measured on %d tokens of a story it has not seen:\n\n", demoScored)
	printTable(a.out, t)
	fmt.Fprintf(a.out, "\nThe smallest continues this beginning:\n\n%s\n\n%s\n", fold(demoPrompt, 80), fold(strings.TrimSpace(paragraph), 80))
	return nil
}

// demoScored is how many tokens of the text are scored: four windows.
const demoScored = 4 * 511

// A demoPackage is one line of the table.
type demoPackage struct {
	name, path string
	report     *encode.Report
	result     *eval.Result
	stats      *generate.Stats
	paragraph  string
}

// make writes the package, measures it against the source, and lets it write.
func (d *demoPackage) make(ctx context.Context, source, text string, o encode.Options) error {
	src, err := checkpoint.Open(source)
	if err != nil {
		return err
	}
	defer src.Close()
	if d.report, err = encode.Run(ctx, src, atomicfile.Scratch(d.path), o); err != nil {
		return err
	}
	m, err := checkpoint.Open(d.path)
	if err != nil {
		return err
	}
	defer m.Close()
	d.result, err = eval.Run(ctx, m, eval.Options{Text: text, Context: 512, MaxTokens: demoScored, Protocol: eval.ProtocolNSTF, Ref: source})
	if err != nil {
		return err
	}
	g, err := generate.New(m, generate.Config{})
	if err != nil {
		return err
	}
	defer g.Close()
	return d.write(ctx, g)
}

func (d *demoPackage) write(ctx context.Context, g *generate.Generator) error {
	ids, err := g.Prompt(demoPrompt, false)
	if err != nil {
		return err
	}
	o := generate.Options{MaxTokens: demoTokens, Sampling: sample.Options{Temperature: 0.6, TopK: 40, TopP: 0.9, RepetitionPenalty: 1.1, Seed: demoSeed}}
	d.stats, err = g.Run(ctx, ids, o, func(text string) error {
		d.paragraph += text
		return nil
	})
	return err
}

func (d *demoPackage) row() []any {
	r := d.result
	return []any{d.name, size(d.report.FileBytes), fmt.Sprintf("%.2f", d.report.BPW), fmt.Sprintf("%.2f ± %.2f", r.Perplexity.Value, r.Perplexity.StdErr),
		fmt.Sprintf("%.5f", r.Ref.KL.Value), fmt.Sprintf("%.1f %%", 100*r.Ref.Top1.Value), fmt.Sprintf("%.0f", d.stats.DecodeRate())}
}

// fold breaks a text into lines at its spaces.
func fold(s string, width int) string {
	var b strings.Builder
	line := 0
	for i, w := range strings.Fields(s) {
		switch n := len([]rune(w)); {
		case i > 0 && line+1+n > width:
			b.WriteByte('\n')
			line = n
		case i > 0:
			b.WriteByte(' ')
			line += 1 + n
		default:
			line = n
		}
		b.WriteString(w)
	}
	return b.String()
}
