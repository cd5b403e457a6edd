package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
)

func (a *app) verifyCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "verify MODEL.nstf [TENSOR...]", Short: "Check every hash of a package; name what is damaged", Args: cobra.MinimumNArgs(1),
		Long: `Read a whole package and check the hash of its header, of every tensor and of
every attached file. Damage is named with its place and ends with exit code 3. Other
models hold no hashes, so that nothing can be checked of them (exit code 4).
Schemes that only a newer release decodes have hashes like others; they are named.
With names of tensors, as nstf inspect --tensors shows them, these alone are read.`,
		Example: "  nstf verify model.nstf\n  nstf verify model.nstf --json\n  nstf verify model.nstf embed.weight",
		RunE: func(c *cobra.Command, args []string) error {
			if err := hasHashes(args[0]); err != nil {
				return err
			}
			if len(args) > 1 {
				return a.verifyTensors(c.Context(), args[0], args[1:], asJSON)
			}
			p, err := a.verified(c.Context(), args[0])
			if err != nil {
				return err
			}
			defer p.Close()
			tensors, files := len(p.Tensors()), len(p.Files())
			if unknown := p.Unknown(); len(unknown) > 0 {
				a.warn("whole, but only a newer release decodes " + strings.Join(unknown, ", "))
			}
			if asJSON {
				return printJSON(a.out, map[string]any{"path": args[0], "root": p.Root().String(), "tensors": tensors, "files": files, "bytes": p.Size(),
					"unknown": append([]string{}, p.Unknown()...)})
			}
			fmt.Fprintf(a.out, "%s: whole. %d tensors, %d attached files, %s, root %s\n", formats.Printable(args[0]), tensors, files, size(p.Size()), p.Root())
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// verifyTensors checks the hashes of some tensors.
func (a *app) verifyTensors(ctx context.Context, path string, names []string, asJSON bool) error {
	p, err := nstf.OpenStored(path)
	if err != nil {
		return err
	}
	defer p.Close()
	var bytes int64
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		t, ok := p.Tensor(name)
		if !ok {
			return formats.Errorf(path, name, "there is no such tensor")
		}
		for _, part := range t.Parts {
			if err := part.Data.Check(); err != nil { // of the tensor, which one part reads and all know
				return err
			}
		}
		bytes += t.Size()
	}
	if asJSON {
		return printJSON(a.out, map[string]any{"path": path, "tensors": len(names), "bytes": bytes})
	}
	fmt.Fprintf(a.out, "%s: %d tensors are whole, %s\n", formats.Printable(path), len(names), size(bytes))
	return nil
}

// verified opens a package of which every hash is right.
func (a *app) verified(ctx context.Context, path string) (*nstf.Package, error) {
	p, err := nstf.OpenStored(path)
	if err != nil {
		return nil, err
	}
	step, end := a.progress("verifying", "bytes")
	err = p.Verify(ctx, step)
	end()
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// hasHashes refuses a model that is no package, for nothing else has hashes to check.
func hasHashes(path string) error {
	kind, err := checkpoint.Container(path)
	if err != nil || kind == model.KindNSTF || kind == "" {
		return nil // reading it says what is wrong
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if _, err := os.Stat(filepath.Join(path, configFile)); err != nil {
			return formats.Errorf(path, "", "a directory without a model: verify reads packages")
		}
	}
	e := formats.Unsupportedf(path, "", "verifying %s: it holds no hashes, as only packages do", kinds[kind])
	e.Hint = "nstf convert " + path + " -o MODEL.nstf makes a package of it, which nstf verify checks"
	return e
}

// kinds says what models without hashes are called.
var kinds = map[model.Kind]string{model.KindGGUF: "a GGUF file", model.KindHF: "a directory or a safetensors file"}
