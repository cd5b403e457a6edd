package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/kernels/cpu"
	qplan "github.com/nstf/nstf/quantize/plan"
	"github.com/nstf/nstf/quantize/plan/candidates"
	"github.com/nstf/nstf/quantize/plan/planner"
	"github.com/nstf/nstf/runtime/place"
)

// planFlags say what a plan is to keep.
type planFlags struct {
	bpw, maxKLD float64
	size        string
	keep        []string
	schemes     string
	forms       bool

	objective, device string
	deviceFlag        string // "--" and the name that device has on the command line

	budget qplan.Budget
	rules  []candidates.Rule
}

// check reads the flags; one budget must be among them.
func (f *planFlags) check() error {
	given := 0
	for _, set := range []bool{f.bpw != 0, f.size != "", f.maxKLD != 0} {
		if set {
			given++
		}
	}
	switch {
	case given != 1:
		return usagef("give one of --bpw, --size and --max-kld, not %d of them", given)
	case !finite(f.bpw) || !finite(f.maxKLD):
		return usagef("--bpw and --max-kld are finite, and not negative")
	}
	if err := f.checkObjective(); err != nil {
		return err
	}
	f.budget = qplan.Budget{BPW: f.bpw, MaxLoss: f.maxKLD}
	if f.size != "" {
		var err error
		if f.budget.Bytes, err = parseSize(f.size); err != nil {
			return usagef("--size: %v", err)
		}
	}
	f.rules = nil
	for _, s := range f.keep {
		r, err := candidates.ParseRule(s)
		if err != nil {
			return &usageError{err: fmt.Errorf("--keep: %w", err)}
		}
		f.rules = append(f.rules, r)
	}
	var err error
	if f.schemes, err = readSchemes("--schemes", f.schemes); err != nil {
		return err
	}
	if _, err := candidates.Codes(f.schemes); err != nil {
		return &usageError{err: fmt.Errorf("--schemes: %w", err)}
	}
	return nil
}

// finite reports whether a flag's number is one to count with.
func finite(v float64) bool { return v >= 0 && !math.IsInf(v, 1) }

// objectiveFlags adds --objective and the flag of its device.
func (f *planFlags) objectiveFlags(s *pflag.FlagSet, device string) {
	f.deviceFlag = "--" + device
	s.StringVar(&f.objective, "objective", "size", "what is least within --max-kld: size, or latency on a device")
	s.StringVar(&f.device, device, "", "for --objective latency: "+strings.Join(deviceNames(), ", "))
}

// bothDevices takes a device of --objective latency that was given by --device.
func (f *planFlags) bothDevices(on *deviceFlag) {
	if f.objective != "latency" || f.device != "" || !slices.Contains(deviceNames(), on.name) {
		return
	}
	if f.device = on.name; f.device != thisCPU {
		on.name = string(place.Auto)
	}
}

// checkObjective reads --objective and the flag of its device.
func (f *planFlags) checkObjective() error {
	switch {
	case f.objective == "" || f.objective == "size":
		if f.device != "" {
			return usagef("%s goes with --objective latency", f.deviceFlag)
		}
	case f.objective != "latency":
		return usagef("--objective is size or latency, not %q", f.objective)
	case f.maxKLD == 0:
		return usagef("--objective latency goes with --max-kld: the least time within a divergence")
	case f.device == "":
		return usagef("--objective latency needs %s: %s", f.deviceFlag, strings.Join(deviceNames(), ", "))
	case !slices.Contains(deviceNames(), f.device):
		return usagef("%s %q is not known: %s", f.deviceFlag, f.device, strings.Join(deviceNames(), ", "))
	}
	return nil
}

// thisCPU names the processor that a plan is made on.
const thisCPU = "cpu"

func deviceNames() []string {
	names := []string{thisCPU}
	for _, d := range qplan.Devices() {
		names = append(names, d.Name)
	}
	return names
}

