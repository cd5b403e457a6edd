package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/quantize/encode"
)

func (a *app) quantizeCommand() *cobra.Command {
	var out, scheme, embed, head string
	var asJSON bool
	c := &cobra.Command{
		Use: "quantize SRC -o OUT.nstf --scheme SCHEME", Short: "Make a model smaller by rounding its matrices to a scheme", Args: cobra.ExactArgs(1),
		Long: `Round every matrix of a model to the nearest values of a scheme. The head (or the
embedding table that it is tied to) gets q6_k where SCHEME has fewer bits, since its
errors reach the output directly. Norms, biases, learned positions and routers stay as
they are. A matrix whose rows the scheme's blocks do not divide gets the nearest scheme
that fits; these are listed.

Schemes: ` + strings.Join(encode.Schemes(), ", ") + ".",
		Example: "  nstf quantize ./Llama-3.2-1B -o llama-q4.nstf --scheme q4_k\n  nstf quantize model.nstf -o small.nstf --scheme q4_0 --head-scheme q8_0",
		RunE: func(c *cobra.Command, args []string) error {
			p, err := encode.NewPolicy(scheme, embed, head)
			if err != nil {
				return &usageError{err}
			}
			flags := []string{"--scheme=" + scheme}
			if embed != "" {
				flags = append(flags, "--embed-scheme="+embed)
			}
			if head != "" {
				flags = append(flags, "--head-scheme="+head)
			}
			return a.encode(c.Context(), args[0], out, encode.Options{Policy: p, Flags: flags}, "quantizing", asJSON)
		},
	}
	f := c.Flags()
	f.StringVarP(&out, "output", "o", "", "package to write")
	f.StringVar(&scheme, "scheme", "", "scheme of the linear layers")
	f.StringVar(&embed, "embed-scheme", "", "scheme of the embedding table; default: SCHEME")
	f.StringVar(&head, "head-scheme", "", "scheme of the head; default: q6_k, or SCHEME where that has more bits")
	f.BoolVar(&asJSON, "json", false, "print a JSON report")
	c.MarkFlagRequired("output")
	c.MarkFlagRequired("scheme")
	return c
}
