package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu"
	"github.com/nstf/nstf/runtime/gpu/doctor"
	"github.com/nstf/nstf/runtime/gpu/driver"
	"github.com/nstf/nstf/runtime/gpu/kernelcache"
)

// errSick ends a doctor that found a device which does not work.
var errSick = errors.New("a device does not work; see above")

// A doctorReport is what `nstf doctor --json` prints.
type doctorReport struct {
	Program versionReport `json:"program"`
	*doctor.Report
	Cache string `json:"cache,omitempty"` // folder of compiled kernels
}

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	var build []string
	var ranks []int
	var out string
	c := &cobra.Command{
		Use: "doctor [MODEL...]", Short: "Find GPUs, have each run a kernel, and say what is in the way",
		Long: `Look for the libraries of AMD's and NVIDIA's GPUs, open every device and have it
compile and run a small kernel; read what Linux says about AMD's cards and who may
use them; name what is in the way, with the remedy. It changes nothing.

The command fails where a device is found that does not work. Send the output of
--json with a report of a problem.

--build-kernels compiles kernels for other machines, where, copied into the cache
folder, they are found before a compiler is looked for. No GPU is needed. Kernels
depend on a model's shape and schemes: give the models, or get those for usual ones,
some thousands for a target. --ranks 2,4 adds what that many GPUs need that share the
models by their tensors.`,
		Example: `  nstf doctor
  nstf doctor --json > report.json
  nstf doctor --build-kernels gfx1100,gfx942 -o kernels
  nstf doctor --build-kernels gfx1100 -o kernels model.nstf
  nstf doctor --build-kernels gfx942 --ranks 8 -o kernels mixture.nstf`,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) > 0 && len(build) == 0:
				return usagef("%s: a model goes with --build-kernels", args[0])
			case (out == "") != (len(build) == 0):
				return usagef("--build-kernels and -o go together")
			case len(build) > 0 && asJSON:
				return usagef("--json is about this machine, --build-kernels about others")
			case len(ranks) > 0 && (len(build) == 0 || len(args) == 0):
				return usagef("--ranks goes with --build-kernels and a model")
			case len(build) > 0:
				return a.buildKernels(c.Context(), build, out, args, ranks)
			}
			return a.doctor(asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().StringSliceVar(&build, "build-kernels", nil, "compile kernels for these targets: gfx1100, sm_90 ...")
	c.Flags().IntSliceVar(&ranks, "ranks", nil, "with --build-kernels and a model, also what 2 to 8 GPUs need that share its tensors")
	c.Flags().StringVarP(&out, "output", "o", "", "with --build-kernels, the folder for them")
	return c
}

func (a *app) doctor(asJSON bool) error {
	env := map[string]string{}
	for _, name := range doctor.Variables() {
		if v, ok := os.LookupEnv(name); ok {
			env[name] = v
		}
	}
	r := doctorReport{Program: newVersionReport(), Cache: kernelFolder(),
		Report: doctor.Examine(doctor.Options{Root: "/", Libraries: gpuLibraries(), Env: env, OpenNode: driver.OpenNode})}
	if asJSON {
		if err := printJSON(a.out, r); err != nil {
			return err
		}
	} else {
		a.printDoctor(&r)
	}
	for _, api := range r.APIs {
		for i := range api.Devices {
			if d := &api.Devices[i]; !d.Works() && !d.Missing {
				return errSick
			}
		}
	}
	return nil
}

// kernelFolder returns the folder that keeps compiled kernels, "" where the
// user has no cache folder.
func kernelFolder() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "nstf", "kernels")
}

func (a *app) printDoctor(r *doctorReport) {
	fmt.Fprintf(a.out, "nstf %s, %s\n", r.Program.Version, r.System)
	for i := range r.APIs {
		fmt.Fprintln(a.out)
		a.printAPI(&r.APIs[i])
	}
	if len(r.Cards)+len(r.Nodes) > 0 {
		fmt.Fprintln(a.out)
		a.printCards(r.Report)
	}
	a.printLinks(r.Report)
	if r.Cache != "" {
		fmt.Fprintf(a.out, "\ncompiled kernels are kept in %s\n", r.Cache)
	}
	for i, f := range r.Findings {
		if i == 0 {
			fmt.Fprintln(a.out)
		}
		fmt.Fprintf(a.out, "problem: %s\n", f.Problem)
		if f.Remedy != "" {
			fmt.Fprintf(a.out, "remedy:  %s\n", f.Remedy)
		}
	}
}

