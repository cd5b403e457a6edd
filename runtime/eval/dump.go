package eval

import (
	"bufio"
	"context"
	"fmt"

	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/npy"
	"github.com/nstf/nstf/runtime/exec"
)

// DumpLogits runs a model over token ids as they are, in one pass, and writes
// the float32 logits [T][V] that follow each of them as a NumPy
// array; with Steps, those of the last so many tokens, which are run one by one. Of the
// options only Threads, Exact, KV, Policy, Steps and Progress count. Nothing is left at path
// after a failure.
func DumpLogits(ctx context.Context, m *model.Model, ids []int32, out *atomicfile.Output, o Options) error {
	if o.Steps > len(ids) {
		return fmt.Errorf("%d steps of %d tokens", o.Steps, len(ids))
	}
	shape := []int64{int64(len(ids)), m.Graph.Vocab}
	ex, seq, err := exec.Alone(m, o.exec(max(shape[0], 1)))
	if err != nil {
		return err
	}
	defer ex.Close()
	if o.Steps > 0 {
		shape[0] = int64(o.Steps)
	}
	size, err := npy.Size(shape...)
	if err != nil {
		return err
	}
	f, err := out.Create(size)
	if err != nil {
		return err
	}
	defer f.Abort()
	buf := bufio.NewWriterSize(f, 1<<20)
	w, err := npy.NewWriter(buf, shape...)
	if err != nil {
		return err
	}
	all := &windows{size: len(ids) + 1, list: [][]int32{ids}}
	if o.Steps > 0 {
		all.first, all.stepped = len(ids)-o.Steps, true
	}
	pos := all.first - 1
	err = all.run(ctx, seq, 0, func(row []float32) error {
		pos++
		if err := ctx.Err(); err != nil {
			return err
		}
		if o.Progress != nil {
			o.Progress(int64(pos+1), int64(len(ids)))
		}
		return w.Write(row)
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := buf.Flush(); err != nil {
		return err
	}
	return f.Commit()
}