// onDevice returns what bounds the device's time, nil without --objective
// latency. This machine is measured where that was not done before.
func (a *app) onDevice(ctx context.Context, name string, threads int) (*qplan.Device, error) {
	if name == "" {
		return nil, nil
	}
	for _, d := range qplan.Devices() {
		if d.Name == name {
			return &d, nil
		}
	}
	var flags benchFlags
	flags.Threads = threads
	p, err := a.profile(ctx, cpu.Best(), &flags)
	if err != nil {
		return nil, err
	}
	d := &qplan.Device{Name: p.Machine.CPU, Bytes: 1e9 * p.ReadAll.Median, Start: 2e-6}
	for _, k := range p.Peaks {
		if k.Kind == cpu.PeakF32 {
			d.Ops = 1e9 * k.All.Median
		}
	}
	return d, nil
}

// possible refuses a size that no plan can keep, before anything is measured.
func (f *planFlags) possible(m *model.Model, seed int64) error {
	err := planner.New(m, planner.Options{Schemes: f.schemes, Forms: f.forms, Keep: f.rules, Seed: seed}).Possible(f.budget)
	var impossible *qplan.ImpossibleError
	if !errors.As(err, &impossible) {
		return err
	}
	if _, bare := strconv.ParseFloat(f.size, 64); bare == nil {
		err = fmt.Errorf("%w; --size %s has no unit, and so is in bytes", err, f.size)
	}
	return &usageError{err: err}
}

// flags are those that decided something.
func (f *planFlags) flags() []string {
	var out []string
	switch {
	case f.bpw != 0:
		out = append(out, fmt.Sprintf("--bpw=%g", f.bpw))
	case f.size != "":
		out = append(out, "--size="+f.size)
	default:
		out = append(out, fmt.Sprintf("--max-kld=%g", f.maxKLD))
	}
	if f.schemes != "all" {
		out = append(out, "--schemes="+f.schemes)
	}
	if f.device != "" {
		out = append(out, "--objective="+f.objective, "--device="+f.device)
	}
	if f.forms {
		out = append(out, "--forms")
	}
	for _, k := range f.keep {
		out = append(out, "--keep="+k)
	}
	return out
}

