package main

import (
	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/export"
	"github.com/nstf/nstf/formats/safetensors"
	"github.com/nstf/nstf/quantize/encode"
)

// replaceCommand is how the Python module writes trained scales and norms back.
func (a *app) replaceCommand() *cobra.Command {
	var out outputFlag
	c := &cobra.Command{
		Use: "replace MODEL FILE.safetensors -o OUT.nstf", Short: "Write a package with other scales and norms", Args: cobra.ExactArgs(2),
		Long: `Write a model as a package with some tensors in the place of its own: those of FILE, by
the names, types and shapes that export --coded gives them. Codes stay what FILE makes
of them; the graph, the files and all other tensors stay as they are.`,
		Example: "  nstf dev replace m.nstf trained.safetensors -o trained.nstf",
		RunE: func(c *cobra.Command, args []string) error {
			a.started = true // as root does for its own commands
			path, err := a.fetched(c.Context(), args[0])
			if err != nil {
				return err
			}
			m, err := checkpoint.Open(path)
			if err != nil {
				return err
			}
			defer m.Close()
			f, err := safetensors.Open(args[1])
			if err != nil {
				return err
			}
			defer f.Close()
			made, err := export.Replaced(m, args[1], f.Tensors())
			if err != nil {
				return err
			}
			return a.write(c.Context(), made, out, encode.Options{Flags: []string{"dev replace"}}, "replacing", false, append(m.Inputs(), args[1])...)
		},
	}
	out.add(c.Flags(), "package to write")
	_ = c.MarkFlagRequired("output") // fails for flags that are not there
	return c
}
