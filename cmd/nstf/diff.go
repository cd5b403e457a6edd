package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/compare"
)

func (a *app) diffCommand() *cobra.Command {
	var all, stored, asJSON bool
	c := &cobra.Command{
		Use: "diff A B", Short: "Compare two models tensor by tensor", Args: cobra.ExactArgs(2),
		Long: `Compare two models of one kind, such as two packages of one checkpoint, or a package and
its source: how each tensor is stored in either, its bits and bytes, and how far its weights
lie apart, as a part of those in A (0 where they are equal). What is alike is left out,
unless --all asks for it. --stored reads no weights.`,
		Example: "  nstf diff llama-3bit.nstf llama-4bit.nstf\n  nstf diff ./Llama-3.2-1B llama-3bit.nstf --all\n  nstf diff a.nstf b.nstf --json",
		RunE: func(c *cobra.Command, args []string) error {
			m, err := checkpoint.Open(args[0])
			if err != nil {
				return err
			}
			defer m.Close()
			n, err := checkpoint.Open(args[1])
			if err != nil {
				return err
			}
			defer n.Close()
			step, end := a.progress("comparing", "weights")
			r, err := compare.Run(c.Context(), m, n, compare.Options{Weights: !stored, Progress: step})
			end()
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.out, r)
			}
			a.printDiff(r, all)
			return nil
		},
	}
	c.Flags().BoolVar(&all, "all", false, "list tensors that are alike, too")
	c.Flags().BoolVar(&stored, "stored", false, "compare how tensors are stored, not their weights")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, with all tensors")
	return c
}

func (a *app) printDiff(r *compare.Report, all bool) {
	t := newTable(1, "", "tensors", "bits")
	t.AppendRow([]any{"A  " + clip(r.A.Path, 60), size(r.A.Bytes), fmt.Sprintf("%.3f", r.A.BPW)})
	t.AppendRow([]any{"B  " + clip(r.B.Path, 60), size(r.B.Bytes), fmt.Sprintf("%.3f", r.B.BPW)})
	printTable(a.out, t)
	fmt.Fprintln(a.out)
	t = newTable(3, "tensor", "A", "B", "bits", "bits", "size", "size", "difference")
	alike := 0
	for i := range r.Tensors {
		x := &r.Tensors[i]
		if !all && !x.Changed() {
			alike++
			continue
		}
		n := int64(1)
		for _, d := range x.Shape {
			n *= d
		}
		bits := func(bytes int64) string { return fmt.Sprintf("%.2f", 8*float64(bytes)/float64(max(1, n))) }
		row := []any{clip(x.Name, 28), clip(x.RecipeA, 11), clip(x.RecipeB, 11), bits(x.BytesA), bits(x.BytesB), size(x.BytesA), size(x.BytesB), "not read"}
		if x.Difference != nil {
			row[7] = fmt.Sprintf("%.4f", *x.Difference)
		}
		t.AppendRow(row)
	}
	if alike < len(r.Tensors) {
		printTable(a.out, t)
	}
	if alike > 0 {
		fmt.Fprintf(a.out, "%d tensors are alike\n", alike)
	}
	for _, only := range []struct {
		name string
		list []string
	}{{"A", r.OnlyA}, {"B", r.OnlyB}} {
		for _, name := range only.list {
			fmt.Fprintf(a.out, "only in %s: %s\n", only.name, formats.Printable(formats.Brief(name, tableWidth)))
		}
	}
}