func (a *app) planCommand() *cobra.Command {
	var f planFlags
	var text textFlags
	var on deviceFlag // where text is run
	var to outputFlag
	var from string
	var effort int64
	var threads int
	var asJSON bool
	var layers layerFlags
	c := &cobra.Command{
		Use: "plan SRC (--bpw N | --size N | --max-kld N) [-o plan.json]", Short: "Choose how each tensor is to be stored, and predict what it costs", Args: cobra.ExactArgs(1),
		Long: `Choose a scheme for every tensor of a model, so that together they lose least within a
size, or are smallest within a predicted divergence, and print the choice: its bits, its
error relative to the tensor as the calibration text weighs it, its share of the predicted
KL divergence, and what would have been chosen next. Nothing is quantized.

Statistics come from nstf calibrate by --stats, which serves any number of plans, or are
measured of a text now by --calib. Without either all errors count alike and nothing is
predicted.

--objective latency takes what is fastest within --max-kld instead of what is smallest, by
the bandwidth and the rate of operations of the device that --latency-device names.

--layers adds a table of what each method by itself would save in each layer, and cost, beside
the plan: the next step to fewer bits of its matrices, factors for them (with --forms), keys and
values in fewer bits and steps that read some pages of them. The last two are what calibrate
--kv-bpw and --attention measured, from the package or from files.

The file that -o writes can be edited: nstf quantize --plan executes it. --keep decides
for tensors by name: 'embed=q8_0', 'blocks\.0\.=keep' (as in the source).`,
		Example: `  nstf calibrate ./Llama-3.2-1B --calib text.jsonl -o llama.nstats
  nstf plan ./Llama-3.2-1B --stats llama.nstats --bpw 3 -o plan.json
  nstf plan ./Llama-3.2-1B --stats llama.nstats --size 600MB --schemes ggml --keep 'embed=q6_k'`,
		RunE: func(c *cobra.Command, args []string) error {
			f.bothDevices(&on)
			if err := f.check(); err != nil {
				return err
			}
			if err := on.check(); err != nil {
				return err
			}
			if from != "" && text.path != "" {
				return usagef("--stats and --calib exclude each other")
			}
			if effort < 0 || threads < 0 {
				return usagef("--effort and --threads are not negative")
			}
			if err := text.check(); err != nil {
				return err
			}
			m, err := checkpoint.Open(args[0])
			if err != nil {
				return err
			}
			defer m.Close()
			var out *atomicfile.Output
			if to.path != "" {
				if out, err = a.output(to.path, planKind, to.force, m, text.path, from); err != nil {
					return err
				}
			}
			if err := f.possible(m, text.seed); err != nil {
				return err
			}
			s, err := a.statistics(c.Context(), m, from, &text, &on, threads)
			if err != nil {
				return err
			}
			if s != nil {
				defer s.Close()
				a.warnFew(s.Source.Tokens)
			}
			device, err := a.onDevice(c.Context(), f.device, threads)
			if err != nil {
				return err
			}
			step, end := a.progress("planning", "weights")
			made := planner.New(m, planner.Options{Schemes: f.schemes, Forms: f.forms, Device: device, Keep: f.rules, Seed: text.seed, Effort: effort, Threads: threads, Progress: step,
				Made: nstf.Provenance{Tool: toolName(), Flags: append(f.flags(), text.flags()...), Sources: expectedSources(from, &text)}})
			p, err := made.Plan(c.Context(), s, f.budget)
			end()
			if err != nil {
				return err
			}
			table, err := layers.of(c.Context(), made, m, s, p)
			if err != nil {
				return err
			}
			if out != nil {
				if err := p.Write(out); err != nil {
					return err
				}
			}
			switch {
			case asJSON && layers.wanted:
				return printJSON(a.out, &layeredPlan{p, table})
			case asJSON:
				return printJSON(a.out, p)
			}
			a.printPlan(p)
			a.printLayers(table)
			return nil
		},
	}
	s := c.Flags()
	layers.add(s)
	s.Float64Var(&f.bpw, "bpw", 0, "bits per weight of all tensors together")
	s.StringVar(&f.size, "size", "", "size of the whole package, such as 3.9GiB or 900MB")
	s.Float64Var(&f.maxKLD, "max-kld", 0, "predicted mean KL divergence in nats")
	s.StringVar(&f.schemes, "schemes", "all", "recipes to choose from: all, ggml, or a list such as tcq3,tcq4,q8_0")
	f.objectiveFlags(s, "latency-device")
	on.add(s)
	s.BoolVar(&f.forms, "forms", false, "consider factors too: products, corrections, shared matrices, tensor trains")
	s.StringArrayVar(&f.keep, "keep", nil, "recipe for tensors by name, 'REGEX=RECIPE'; may be repeated")
	s.StringVar(&from, "stats", "", "statistics made by nstf calibrate, or an importance matrix of llama.cpp")
	text.add(s)
	s.Lookup("calib").Usage = "text to calibrate on: .txt, .jsonl, .parquet, a pipe, or -; default: none"
	s.Int64Var(&effort, "effort", 0, "of the search for codes; 0: the default")
	s.IntVarP(&threads, "threads", "t", 0, "threads; 0: one per core")
	to.add(s, "plan to write")
	s.BoolVar(&asJSON, "json", false, "print the plan as JSON")
	return c
}

// expectedSources are those that the package of a plan will name.
func expectedSources(from string, text *textFlags) []nstf.Source {
	var out []nstf.Source
	if text.path != "" {
		out = text.sources()
	}
	if from != "" {
		out = append(out, nstf.Source{Role: "statistics", Name: filepath.Base(from), Path: from})
	}
	return out
}

