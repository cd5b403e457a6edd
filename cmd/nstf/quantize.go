package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats/corpus"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/quantize/encode"
	"github.com/nstf/nstf/quantize/pipeline"
)

func (a *app) quantizeCommand() *cobra.Command {
	var out, scheme, embed, head string
	var asJSON bool
	var calib calibration
	c := &cobra.Command{
		Use: "quantize SRC -o OUT.nstf --scheme SCHEME", Short: "Make a model smaller by rounding its matrices to a scheme", Args: cobra.ExactArgs(1),
		Long: `Round every matrix of a model to the nearest values of a scheme. The head (or the
embedding table that it is tied to) gets q6_k where SCHEME has fewer bits, since its
errors reach the output directly. Norms, biases, learned positions and routers stay as
they are. A matrix whose rows the scheme's blocks do not divide gets the nearest scheme
that fits; these are listed.

Schemes: ` + strings.Join(encode.Schemes(), ", ") + `.

tcq2 to tcq6 are trellis codes of 2 to 6 bits over rotated weights: a fraction of the
error of the others at the same size, found by a search that takes minutes instead of
seconds. They are calibrated: --calib names text (.txt or .jsonl) like what the model
will read. Block by block, each behind those that are quantized already, the errors of
some weights are answered by others, weighed by what that text makes the model read. The
head gets one bit more. --embed-scheme and --head-scheme may be of either kind.`,
		Example: "  nstf quantize ./Llama-3.2-1B -o llama-q4.nstf --scheme q4_k\n  nstf quantize ./Llama-3.2-1B -o llama-3bit.nstf --scheme tcq3 --calib text.jsonl\n  nstf quantize model.nstf -o small.nstf --scheme q4_0 --head-scheme q8_0",
		RunE: func(c *cobra.Command, args []string) error {
			if err := calib.check(scheme, embed, head); err != nil {
				return &usageError{err}
			}
			flags := []string{"--scheme=" + scheme}
			if embed != "" {
				flags = append(flags, "--embed-scheme="+embed)
			}
			if head != "" {
				flags = append(flags, "--head-scheme="+head)
			}
			if calib.bits > 0 {
				return a.calibrated(c.Context(), args[0], out, &calib, flags, asJSON)
			}
			p, err := encode.NewPolicy(scheme, embed, head)
			if err != nil {
				return &usageError{err}
			}
			return a.encode(c.Context(), args[0], out, encode.Options{Policy: p, Flags: flags}, "quantizing", asJSON)
		},
	}
	f := c.Flags()
	f.StringVarP(&out, "output", "o", "", "package to write")
	f.StringVar(&scheme, "scheme", "", "scheme of the linear layers")
	f.StringVar(&embed, "embed-scheme", "", "scheme of the embedding table; default: SCHEME")
	f.StringVar(&head, "head-scheme", "", "scheme of the head; default: q6_k, or SCHEME where that has more bits")
	f.StringVar(&calib.text, "calib", "", "text to calibrate on, .txt or .jsonl; for tcq schemes")
	f.IntVar(&calib.windows.Samples, "samples", 128, "windows of the text; 0: all")
	f.IntVar(&calib.windows.Context, "ctx", 512, "tokens of a window")
	f.Int64Var(&calib.seed, "seed", 1, "choice of windows and of rotations")
	f.BoolVar(&asJSON, "json", false, "print a JSON report")
	c.MarkFlagRequired("output")
	c.MarkFlagRequired("scheme")
	return c
}

// A calibration is what quantizing to trellis codes is told.
type calibration struct {
	text                      string
	windows                   calibrate.Windows
	seed                      int64
	bits                      int // of trellis codes; 0: another scheme
	name, embedName, headName string
}

// check reads the schemes' names. With bits left at 0 nothing is to be
// calibrated.
func (c *calibration) check(name, embed, head string) error {
	if c.bits = plan.TrellisBits(name); c.bits == 0 {
		if c.text != "" {
			return fmt.Errorf("--calib goes with a tcq scheme, not with %q", name)
		}
		return nil
	}
	if c.text == "" {
		return fmt.Errorf("%s needs text to calibrate on: --calib FILE", name)
	}
	if c.seed < 0 || c.windows.Samples < 0 || c.windows.Context < 2 {
		return fmt.Errorf("--seed and --samples are not negative, and --ctx is at least 2")
	}
	c.windows.Seed = uint64(c.seed)
	c.name, c.embedName, c.headName = name, embed, head
	return nil
}

// calibrated quantizes to trellis codes; what they cannot hold gets the nearest
// scheme that is fitted by rounding.
func (a *app) calibrated(ctx context.Context, src, out string, c *calibration, flags []string, asJSON bool) error {
	m, err := model.Open(src)
	if err != nil {
		return err
	}
	defer m.Close()
	texts, err := corpus.Read(c.text)
	if err != nil {
		return err
	}
	tok, err := m.Tokenizer()
	if err != nil {
		return err
	}
	windows, err := c.windows.Cut(tok, c.text, texts)
	if err != nil {
		return err
	}
	p, err := pipeline.Chosen{Scheme: c.name, Embed: c.embedName, Head: c.headName}.Plan(m)
	if err != nil {
		return &usageError{err}
	}
	p.Seed = c.seed
	step, end := a.progress("searching codes", "weights")
	fitted, err := pipeline.Run(ctx, m, p, pipeline.Options{Windows: windows, Progress: step})
	end()
	if err != nil {
		return err
	}
	flags = append(flags, fmt.Sprintf("--samples=%d", c.windows.Samples), fmt.Sprintf("--ctx=%d", c.windows.Context), fmt.Sprintf("--seed=%d", c.seed))
	return a.write(ctx, m, out, encode.Options{Fitted: fitted.Tensors, Flags: flags, Sources: []nstf.Source{{Role: "text", Name: filepath.Base(c.text), Path: c.text}}}, "writing", asJSON)
}
