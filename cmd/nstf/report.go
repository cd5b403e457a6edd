package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats/inspect"
	drawn "github.com/nstf/nstf/quantize/report"
)

func (a *app) reportCommand() *cobra.Command {
	var to outputFlag
	c := &cobra.Command{
		Use: "report MODEL... -o report.html", Short: "Draw what quantizing cost, by tensor, block and package", Args: cobra.MinimumNArgs(1),
		Long: `Write an HTML file that shows the accuracy ledgers of packages: KL divergence against
size of all of them, and for each the bits and errors by block and role, the errors
predicted and obtained, the drift of the hidden states, and every tensor's choice with
what would have come next. The file needs nothing beside it.`,
		Example: "  nstf report llama-3bit.nstf -o report.html\n  nstf report llama-*bit.nstf -o sizes.html",
		RunE: func(_ *cobra.Command, args []string) error {
			out, err := a.output(to.path, pageKind, to.force, nil, args...)
			if err != nil {
				return err
			}
			var packages []drawn.Package
			for _, path := range args {
				l, err := inspect.Ledger(path)
				if err != nil {
					return err
				}
				info, err := os.Stat(path)
				if err != nil {
					return err
				}
				packages = append(packages, drawn.Package{Name: filepath.Base(path), Bytes: info.Size(), Ledger: l})
			}
			if n := len(drawn.Alike(packages)); n > 1 {
				a.warn(fmt.Sprintf("the packages were measured on %d different sets of windows: the report compares those of one set alone; give quantize the same --calib, --ctx, --samples and --seed, or one --verify-text", n))
			}
			var page bytes.Buffer
			if err := drawn.Write(&page, packages); err != nil {
				return err
			}
			return out.WriteFile(page.Bytes())
		},
	}
	to.add(c.Flags(), "HTML file to write")
	c.MarkFlagRequired("output")
	return c
}
