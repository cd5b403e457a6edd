package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats/inspect"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/stats"
)

func (a *app) inspectCommand() *cobra.Command {
	var tensors, ledger, asJSON bool
	c := &cobra.Command{
		Use: "inspect MODEL", Short: "Show what lies in a model: architecture, sizes, schemes, files", Args: cobra.ExactArgs(1),
		Long: `Show what lies in a package, a GGUF file, a safetensors file or a Hugging Face
directory, without reading its tensors. A container of an unknown architecture is
shown as it is stored.

--ledger shows what quantizing did to each tensor of a package, what it was predicted to
cost, and what was measured.`,
		Example: "  nstf inspect model.nstf\n  nstf inspect model.nstf --ledger\n  nstf inspect model.gguf --tensors\n  nstf inspect ./Qwen3-0.6B --json",
		RunE: func(_ *cobra.Command, args []string) error {
			if ledger {
				return a.inspectLedger(args[0], asJSON)
			}
			r, err := inspect.Open(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.out, r)
			}
			a.printReport(r)
			has := func(name string) bool {
				return slices.ContainsFunc(r.Files, func(f inspect.File) bool { return f.Name == name })
			}
			if has(nstf.KVFile) {
				k, err := inspect.Kept(args[0])
				if err != nil {
					return err
				}
				fmt.Fprintln(a.out)
				a.printKept(k)
			}
			if has(nstf.AttentionFile) {
				p, err := inspect.Attention(args[0])
				if err != nil {
					return err
				}
				fmt.Fprintln(a.out)
				a.printPolicy(p)
			}
			if has(nstf.ExpertsFile) {
				u, err := inspect.Uses(args[0])
				if err != nil {
					return err
				}
				fmt.Fprintln(a.out)
				a.printUses(u)
			}
			if tensors {
				a.printTensors(r)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&tensors, "tensors", false, "list every tensor")
	c.Flags().BoolVar(&ledger, "ledger", false, "show the accuracy ledger of a package")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, tensors included")
	return c
}

// printUses says how uneven the choice of experts is: of each block what the most used tenth gets.
func (a *app) printUses(u *stats.Uses) {
	var least, most float64
	for i, b := range u.Blocks {
		counts, sum, hot := slices.Clone(b.Chosen), int64(0), int64(0)
		slices.SortFunc(counts, func(x, y int64) int { return cmp.Compare(y, x) })
		for k, n := range counts {
			if sum += n; 10*k < len(counts) {
				hot += n
			}
		}
		share := 100 * float64(hot) / float64(max(sum, 1))
		if i == 0 || share < least {
			least = share
		}
		most = max(most, share)
	}
	fmt.Fprintf(a.out, "use of experts: of %d blocks, counted on %s; the most used tenth of a block's gets %.0f to %.0f %% of choices\n", len(u.Blocks), u.Text, least, most)
}

func (a *app) printReport(r *inspect.Report) {
	t := newTable(2)
	row := func(name, format string, args ...any) {
		t.AppendRow([]any{name, clip(fmt.Sprintf(format, args...), tableWidth-16)})
	}
	row("file", "%s", r.Path)
	row("format", "%s", r.Kind)
	row("architecture", "%s", r.Architecture)
	if r.Note != "" {
		t.AppendRow([]any{"note", wrap(strings.Fields(r.Note))})
	}
	if s := r.Shape; s != nil {
		row("layers", "%d of width %d, %d heads of %d, %d key-value heads", s.Layers, s.Width, s.Heads, s.HeadDim, s.KVHeads)
		if s.Latent > 0 {
			row("latents", "%d numbers of a position, for all heads", s.Latent)
		}
		if s.Delta > 0 {
			row("delta nets", "%d of the layers", s.Delta)
		}
		if s.Mamba > 0 {
			row("state spaces", "%d of the layers", s.Mamba)
		}
		if s.Conv > 0 {
			row("convolutions", "%d of the layers", s.Conv)
		}
		if s.Experts > 0 {
			row("experts", "%d, %d used", s.Experts, s.Used)
		}
		if s.Shared > 0 {
			row("shared layer", "%d wide", s.Shared)
		}
		tied := ""
		if s.Tied {
			tied = ", head tied to the embedding"
		}
		row("vocabulary", "%d%s", s.Vocab, tied)
		row("context", "%d", s.Context)
	}
	row("parameters", "%d (%s)", r.Params, count(r.Params))
	row("tensors", "%d, %s, %.3f bits per weight", len(r.Tensors), size(r.Bytes), r.BPW)
	row("on disk", "%s", size(r.FileBytes))
	if r.Quantized != "" {
		row("quantized", "%s", r.Quantized)
	}
	if p := r.Provenance; p != nil {
		row("made by", "%s %s", p.Tool, strings.Join(p.Flags, " "))
		for _, s := range p.Sources {
			row("from", "%s, %s, %.16s…", s.Name, size(s.Bytes), s.Hash)
		}
		for _, n := range p.Notes {
			t.AppendRow([]any{"note", wrap(strings.Fields(n))})
		}
	}
	for _, f := range r.Files {
		row("attached", "%s, %s", f.Name, size(f.Bytes))
	}
	printTable(a.out, t)
	if len(r.Tensors) > 0 {
		fmt.Fprintln(a.out)
		a.printGroups("role", r.Roles)
		fmt.Fprintln(a.out)
		a.printGroups("scheme", r.Schemes)
	}
}

func (a *app) printGroups(name string, groups []inspect.Group) {
	header := []any{name, "tensors", "parameters", "size", "bpw", ""}
	t := newTable(1, header[:5]...)
	if name == "role" {
		header[5] = "schemes"
		t = newTable(1, header...)
	}
	for _, g := range groups {
		row := []any{g.Name, g.Tensors, count(g.Params), size(g.Bytes), fmt.Sprintf("%.3f", g.BPW)}
		if name == "role" {
			row = append(row, clip(strings.Join(g.Schemes, " "), 40))
		}
		t.AppendRow(row)
	}
	printTable(a.out, t)
}

func (a *app) printTensors(r *inspect.Report) {
	fmt.Fprintln(a.out)
	t := newTable(3, "tensor", "role", "scheme", "shape", "size", "bpw")
	for _, x := range r.Tensors {
		shape := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(x.Shape)), "×"), "[]")
		t.AppendRow([]any{clip(x.Name, 42), x.Role, clip(x.Scheme, 12), shape, size(x.Bytes), fmt.Sprintf("%.3f", x.BPW)})
	}
	printTable(a.out, t)
}
