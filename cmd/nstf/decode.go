package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/npy"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
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
			var buf []float32 // what is decoded before it is written, of the largest tensor
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
				if buf, err = writeDecoded(c.Context(), f, &t, buf); err != nil {
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

// decodedAtOnce is about how many numbers each thread decodes before they are written: L2 holds them.
const decodedAtOnce = 1 << 18

// A rowsDecoder writes rows [row, row+n) to dst, for one goroutine.
type rowsDecoder func(dst []float32, row, n int)

// decodersOf opens a tensor for so many goroutines. Groups of together rows are decoded at
// once.
func decodersOf(t *formats.Tensor, threads int) (list []rowsDecoder, together int, err error) {
	if t.Form == "" {
		m, err := scheme.Open(t)
		if err != nil {
			return nil, 0, err
		}
		set := cpu.Best()
		for range threads {
			d := set.Decoder(m)
			list, together = append(list, d.Decode), d.Together()
		}
		return list, together, nil
	}
	for range threads {
		m, err := form.Open(t)
		if err != nil {
			return nil, 0, err
		}
		list = append(list, func(dst []float32, row, n int) {
			for i := range n {
				m.DecodeRow(dst[i*int(m.K):], int64(row+i))
			}
		})
	}
	return list, 1, nil
}

// writeDecoded writes a tensor row by row, decoded by all cores. It returns the work space that it
// was given, or a larger one.
func writeDecoded(ctx context.Context, to io.Writer, t *formats.Tensor, buf []float32) ([]float32, error) {
	w, err := npy.NewWriter(to, t.Shape...)
	if err != nil {
		return nil, err
	}
	decoders, together, err := decodersOf(t, runtime.NumCPU())
	if err != nil {
		return nil, err
	}
	rows, columns := t.Rows()
	n, k := int(rows), int(columns)
	each := max(1, decodedAtOnce/max(k, 1)/together) * together
	size := min(len(decoders)*each, n) * k
	buf = slices.Grow(buf[:0], size)[:size]
	for from := 0; from < n; from += len(decoders) * each {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		all := min(n-from, len(decoders)*each)
		var g sync.WaitGroup
		for i, decode := range decoders {
			if at := i * each; at < all {
				g.Go(func() { decode(buf[at*k:], from+at, min(each, all-at)) })
			}
		}
		g.Wait()
		if err := w.Write(buf[:all*k]); err != nil {
			return nil, err
		}
	}
	return buf, w.Close()
}
