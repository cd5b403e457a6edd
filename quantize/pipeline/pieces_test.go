package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/work"
	"github.com/nstf/nstf/quantize/pipeline"
)

// TestPiecesByShards has shards that are stopped one after the other make a piece each of one
// tensor, and damages a piece: it alone is made again, and the bytes are those of one process.
func TestPiecesByShards(t *testing.T) {
	for _, c := range []struct {
		model, scheme, tensor string
		rows                  int64 // of a piece
	}{
		{"llama-31", "q4_0", "embed.weight", 128},
		{"mixtral", "q8_0", "blocks.0.moe.gate.weight", 32},
	} {
		t.Run(c.model, func(t *testing.T) {
			m, err := checkpoint.Open("../../testdata/micro/" + c.model)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			dir := t.TempDir()
			q := pipeline.Request{Out: atomicfile.Scratch(filepath.Join(dir, "whole.nstf")), Windows: longWindows(m.Graph.Vocab), Plan: alone(t, planned(t, m, c.scheme), c.tensor), Tool: "test", Threads: 1}
			if _, err := pipeline.Quantize(t.Context(), m, q); err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(q.Out.Path())
			if err != nil {
				t.Fatal(err)
			}
			folder := filepath.Join(dir, "work")
			q.Work, q.Silence = work.Dir(folder), time.Second
			// share has a shard make so many pieces, and returns how many weights it fitted.
			share := func(shard, pieces int) (fitted int64) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				q, calls := q, 0
				q.Out, q.Shard = nil, &pipeline.Shard{Index: shard, Piece: 1}
				q.Progress = func(string, string) (func(done, total int64), func()) {
					return func(done, _ int64) {
						if fitted = done; done > 0 {
							if calls++; calls > pieces {
								cancel()
							}
						}
					}, func() {}
				}
				if err := pipeline.Share(ctx, m, q); err != nil && !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				return fitted
			}
			share(0, 1)
			share(1, 1)
			left, err := filepath.Glob(filepath.Join(folder, "piece+*.nstf"))
			if err != nil || len(left) != 2 {
				t.Fatalf("two shards that made a piece each left %q, %v", left, err)
			}
			data, err := os.ReadFile(left[0])
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)/2] ^= 1
			if err := os.WriteFile(left[0], data, 0o666); err != nil {
				t.Fatal(err)
			}
			x := m.Tensor(c.tensor)
			n, k := x.Rows()
			var at int64 // of the piece that is whole: two are fitted at once, and any may be first
			if _, err := fmt.Sscanf(filepath.Base(left[1]), "piece+%d+", &at); err != nil {
				t.Fatal(err)
			}
			whole := min(c.rows, n-at*c.rows) * k
			if got := share(2, 1000); got != x.Elements()-whole {
				t.Errorf("%d weights were fitted beside a whole piece of %d, of %d", got, whole, x.Elements())
			}
			if left, err := filepath.Glob(filepath.Join(folder, "piece*")); err != nil || len(left) > 0 {
				t.Errorf("there is %q beside the tensor, %v", left, err)
			}
			q.Merge = true
			q.Out = atomicfile.Scratch(filepath.Join(dir, "merged.nstf"))
			if _, err := pipeline.Quantize(t.Context(), m, q); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(q.Out.Path()); err != nil || !bytes.Equal(got, want) {
				t.Errorf("other bytes than one process makes, %v", err)
			}
		})
	}
}

// alone keeps all tensors of a plan but one.
func alone(t *testing.T, p *plan.Plan, name string) *plan.Plan {
	t.Helper()
	found := false
	for i := range p.Tensors {
		if p.Tensors[i].Name == name {
			found = true
		} else {
			p.Tensors[i].Recipe = plan.Recipe{}
		}
	}
	if !found {
		t.Fatalf("no tensor %q", name)
	}
	return p
}
