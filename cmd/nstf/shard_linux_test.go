package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestShardsKilled has three processes make a package together, kills one of them at a
// random time, again and again, and wants the bytes that one process makes. Where statistics
// are shared the first dies in the first pass, the second among sensitivities.
func TestShardsKilled(t *testing.T) {
	for _, c := range [][]string{{"--scheme", "tcq2"}, {"--bpw", "7"}, {"--scheme", "q4_0", "--head-scheme", "tcq3", "--parallel"}} {
		t.Run(strings.Join(c, " "), func(t *testing.T) {
			dir := t.TempDir()
			whole, out, work := filepath.Join(dir, "whole.nstf"), filepath.Join(dir, "out.nstf"), filepath.Join(dir, "work")
			flags := append(append([]string{"quantize"}, c...), withText(t, "llama-31")...)
			flags = slices.Clip(append(flags, "--ctx", "64", "--samples", "72", "--device", "cpu", "--threads", "1")) // text of three groups
			began := time.Now()
			if text, err := command(t, append(flags, "-o", whole)...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			takes := time.Since(began)
			want, err := os.ReadFile(whole)
			if err != nil {
				t.Fatal(err)
			}
			merge := append(flags, "--merge", "--work", work, "-o", out)
			invoke(merge...).fails(t, exitInput, "no shard has worked there")
			const shards = 3
			var logs [shards]bytes.Buffer
			start := func(i int) *exec.Cmd {
				p := command(t, append(flags, "--shard", fmt.Sprintf("%d/%d", i, shards), "--work", work, "--lease", "1s")...)
				p.Stdout, p.Stderr = &logs[i], &logs[i]
				if err := p.Start(); err != nil {
					t.Fatal(err)
				}
				return p
			}
			rng := rand.New(rand.NewPCG(uint64(began.UnixNano()), 1))
			// Each dies at a random time and is not started again, but the last.
			for i := range shards - 1 {
				p := start(i)
				if slices.Contains(c, "--bpw") {
					appears(t, filepath.Join(work, []string{"first+*", "sensitivity+*"}[i]))
				} else {
					time.Sleep(time.Duration(rng.Int64N(int64(takes))))
				}
				p.Process.Signal(syscall.SIGKILL)
				p.Wait()
			}
			// Two at once, of which one dies, and one comes back.
			last, dying := start(shards-1), start(0)
			time.Sleep(time.Duration(rng.Int64N(int64(takes))))
			dying.Process.Signal(syscall.SIGKILL)
			dying.Wait()
			back := start(1)
			for i, p := range []*exec.Cmd{last, back} {
				if err := p.Wait(); err != nil {
					t.Fatalf("%d: %v: %s", i, err, logs[(shards-1+2*i)%shards].String())
				}
			}
			// Other flags are another job.
			other := command(t, append(append([]string{}, flags...), "--shard", "0/3", "--work", work, "--seed", "99")...)
			if text, err := other.CombinedOutput(); err == nil || !strings.Contains(string(text), "resuming with another") {
				t.Errorf("%v: %s", err, text)
			}
			// What is missing, and what is damaged, is named, and no package is made.
			tensors, err := filepath.Glob(filepath.Join(work, "*attn*.nstf"))
			if err != nil || len(tensors) < 2 {
				t.Fatalf("%q, %v", tensors, err)
			}
			kept := map[string][]byte{}
			for _, name := range tensors[:2] {
				if kept[name], err = os.ReadFile(name); err != nil {
					t.Fatal(err)
				}
			}
			bad := bytes.Clone(kept[tensors[0]])
			bad[len(bad)-1000] ^= 1
			bad[5000] ^= 1
			if err := os.WriteFile(tensors[0], bad, 0o666); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(tensors[1]); err != nil {
				t.Fatal(err)
			}
			invoke(merge...).fails(t, exitInput, "1 tensors are missing and 1 damaged")
			if lies(out) {
				t.Error("a package with holes was made")
			}
			// A shard that is started again fills both.
			if text, err := command(t, append(flags, "--shard", "2/3", "--work", work, "--lease", "1s")...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			if text, err := command(t, merge...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			sameBytes(t, out, want)
			if lies(work) {
				t.Error("the work folder stayed")
			}
		})
	}
}

// appears waits for a file.
func appears(t *testing.T, pattern string) {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(time.Millisecond) {
		if files, err := filepath.Glob(pattern); err != nil || len(files) > 0 {
			return
		}
	}
	t.Fatalf("%s: nothing in a minute", pattern)
}

func TestShardFlags(t *testing.T) {
	args := append([]string{"quantize", "--scheme", "tcq2"}, withText(t, "llama-31")...)
	work := filepath.Join(t.TempDir(), "w")
	for line, reason := range map[string]string{
		"--shard 0/2":                        "need --work",
		"--merge -o x.nstf":                  "need --work",
		"--work W":                           "without --shard or --merge",
		"--work W --shard 2/2":               "i/N",
		"--work W --shard 1":                 "i/N",
		"--work W --shard a/b":               "i/N",
		"--work W --shard 0/2 -o x.nstf":     "-o goes with --merge",
		"--work W --shard 0/2 --merge":       "none of them",
		"--work W --shard 0/2 --resume":      "do not go with --work",
		"--work W --shard 0/2 --max-drift 1": "need one process",
		"--work W --shard 0/2 --lease 1ms":   "--lease",
		"--work W --merge":                   "give the package to write",
	} {
		invoke(append(args, strings.Fields(strings.ReplaceAll(line, "W", work))...)...).fails(t, exitUsage, reason)
	}
	for _, env := range []string{"SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"} {
		if r := invokeIn(map[string]string{env: "3"}, "", append(args, "--work", work)...); r.code != exitFine {
			t.Errorf("%s: exit %d: %s", env, r.code, r.err)
		}
	}
	if r := invoke(append(args, "--merge", "--work", work, "-o", work+".nstf")...); r.code != exitFine {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
}