// printAPI writes a family's libraries and devices.
func (a *app) printAPI(api *doctor.API) {
	t := newTable(2)
	row := func(name, format string, args ...any) {
		t.AppendRow([]any{name, wrap(strings.Fields(fmt.Sprintf(format, args...)))})
	}
	row(map[hip.API]string{hip.HIP: "AMD", hip.CUDA: "NVIDIA"}[api.API], "")
	if api.Runtime != "" {
		row("runtime", "%s, %s", api.Runtime, or(api.Version, "version unknown"))
	}
	if api.Compiler != "" {
		version := api.Language
		if api.API == hip.HIP {
			version = "" // hiprtc calls itself 9.0 in every release
		}
		row("compiler", "%s %s", api.Compiler, version)
	}
	if api.Error != "" {
		row("devices", "none: %s", api.Error)
	}
	for i := range api.Devices {
		d := &api.Devices[i]
		row(fmt.Sprintf("%s:%d", api.API, d.Ordinal), "%s, %s, waves of %d, %d units, %s of memory, %s free", or(d.Name, "a device"), or(d.Target.Arch, "?"), d.Target.Wave, d.Units, size(d.Memory), size(d.Free))
		if d.Shared > 0 {
			row("", "maps %s of the processor's memory beside", size(d.Shared))
		}
		if d.Expect != "" {
			row("", "%s", d.Expect)
		}
		if len(d.Reaches) > 0 {
			row("", "reaches the memory of %s", strings.Trim(fmt.Sprint(d.Reaches), "[]"))
		}
		switch {
		case d.Works():
			row("", "test: compiled in %.1f s, ran, and was right", d.Compile)
		case d.Missing:
			row("", "test: not run, for there is no compiler")
		default:
			row("", "test: %s", d.Test)
		}
	}
	printTable(a.out, t)
}

// printCards writes what Linux says about AMD's cards.
func (a *app) printCards(r *doctor.Report) {
	t := newTable(2)
	t.AppendRow([]any{"Linux", ""})
	for _, c := range r.Cards {
		t.AppendRow([]any{"card " + c.Node, strings.TrimSuffix(fmt.Sprintf("%s %s, %d units, %s, %s", c.Arch, c.Name, c.Units, size(c.Memory), c.PCI), ", ")})
	}
	for _, n := range r.Nodes {
		t.AppendRow([]any{n.Path, strings.TrimSpace(fmt.Sprintf("%s %s %s", n.Mode, n.Group, or(n.Error, "can be opened")))})
	}
	printTable(a.out, t)
}

// printLinks draws how cards reach one another's memory, and their nearest processor.
func (a *app) printLinks(r *doctor.Report) {
	if len(r.Cards) < 2 || len(r.Links) == 0 {
		return
	}
	way := func(from, to string) string {
		for _, l := range r.Links {
			switch {
			case l.From != from || l.To != to || l.Closed:
			case l.Hops > 0:
				return fmt.Sprintf("%s %d", l.Kind, l.Hops)
			default:
				return l.Kind
			}
		}
		return "-"
	}
	names := []any{"from, to"}
	for _, c := range r.Cards {
		names = append(names, c.Node)
	}
	fmt.Fprintln(a.out, "\nways from card to card: xgmi with its hops, pcie, - for none")
	t := newTable(len(names), names...)
	for _, from := range r.Cards {
		row := []any{"card " + from.Node}
		for _, to := range r.Cards {
			if cell := way(from.Node, to.Node); from.Node == to.Node {
				row = append(row, ".")
			} else {
				row = append(row, cell)
			}
		}
		t.AppendRow(row)
	}
	printTable(a.out, t)
	for _, l := range r.Links {
		if l.Rate > 0 && l.Kind == "xgmi" {
			fmt.Fprintf(a.out, "Infinity Fabric: %.0f GB/s at most from card %s to %s\n", float64(l.Rate)/1e3, l.From, l.To)
			break
		}
	}
}

// or returns the first text that is not empty.
func or(s, instead string) string {
	if s == "" {
		return instead
	}
	return s
}

// buildKernels compiles what models, or those of usual shapes, need on targets
// that need not be here.
func (a *app) buildKernels(ctx context.Context, names []string, dir string, paths []string, ranks []int) error {
	compilers := map[hip.API]*driver.Compiler{}
	for _, name := range names {
		targets, err := doctor.Targets(name)
		if err != nil {
			return &usageError{err: err}
		}
		api := targets[0].API
		c := compilers[api]
		if c == nil {
			if c, _, err = driver.FindCompiler(driver.Options{API: api, Paths: gpuLibraries()}); err != nil {
				return err
			}
			compilers[api] = c
		}
		var units []hip.Unit
		for _, t := range targets {
			list, err := unitsAhead(t, paths, ranks)
			if err != nil {
				return err
			}
			units = append(units, list...)
		}
		step, end := a.progress("compiling for "+name, "units")
		n, err := (&kernelcache.Cache{Compiler: c}).Build(ctx, targets[0], units, dir, step)
		end()
		if err != nil {
			return err
		}
		fmt.Fprintf(a.out, "%s: %d kernels compiled\n", name, n)
	}
	return nil
}

// unitsAhead lists what models need, on one GPU and on so many together, or without any those of
// usual shapes.
func unitsAhead(t hip.Target, paths []string, ranks []int) ([]hip.Unit, error) {
	if len(paths) == 0 {
		return gpu.UsualUnits(t)
	}
	var all []hip.Unit
	for _, path := range paths {
		m, err := checkpoint.Open(path)
		if err != nil {
			return nil, err
		}
		for _, o := range []gpu.Options{{}, {Exact: true}} {
			units, err := gpu.Units(m.Graph, m.Tensor, t, o)
			for _, n := range ranks {
				if err == nil {
					var more []hip.Unit
					more, err = gpu.TeamUnits(m.Graph, m.Tensor, t, o, n)
					units = append(units, more...)
				}
			}
			if err != nil {
				m.Close()
				return nil, formats.In(path, err)
			}
			all = append(all, units...)
		}
		m.Close()
	}
	return all, nil
}
