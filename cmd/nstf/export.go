package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/export"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/quantize/encode"
)

func (a *app) exportCommand() *cobra.Command {
	var to outputFlag
	var dtype string
	var shard int64
	var coded bool
	c := &cobra.Command{
		Use: "export MODEL -o OUT.gguf|DIR/", Short: "Write a model as GGUF or as a Hugging Face directory", Args: outputIsFlag(cobra.ExactArgs(1)),
		Long: `Write a model for other programs: a GGUF file that llama.cpp loads, or a directory
that transformers loads.

To GGUF, tensors keep their scheme where ggml has it; --dtype casts the others. Into
a directory, quantized tensors are always expanded, to --dtype (bf16 where it is left
out). What the target would execute otherwise is refused with exit code 4, but for two
things that a warning names: llama.cpp has the tanh form of GELU only, and chooses
LongRoPE's factors by its context's size.

With --coded a directory keeps quantized and factored tensors as they are: transformers
loads it where Python has imported nstf.torch.`,
		Example: "  nstf export model.nstf -o model.gguf\n  nstf export model.nstf -o model-hf/ --dtype f16\n  nstf export model.nstf -o model-hf/ --coded",
		RunE: func(c *cobra.Command, args []string) error {
			if dtype != "" && !slices.Contains(encode.DTypes(), dtype) {
				return usagef("--dtype %q is not one of %s", dtype, strings.Join(encode.DTypes(), ", "))
			}
			if shard < 1 {
				return usagef("--shard-size %d MiB is not positive", shard)
			}
			toDir := isDir(to.path)
			if !toDir && !strings.HasSuffix(to.path, ".gguf") && to.path != "-" {
				return &usageError{err: fmt.Errorf("-o %s is neither a .gguf file nor a directory", to.path), hint: exportGuess(to.path)}
			}
			if coded && (!toDir || dtype != "") {
				return usagef("--coded is of a directory, whose tensors stay as they are")
			}
			m, err := checkpoint.Open(args[0])
			if err != nil {
				return err
			}
			defer m.Close()
			out, err := a.exportTo(to, toDir, m)
			if err != nil {
				return err
			}
			step, end := a.progress("exporting", "bytes")
			defer end()
			var x *export.Model
			if toDir {
				if coded {
					x, err = export.Coded(m)
				} else {
					x, err = export.HF(m, castTo(dtype, "bf16"))
				}
				if err == nil {
					err = x.WriteDir(c.Context(), out, shard<<20, step)
				}
			} else if x, err = export.GGUF(m, castTo(dtype, "")); err == nil {
				err = x.WriteGGUF(c.Context(), out, step)
			}
			end()
			if err != nil {
				return err
			}
			for _, w := range x.Warnings {
				a.warn(w)
			}
			written, err := sizeOf(to.path)
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "%s: %d tensors, %s\n", formats.Printable(to.path), len(x.Tensors), size(written))
			return nil
		},
	}
	to.add(c.Flags(), "GGUF file, or directory for safetensors, to write")
	c.Flags().StringVar(&dtype, "dtype", "", "expand what the target cannot hold to f32, f16 or bf16")
	c.Flags().BoolVar(&coded, "coded", false, "into a directory: keep quantized tensors as they are, for nstf.torch")
	c.Flags().Int64Var(&shard, "shard-size", 5000, "MiB of tensors per safetensors file")
	c.MarkFlagRequired("output")
	return c
}

// sizeOf returns the bytes of a file, or of the files of a folder.
func sizeOf(path string) (sum int64, err error) {
	err = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	return sum, err
}

// exportTo opens what is asked for: a directory, or a GGUF file.
func (a *app) exportTo(f outputFlag, toDir bool, m *model.Model) (*atomicfile.Output, error) {
	if toDir {
		return a.folder(f.path)
	}
	return a.output(f.path, ggufKind, f.force, m)
}

// exportGuess says what an output of export that is neither may have meant.
func exportGuess(path string) string {
	switch ext := strings.ToLower(filepath.Ext(path)); {
	case ext == ".nstf":
		return "nstf convert and nstf quantize write packages; export writes for other programs"
	case ext == ".gguf":
		return "-o " + strings.TrimSuffix(path, filepath.Ext(path)) + ".gguf"
	case ext == ".safetensors":
		return "-o " + strings.TrimSuffix(path, filepath.Ext(path)) + "/ for a directory of safetensors with its config.json"
	}
	return fmt.Sprintf("-o %s/ for a Hugging Face directory, -o %s.gguf for llama.cpp", path, path)
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
