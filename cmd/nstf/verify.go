package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/nstf"
)

func (a *app) verifyCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "verify MODEL.nstf", Short: "Check every hash of a package; name what is damaged", Args: cobra.ExactArgs(1),
		Long: `Read a whole package and check the hash of its header, of every tensor and of
every attached file. Damage is named with its place and ends with exit code 3.`,
		Example: "  nstf verify model.nstf\n  nstf verify model.nstf --json",
		RunE: func(c *cobra.Command, args []string) error {
			if info, err := os.Stat(args[0]); err == nil && info.IsDir() {
				return formats.Errorf(args[0], "", "a directory: verify reads packages")
			}
			p, err := nstf.Open(args[0])
			if err != nil {
				return err
			}
			defer p.Close()
			step, end := a.progress("verifying", "bytes")
			err = p.Verify(c.Context(), step)
			end()
			if err != nil {
				return err
			}
			tensors, files := len(p.Tensors()), len(p.Files())
			if asJSON {
				return printJSON(a.out, map[string]any{"path": args[0], "root": p.Root().String(), "tensors": tensors, "files": files, "bytes": p.Size()})
			}
			fmt.Fprintf(a.out, "%s: whole. %d tensors, %d attached files, %s, root %s\n", args[0], tensors, files, size(p.Size()), p.Root())
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
