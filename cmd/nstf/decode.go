package main

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/npy"
)

// decodeCommand is what the Python module asks for weights in float32.
func (a *app) decodeCommand() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use: "decode MODEL -o DIR TENSOR...", Short: "Write tensors as NumPy arrays, decoded to float32", Args: cobra.MinimumNArgs(2),
		Long: `Write the tensors of a model, by the names that nstf inspect --tensors shows, as 0.npy,
1.npy and so on into a new folder: in float32 whatever they are stored in, factors
multiplied out. Those of a package are checked against their hashes.`,
		Example: "  nstf dev decode m.nstf -o arrays/ blocks.0.attn.q.weight",
		RunE: func(c *cobra.Command, args []string) error {
			a.started = true // as root does for its own commands
			m, err := checkpoint.Open(args[0])
			if err != nil {
				return err
			}
			defer m.Close()
			o, err := a.folder(out)
			if err != nil {
				return err
			}
			dir, err := o.CreateDir()
			if err != nil {
				return err
			}
			defer dir.Abort()
			for i, name := range args[1:] {
				t, ok := m.Find(name)
				for _, p := range m.Passthrough {
					if !ok && p.Name == name {
						t, ok = p, true
					}
				}
				if !ok {
					return formats.Errorf(args[0], name, "there is no such tensor")
				}
				size, err := npy.Size(t.Shape...)
				if err != nil {
					return err
				}
				f, err := dir.Create(fmt.Sprintf("%d.npy", i), size)
				if err != nil {
					return err
				}
				defer f.Abort()
				if err := writeDecoded(c.Context(), f, &t); err != nil {
					return err
				}
				if err := f.Commit(); err != nil {
					return err
				}
			}
			return dir.Commit()
		},
	}
	c.Flags().StringVarP(&out, "output", "o", "", "folder to write")
	_ = c.MarkFlagRequired("output") // fails for flags that are not there
	return c
}

// decodedAtOnce is how many numbers each thread decodes before they are written.
const decodedAtOnce = 1 << 18

// writeDecoded writes a tensor row by row, decoded by all cores.
func writeDecoded(ctx context.Context, to io.Writer, t *formats.Tensor) error {
	w, err := npy.NewWriter(to, t.Shape...)
	if err != nil {
		return err
	}
	n, k := t.Rows()
	threads := int64(runtime.NumCPU())
	each := max(1, decodedAtOnce/max(k, 1))
	readers := make([]*form.Matrix, threads)
	for i := range readers {
		if readers[i], err = form.Open(t); err != nil {
			return err
		}
	}
	buf := make([]float32, threads*each*k)
	for from := int64(0); from < n; from += threads * each {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		to := min(n, from+threads*each)
		var g errgroup.Group
		for i := range threads {
			g.Go(func() error {
				for row := from + i*each; row < min(to, from+(i+1)*each); row++ {
					readers[i].DecodeRow(buf[(row-from)*k:(row-from+1)*k], row)
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		if err := w.Write(buf[:(to-from)*k]); err != nil {
			return err
		}
	}
	return w.Close()
}
