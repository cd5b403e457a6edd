package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats/attention"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/quantize/encode"
)

func (a *app) convertCommand() *cobra.Command {
	var out outputFlag
	var dtype string
	var with attachedFiles
	var asJSON bool
	c := &cobra.Command{
		Use: "convert SRC -o OUT.nstf", Short: "Turn a Hugging Face directory or a GGUF file into a package", Args: outputIsFlag(cobra.ExactArgs(1)),
		Long: `Turn a model into a package without losing anything: tensors keep their element
types and quantized blocks, tokenizer and configuration travel along byte for byte,
and tensors that the architecture does not use are carried along, listed.

--attention puts a policy of attention into the package, as calibrate --attention measured
it: --attention policy of run and others then reads by it. --kv does the same with the bits of
keys and values that calibrate --kv-bpw or --kv-kld chose, which run and others then take.

--dtype casts all tensors of the model itself, which expands quantized ones. --stream reads a model of a
hub (see nstf pull) as it is needed, without room for it on the disk.`,
		Example: "  nstf convert ./Llama-3.2-1B -o llama.nstf\n  nstf convert model.Q4_K_M.gguf -o model.nstf\n  nstf convert ./gpt2 -o gpt2.nstf --dtype bf16",
		RunE: func(c *cobra.Command, args []string) error {
			o := encode.Options{DType: dtype}
			if dtype != "" {
				if !slices.Contains(encode.DTypes(), dtype) {
					return usagef("--dtype %q is not one of %s", dtype, strings.Join(encode.DTypes(), ", "))
				}
				o.Flags = []string{"--dtype=" + dtype}
			}
			if with != (attachedFiles{}) {
				return a.convertWith(c.Context(), args[0], out, o, with, asJSON)
			}
			return a.encode(c.Context(), args[0], out, o, "converting", asJSON)
		},
	}
	out.add(c.Flags(), "package to write")
	addStream(c.Flags())
	c.Flags().StringVar(&dtype, "dtype", "", "cast to f32, f16 or bf16; default: keep everything as it is")
	c.Flags().StringVar(&with.policy, "attention", "", "`FILE` of calibrate --attention that goes into the package")
	c.Flags().StringVar(&with.kept, "kv", "", "`FILE` of calibrate --kv-bpw or --kv-kld that goes into the package")
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON report")
	c.MarkFlagRequired("output")
	return c
}

// attachedFiles are what calibrate measured of a model and a package carries; "": nothing.
type attachedFiles struct{ policy, kept string }

// convertWith is encode with files in the package.
func (a *app) convertWith(ctx context.Context, src string, out outputFlag, o encode.Options, with attachedFiles, asJSON bool) error {
	m, err := checkpoint.OpenFrom(a.remote, src)
	if err != nil {
		return err
	}
	defer m.Close()
	var read []string
	if with.policy != "" {
		p, err := attention.Read(with.policy)
		if err != nil {
			return err
		}
		if err := p.Fits(with.policy, calibrate.PolicyHeads(m)); err != nil {
			return err
		}
		o.Files, read = append(o.Files, nstf.File{Name: nstf.AttentionFile, Data: p.Encode()}), append(read, with.policy)
	}
	if with.kept != "" {
		k, err := attention.ReadKept(with.kept)
		if err != nil {
			return err
		}
		if err := k.Fits(with.kept, len(m.Graph.Blocks)); err != nil {
			return err
		}
		o.Files, read = append(o.Files, nstf.File{Name: nstf.KVFile, Data: k.Encode()}), append(read, with.kept)
	}
	return a.write(ctx, m, out, o, "converting", asJSON, read...)
}

// encode writes a package and says what became of the model: convert and
// quantize differ in their options alone.
func (a *app) encode(ctx context.Context, src string, out outputFlag, o encode.Options, what string, asJSON bool) error {
	m, err := checkpoint.OpenFrom(a.remote, src)
	if err != nil {
		return err
	}
	defer m.Close()
	return a.write(ctx, m, out, o, what, asJSON)
}

// write writes an open model as a package and reports; inputs are what was read beside it.
func (a *app) write(ctx context.Context, m *model.Model, to outputFlag, o encode.Options, what string, asJSON bool, inputs ...string) error {
	out, err := a.packageOutput(to, m, inputs...)
	if err != nil {
		return err
	}
	was := describeFile(to.path)
	o.Tool = toolName()
	step, end := a.progress(what, "bytes")
	o.Progress = step
	r, err := encode.Run(ctx, m, out, o)
	end()
	if err != nil {
		return err
	}
	for _, w := range r.Warnings {
		a.warn(w)
	}
	a.sayReplaced(to.path, was)
	if asJSON {
		return printJSON(a.out, r)
	}
	a.printEncoded(r)
	return nil
}

// mostListed is how many names a list shows to people.
const mostListed = 50

func (a *app) printEncoded(r *encode.Report) {
	fmt.Fprintf(a.out, "%s: %s, %s parameters, %.3f bits per weight\ntensors: %s, were %s\n",
		clip(r.Path, 45), size(r.FileBytes), count(r.Params), r.BPW, size(r.TensorBytes), size(r.SourceBytes))
	if f := r.Fallbacks(); len(f) > 0 {
		fmt.Fprintf(a.out, "%d tensors whose rows do not fit the scheme's blocks:\n", len(f))
		t := newTable(4, "tensor", "wanted", "got", "shape")
		for _, x := range f {
			t.AppendRow([]any{clip(x.Name, 50), x.Wanted, x.To, strings.Trim(strings.ReplaceAll(fmt.Sprint(x.Shape), " ", "×"), "[]")})
		}
		printTable(a.out, t)
	}
	if len(r.Passthrough) > 0 {
		fmt.Fprintf(a.out, "%d tensors that the architecture does not use, carried along:\n", len(r.Passthrough))
		for i, name := range r.Passthrough {
			if i == mostListed {
				fmt.Fprintf(a.out, "  and %d more: --json lists them all\n", len(r.Passthrough)-i)
				break
			}
			fmt.Fprintf(a.out, "  %s\n", clip(name, tableWidth-2))
		}
	}
}