// statistics opens a file, or measures a text; nil: neither is given.
func (a *app) statistics(ctx context.Context, m *model.Model, from string, text *textFlags, device *deviceFlag, threads int) (*stats.File, error) {
	if from != "" {
		return a.openStats(from, m)
	}
	if text.path == "" {
		a.warn("without --stats or --calib all errors count alike, and no divergence is predicted")
		return nil, nil
	}
	windows, _, err := a.windows(ctx, m, text)
	if err != nil {
		return nil, err
	}
	on, err := a.opened(device, m, windows)
	if err != nil {
		return nil, err
	}
	defer on.Close()
	return a.measure(ctx, m, windows, text, calibrate.Options{Threads: threads, On: on}, true)
}

// printPlan writes a plan's table.
func (a *app) printPlan(p *plan.Plan) {
	t := newTable(2, "tensor", "recipe", "bits", "size", "error", "loss", "next", "its loss")
	for i := range p.Tensors {
		x := &p.Tensors[i]
		if x.Recipe.Kept() && x.RunnerUp == nil {
			continue // nothing was to be chosen
		}
		row := []any{clip(x.Name, 34), clip(x.Recipe.String(), 15), fmt.Sprintf("%.2f", 8*float64(x.Bytes)/float64(max(1, x.Elements()))), size(x.Bytes),
			small(x.Error), small(x.Loss), "", ""}
		if r := x.RunnerUp; r != nil {
			row[6], row[7] = clip(r.Recipe.String(), 9), small(r.Loss)
		}
		t.AppendRow(row)
	}
	printTable(a.out, t)
	fmt.Fprintln(a.out)
	a.printRecipes(p)
	fmt.Fprintf(a.out, "\n%s in the package, %.3f bits per weight", size(p.Predicted.Bytes), p.Predicted.BPW)
	if p.Predicted.KLD > 0 {
		fmt.Fprintf(a.out, ", predicted KL divergence %.4g nats", p.Predicted.KLD)
	}
	if p.Predicted.Seconds > 0 {
		fmt.Fprintf(a.out, ",\nat least %.3g ms a token for its weights on %s", 1e3*p.Predicted.Seconds, p.Budget.Device)
	}
	fmt.Fprintln(a.out)
}

// small writes a small number.
func small(v float64) string {
	if v == 0 {
		return "0"
	}
	return fmt.Sprintf("%.2e", v)
}

// printRecipes counts what was chosen, by role.
func (a *app) printRecipes(p *plan.Plan) {
	type sum struct {
		bytes, params int64
		loss          float64
		recipes       map[plan.Recipe]int
		order         []plan.Recipe
	}
	roles, order := map[string]*sum{}, []string{}
	for i := range p.Tensors {
		x := &p.Tensors[i]
		s := roles[x.Role]
		if s == nil {
			s = &sum{recipes: map[plan.Recipe]int{}}
			roles[x.Role], order = s, append(order, x.Role)
		}
		s.bytes, s.params, s.loss = s.bytes+x.Bytes, s.params+x.Elements(), s.loss+x.Loss
		if s.recipes[x.Recipe] == 0 {
			s.order = append(s.order, x.Recipe)
		}
		s.recipes[x.Recipe]++
	}
	t := newTable(1, "role", "bits", "size", "loss", "")
	for _, role := range order {
		s := roles[role]
		var list []string
		for _, r := range s.order {
			list = append(list, fmt.Sprintf("%d %s", s.recipes[r], r))
		}
		t.AppendRow([]any{role, fmt.Sprintf("%.2f", 8*float64(s.bytes)/float64(max(1, s.params))), size(s.bytes), small(s.loss), clip(strings.Join(list, ", "), 54)})
	}
	t.SetColumnConfigs(nil)
	printTable(a.out, t)
}

// planHint says what to do about a plan that cannot be made, "" for another
// error.
func planHint(err error) string {
	var impossible *qplan.ImpossibleError
	var rule *candidates.RuleError
	switch {
	case errors.As(err, &impossible):
		return "ask for " + impossible.Least + " or more, or allow more recipes by --schemes and fewer rules by --keep"
	case errors.As(err, &rule):
		return "the expression is searched in the names that nstf inspect --tensors lists"
	}
	return ""
}
