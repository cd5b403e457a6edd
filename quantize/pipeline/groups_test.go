package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/checkpoint"
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

// TestGroupsDoNotDependOnShards has one, two and three shards make a package, whose bytes are
// those that one process makes; shards that are stopped, sums and states that are damaged
// meanwhile change nothing.
func TestGroupsDoNotDependOnShards(t *testing.T) {
	for _, name := range []string{"llama-31", "mixtral"} {
		t.Run(name, func(t *testing.T) {
			m, err := checkpoint.Open("../../testdata/micro/" + name)
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
				return pipeline.Request{Out: atomicfile.Scratch(filepath.Join(dir, out)), Windows: all, Plan: planned(t, m, "q4_0"), Tool: "test", Threads: 1}
			}
			if _, err := pipeline.Quantize(t.Context(), m, request("whole.nstf")); err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(filepath.Join(dir, "whole.nstf"))
			if err != nil {
				t.Fatal(err)
			}
			for shards := range 4 {
				q := request(fmt.Sprintf("%d.nstf", shards))
				q.Work = filepath.Join(dir, fmt.Sprintf("work%d", shards))
				share := func(ctx context.Context, i int) error {
					q := q
					q.Out, q.Shard = nil, &pipeline.Shard{Index: i, Silence: time.Second}
					return pipeline.Share(ctx, m, q)
				}
				if shards == 0 { // stopped, and what it left damaged, and gone on with
					interrupt(t, q.Work, share)
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
				for _, left := range []string{"sums+*", "*.lease"} {
					if files, err := filepath.Glob(filepath.Join(q.Work, left)); err != nil || len(files) > 0 {
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
// come of groups, until sums and states of the second block were there, or the shard ends: it may
// be too fast for who looks at its files.
func interrupt(t *testing.T, work string, share func(ctx context.Context, i int) error) {
	t.Helper()
	seen, damaged := map[string]bool{}, map[string]bool{}
	for round := 0; !(damaged["sums+of+block+0"] && damaged["sums+of+block+1"] && damaged["states+of+block+1"]); round++ {
		if round > 200 {
			t.Fatalf("only %v were seen", damaged)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- share(ctx, 0) }()
		var err error
	look:
		for {
			select {
			case err = <-ended:
				break look
			case <-time.After(200 * time.Microsecond):
			}
			files, _ := filepath.Glob(filepath.Join(work, "s*+of+block+*.nstf"))
			for _, f := range files {
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
		files, err := filepath.Glob(filepath.Join(work, "s*+of+block+*.nstf"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)*3/4] ^= 1
			if err := os.WriteFile(f, data, 0o666); err != nil {
				t.Fatal(err)
			}
			kind, _, _ := strings.Cut(filepath.Base(f), "+group")
			kind, _, _ = strings.Cut(kind, "+input")
			damaged[kind] = true
		}
	}
}
