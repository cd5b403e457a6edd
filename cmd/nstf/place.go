package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/place"
)

// placeFlags are the flags of place.
type placeFlags struct {
	exec.Options
	device deviceFlag
	json   bool
}

func (a *app) placeCommand() *cobra.Command {
	f := placeFlags{device: deviceFlag{unnamed: true}}
	c := &cobra.Command{
		Use: "place MODEL", Short: "Say which blocks would lie on which device, and how fast that is", Args: cobra.ExactArgs(1),
		Long: `Lay a model's blocks out on devices, and predict the time of a token, before anything is
loaded. Devices are opened and timed: reading memory, small launches, copies to and from the
host. Each gets neighbouring blocks, in the order of --device, or none: of all layouts that
fit, the one whose token takes the least time. Where a GPU has no room for the experts of all
its blocks, and cpu is named too, the processor has and computes those of some. GPUs of one
kind that reach one another's memory may get a part of every block each instead (--split),
where that is faster.
--device auto tries all GPUs and the processor behind them.

run, eval, bench and serve do the same with the same flags. What is printed with --json they
take by --place, also when it was changed by hand: of each range device, lo, hi and
host_experts count, the blocks whose routed experts the processor computes, pinned_experts,
those of them that the GPU has too and computes for steps, and stream_experts, which has their
weights come to the GPU for prompts.

run, eval, bench and serve keep what steps took beside what was expected, in the user's cache
folder, where devices are laid out: later predictions, and choices, are by that.

A model that has no room ends with exit code 4, and says how much is missing.`,
		Example: `  nstf place model.nstf
  nstf place model.nstf --device hip:0,hip:1 --ctx 8192
  nstf place model.nstf --device cuda:0,cpu --memory cuda:0=20GiB --json > layout.json
  nstf run model.nstf --place layout.json -p "Once upon a time"`,
		RunE: func(c *cobra.Command, args []string) error {
			if f.Context < 0 || f.Threads < 0 || f.Sequences < 1 {
				return usagef("--parallel is at least 1, and no number is negative")
			}
			if err := checkKV(f.KV); err != nil {
				return err
			}
			if err := f.device.check(); err != nil {
				return err
			}
			return a.place(c.Context(), args[0], &f)
		},
	}
	s := c.Flags()
	s.Int64VarP(&f.Context, "ctx", "c", 0, "positions of the context; 0: what the model was made for, or what fits")
	s.IntVar(&f.Sequences, "parallel", 1, "sequences of full length that there is memory for")
	s.IntVarP(&f.Threads, "threads", "t", 0, "threads of the processor; 0: one per core")
	addPrecision(s, &f.Exact, &f.KV)
	f.device.addSeveral(s)
	f.device.addMemory(s)
	s.BoolVar(&f.json, "json", false, "print JSON, which --place takes")
	return c
}

func (a *app) place(ctx context.Context, path string, f *placeFlags) error {
	m, err := checkpoint.Open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := a.keep(m, &f.KV, f.Exact); err != nil {
		return err
	}
	f.Device = a.device(&f.device)
	l, err := exec.Layout(m, f.Options)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.json {
		return printJSON(a.out, l)
	}
	a.printLayout(l)
	return nil
}

func (a *app) printLayout(l *place.Layout) {
	t := newTable(1, "device", "blocks", "takes", "of", "reads", "ms", "handing on")
	for i, r := range l.Ranges {
		const widest = 30 // so that numbers have room beside
		blocks := fmt.Sprintf("%d to %d", r.Lo, r.Hi-1)
		if l.Split == place.Tensors {
			blocks = fmt.Sprintf("part %d of %d of all", i+1, len(l.Ranges))
		}
		t.AppendRow([]any{clip(fmt.Sprintf("%v, %s", r.Device, r.Name), widest), blocks, size(r.Memory), size(r.Limit), size(r.Read), figure(1e3 * r.Seconds), figure(1e3 * r.Hand)})
	}
	printTable(a.out, t)
	for _, r := range l.Ranges {
		if len(r.HostExperts) > 0 {
			fmt.Fprintf(a.out, "\n%v leaves the routed experts of %d of its blocks to the processor:\n%s of memory, %s read a token in %s of the ms\n",
				r.Device, len(r.HostExperts), size(r.HostMemory), size(r.HostRead), figure(1e3*r.HostSeconds))
			if pins := r.Pins(); pins != "" {
				fmt.Fprintln(a.out, pins)
			}
			fmt.Fprintln(a.out, r.PromptWay())
		}
	}
	fmt.Fprintf(a.out, "\nthe first has the embedding, the last the head;\nreads, ms and handing on (ms of them, to and from the host) are of a token\nexpected: %s ms a token, %s tokens/s of one sequence\n", figure(1e3*l.Seconds), figure(1/l.Seconds))
	if learned := l.Learned(); learned != "" {
		fmt.Fprintf(a.out, "learned:  %s\n", strings.ReplaceAll(learned, "; ", "\n          "))
	}
	fmt.Fprintf(a.out, "context:  %d positions\n", l.Context)
	if l.Apart != "" {
		fmt.Fprintf(a.out, "shared by layers: %s\n", l.Apart)
	}
	if idle := l.Idle(); idle != "" {
		fmt.Fprintf(a.out, "left out: %s, for a token is as fast, or faster, without\n", idle)
	}
}
