package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/formats/work"
	"github.com/nstf/nstf/quantize/pipeline"
)

// longWindows are windows of several groups.
func longWindows(vocab int64) [][]int32 {
	out := make([][]int32, 37)
	for i := range out {
		out[i] = make([]int32, 90)
		for j := range out[i] {
			out[i][j] = int32(i*i*31+j*(7+i)) % int32(vocab)
		}
	}
	return out
}

// TestGroupsDoNotDependOnShards has one to four shards make a package, whose bytes are
// those that one process makes; shards that are stopped, pieces, sums and states that are damaged
// meanwhile change nothing.
func TestGroupsDoNotDependOnShards(t *testing.T) {
	for _, name := range []string{"llama-31", "mixtral", "llama-31 by statistics", "mixtral by statistics", "llama-tied in parallel"} {
		t.Run(name, func(t *testing.T) {
			model, way, _ := strings.Cut(name, " ")
			m, err := checkpoint.Open("../../testdata/micro/" + model)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			all := longWindows(m.Graph.Vocab)
			if n := len(calibrate.Keep{}.Groups(all)) - 1; n != 3 {
				t.Fatalf("%d groups", n)
			}
			dir := t.TempDir()
			request := func(out string) pipeline.Request {
				q := pipeline.Request{Out: atomicfile.Scratch(filepath.Join(dir, out)), Windows: all, Plan: planned(t, m, "q4_0"), Tool: "test", Threads: 1, Parallel: way == "in parallel"}
				if way == "by statistics" { // of which each number is in the bytes, or the plan is another
					p := q.Plan
					q.Plan, q.Planner = nil, func(_ context.Context, s *stats.File, _ float64, _ pipeline.Revision) (*plan.Plan, error) {
						raw, err := s.Bytes()
						p := *p
						p.Source.Stats = fmt.Sprint(crc32.ChecksumIEEE(raw))
						return &p, err
					}
				}
				return q
			}
			if _, err := pipeline.Quantize(t.Context(), m, request("whole.nstf")); err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(filepath.Join(dir, "whole.nstf"))
			if err != nil {
				t.Fatal(err)
			}
			for shards := range 5 {
				q := request(fmt.Sprintf("%d.nstf", shards))
				folder := filepath.Join(dir, fmt.Sprintf("work%d", shards))
				q.Work, q.Silence = work.Dir(folder), time.Second
				piece := int64(1 - shards%2) // weights: as few as can be, or so many that none is cut
				share := func(ctx context.Context, i int) error {
					q := q
					q.Out, q.Shard = nil, &pipeline.Shard{Index: i, Piece: piece}
					return pipeline.Share(ctx, m, q)
				}
				if shards == 0 { // stopped, and what it left damaged, and gone on with
					interrupt(t, folder, share, way)
					shards = 1
				}
				var wait sync.WaitGroup
				errs := make([]error, shards)
				for i := range shards {
					wait.Go(func() { errs[i] = share(t.Context(), i) })
				}
				wait.Wait()
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
				if shards == 1 && way == "" { // as if the last had been stopped before it removed them
					for _, kind := range []string{"sums+of+block+%d+group+0+input+0", "factors+of+block+%d+input+0"} {
						if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf(kind+".nstf", len(m.Graph.Blocks))), nil, 0o666); err != nil {
							t.Fatal(err)
						}
					}
					if err := share(t.Context(), 0); err != nil {
						t.Fatal(err)
					}
				}
				for _, left := range []string{"sums+*", "factors+*", "piece*", "*.lease", "first*", "sensitivity*"} {
					if files, err := filepath.Glob(filepath.Join(folder, left)); err != nil || len(files) > 0 {
						t.Errorf("%d shards leave %q, %v", shards, files, err)
					}
				}
				q.Merge = true
				if _, err := pipeline.Quantize(t.Context(), m, q); err != nil {
					t.Fatal(err)
				}
				got, err := os.ReadFile(q.Out.Path())
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s: other bytes than one process makes, %v", q.Out.Path(), err)
				}
			}
		})
	}
}

// interrupt stops a shard each time that it has left something new, and damages all that has
// come of groups, until a piece of a tensor, and sums, factors and states of the second block were there, and by statistics a part of
// them and a sensitivity, or the shard ends: it may be too fast for who looks at its files.
func interrupt(t *testing.T, work string, share func(ctx context.Context, i int) error, way string) {
	t.Helper()
	want := map[string][]string{
		"":              {"piece+1", "sums+of+block+0", "sums+of+block+1", "states+of+block+1", "factors+of+block+1"},
		"by statistics": {"first+sums+of+block+0", "first+sums+of+block+1", "first+states+of+block+1", "first-0.nstats", "sensitivity+of+matrix+3.nstf"},
		"in parallel":   {"piece+1", "first+sums+of+block+0", "first+states+of+block+1", "first-1.nstats"},
	}[way]
	look := func() (files []string) {
		for _, pattern := range []string{"s*+of+*.nstf", "factors+*.nstf", "piece+*.nstf", "first*.ns*"} {
			list, err := filepath.Glob(filepath.Join(work, pattern))
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, list...)
		}
		return slices.DeleteFunc(files, func(name string) bool { return strings.Contains(name, ".tmp-") })
	}
	seen, damaged := map[string]bool{}, map[string]bool{}
	for round := 0; slices.ContainsFunc(want, func(kind string) bool { return !damaged[kind] }); round++ {
		if round > 200 {
			t.Fatalf("only %v were seen", damaged)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- share(ctx, 0) }()
		var err error
	watch:
		for {
			select {
			case err = <-ended:
				break watch
			case <-time.After(200 * time.Microsecond):
			}
			for _, f := range look() {
				if !seen[f] {
					seen[f] = true
					cancel()
				}
			}
		}
		cancel()
		if err == nil && len(damaged) > 0 {
			return
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("ended with %v, with %v damaged", err, damaged)
		}
		for _, f := range look() {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)*3/4] ^= 1
			data[len(data)-1] ^= 1
			if err := os.WriteFile(f, data, 0o666); err != nil {
				t.Fatal(err)
			}
			kind, _, _ := strings.Cut(filepath.Base(f), "+group")
			kind, _, _ = strings.Cut(kind, "+input")
			kind, _, _ = strings.Cut(kind, "+of+tensor")
			damaged[kind] = true
		}
	}
}
