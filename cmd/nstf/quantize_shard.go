package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/nstf/nstf/formats/work"
	"github.com/nstf/nstf/quantize/pipeline"
)

// shardFlags are those of several processes that make one package.
type shardFlags struct {
	shard, work string
	merge       bool
	silence     time.Duration
	part        *pipeline.Shard // of --shard or the environment, nil for none
}

func (f *shardFlags) add(s *pflag.FlagSet) {
	s.StringVar(&f.shard, "shard", "", "i/N: this process is one of N that share --work, i from 0 on")
	s.StringVar(&f.work, "work", "", "folder that the processes share, or s3://BUCKET/PREFIX")
	s.BoolVar(&f.merge, "merge", false, "make the package of what the shards left in --work")
	s.DurationVar(&f.silence, "lease", 2*time.Minute, "with --work: silence after which another process counts as dead")
}

// shared reports whether the work is shared.
func (f *shardFlags) shared() bool { return f.part != nil || f.merge }

// read finds out which shard this process is.
func (f *shardFlags) read(env func(string) string, q *quantizeFlags) error {
	if f.work == "" && f.shard == "" && !f.merge {
		return nil
	}
	if inStore(f.work) {
		if _, err := work.ParseBucket(f.work); err != nil {
			return usagef("--work: %v", err)
		}
	}
	switch {
	case f.work == "":
		return usagef("--shard and --merge need --work DIR, the folder that the shards share")
	case f.merge && f.shard != "":
		return usagef("--merge comes when the shards have ended: it is none of them")
	case q.dry || q.resume || q.discard:
		return usagef("--dry-run, --resume and --discard do not go with --work: shards go on with what is there")
	case q.maxKLD != 0 || q.maxDrift != 0:
		return usagef("--max-kld and --max-drift need one process: shards measure nothing on the way")
	case !q.calibrated():
		return usagef("rounding takes seconds and is not shared: give --calib")
	case f.silence < time.Second:
		return usagef("--lease is at least 1s")
	case f.merge:
		return nil
	case q.out.path != "":
		return usagef("shards write into --work alone: -o goes with --merge")
	}
	text, from := f.shard, "--shard"
	if text == "" && env != nil {
		for _, name := range []string{"SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"} {
			if i := env(name); i != "" {
				text, from = i, name
				break
			}
		}
	}
	if text == "" {
		return &usageError{err: fmt.Errorf("--work without --shard or --merge"), hint: "--shard 0/4 is the first of four; SLURM_ARRAY_TASK_ID and JOB_COMPLETION_INDEX are taken where they are set"}
	}
	left, right, whole := strings.Cut(text, "/")
	i, err := strconv.Atoi(left)
	n := 1 << 20
	if err == nil && whole {
		n, err = strconv.Atoi(right)
	}
	if err != nil || i < 0 || i >= n || from == "--shard" && !whole {
		return usagef("%s is i/N with i from 0 to N-1, not %s", from, quoted(text))
	}
	f.part = &pipeline.Shard{Index: i}
	return nil
}
