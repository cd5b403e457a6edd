package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/quantize/encode"
)

func (a *app) exportCommand() *cobra.Command {
	var out, dtype string
	var shard int64
	c := &cobra.Command{
		Use: "export MODEL -o OUT.gguf|DIR/", Short: "Write a model as GGUF or as a Hugging Face directory", Args: cobra.ExactArgs(1),
		Long: `Write a model for other programs: a GGUF file that llama.cpp loads, or a directory
that transformers loads.

To GGUF, tensors keep their scheme where ggml has it; --dtype casts the others. Into
a directory, quantized tensors are always expanded, to --dtype (bf16 where it is left
out). What the target would execute otherwise is refused with exit code 4.`,
		Example: "  nstf export model.nstf -o model.gguf\n  nstf export model.nstf -o model-hf/ --dtype f16",
		RunE: func(c *cobra.Command, args []string) error {
			if dtype != "" && !slices.Contains(encode.DTypes(), dtype) {
				return usagef("--dtype %q is not one of %s", dtype, strings.Join(encode.DTypes(), ", "))
			}
			if shard < 1 {
				return usagef("--shard-size %d MiB is not positive", shard)
			}
			toDir := isDir(out)
			if !toDir && !strings.HasSuffix(out, ".gguf") {
				return usagef("-o %s is neither a .gguf file nor a directory (which ends in %q)", out, "/")
			}
			m, err := model.Open(args[0])
			if err != nil {
				return err
			}
			defer m.Close()
			step, end := a.progress("exporting", "bytes")
			defer end()
			var x *model.Export
			if toDir {
				if x, err = m.HF(castTo(dtype, "bf16")); err == nil {
					err = x.WriteDir(c.Context(), out, shard<<20, step)
				}
			} else if x, err = m.GGUF(castTo(dtype, "")); err == nil {
				err = x.WriteGGUF(c.Context(), out, step)
			}
			end()
			if err != nil {
				return err
			}
			for _, w := range x.Warnings {
				a.warn(w)
			}
			fmt.Fprintf(a.out, "%s: %d tensors\n", out, len(x.Tensors))
			return nil
		},
	}
	c.Flags().StringVarP(&out, "output", "o", "", "GGUF file, or directory for safetensors, to write")
	c.Flags().StringVar(&dtype, "dtype", "", "expand what the target cannot hold to f32, f16 or bf16")
	c.Flags().Int64Var(&shard, "shard-size", 5000, "MiB of tensors per safetensors file")
	c.MarkFlagRequired("output")
	return c
}

// isDir reports whether a path names a directory, there or to be made.
func isDir(path string) bool {
	if strings.HasSuffix(path, "/") || strings.HasSuffix(path, string(os.PathSeparator)) {
		return true
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// castTo returns the scheme of a --dtype, or of a default; nil for none.
func castTo(dtype, def string) *scheme.Scheme {
	if dtype == "" {
		dtype = def
	}
	s, ok := scheme.ByName(dtype)
	if !ok {
		return nil
	}
	return s
}
