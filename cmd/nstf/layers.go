package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/nstf/nstf/calibrate"
	"github.com/nstf/nstf/formats/attention"
	"github.com/nstf/nstf/formats/ledger"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/stats"
	"github.com/nstf/nstf/quantize/plan/planner"
)

// layerFlags ask for what methods would save in each layer.
type layerFlags struct {
	wanted       bool
	kept, policy string // files, "" for those of the package
}

func (f *layerFlags) add(s *pflag.FlagSet) {
	s.BoolVar(&f.wanted, "layers", false, "show what each method would save and cost in each layer")
	s.StringVar(&f.kept, "kv", "", "with --layers: `FILE` of calibrate --kv-bpw or --kv-kld; default: the package's")
	s.StringVar(&f.policy, "attention", "", "with --layers: `FILE` of calibrate --attention; default: the package's")
}

// A layeredPlan is a plan and its layers.
type layeredPlan struct {
	Plan   *plan.Plan     `json:"plan"`
	Layers []ledger.Layer `json:"layers"`
}

// layerPages is the share of pages that a policy's layers are shown at.
const layerPages = 0.1

// of returns the layers of a plan, nil where nobody wants them.
func (f *layerFlags) of(ctx context.Context, made *planner.Planner, m *model.Model, s *stats.File, p *plan.Plan) ([]ledger.Layer, error) {
	if !f.wanted {
		if f.kept != "" || f.policy != "" {
			return nil, usagef("--kv and --attention go with --layers")
		}
		return nil, nil
	}
	layers, err := made.Layers(ctx, s, p)
	if err != nil {
		return nil, err
	}
	kept, err := measured(m, f.kept, nstf.KVFile, attention.ParseKept, attention.ReadKept)
	if err != nil {
		return nil, err
	}
	if kept != nil {
		if err := kept.Fits(cmp.Or(f.kept, m.Path), len(m.Graph.Blocks)); err != nil {
			return nil, err
		}
	}
	policy, err := measured(m, f.policy, nstf.AttentionFile, attention.Parse, attention.Read)
	if err != nil {
		return nil, err
	}
	if policy != nil {
		if err := policy.Fits(cmp.Or(f.policy, m.Path), calibrate.PolicyHeads(m)); err != nil {
			return nil, err
		}
	}
	planner.Attended(layers, kept, policy, layerPages)
	return layers, nil
}

// measured reads a file, or what a model carries by a name; nil where it carries none.
func measured[T any](m *model.Model, path, name string, parse func(file string, data []byte) (*T, error), read func(path string) (*T, error)) (*T, error) {
	if path != "" {
		return read(path)
	}
	i := slices.IndexFunc(m.Files, func(x model.File) bool { return x.Name == name })
	if i < 0 {
		return nil, nil
	}
	return parse(m.Path+": "+name, m.Files[i].Data)
}

// printLayers shows what methods would save and cost, a layer a line.
func (a *app) printLayers(layers []ledger.Layer) {
	if layers == nil {
		return
	}
	fmt.Fprintf(a.out, "\nWhat each method by itself would save of a layer, and the divergence that it adds:\nof keys and values bytes of a position, of pages those not read where all read %g %%\n", 100*layerPages)
	t := newTable(1, "layer", "size", "loss", "fewer bits", "factors", "keys and values", "pages")
	saving := func(s *ledger.Saving) string {
		if s == nil {
			return ""
		}
		return fmt.Sprintf("%s, %s", size(s.Bytes), small(s.Loss))
	}
	for i := range layers {
		l := &layers[i]
		row := []any{fmt.Sprint(l.Block), size(l.Bytes), small(l.Loss), saving(l.Bits), saving(l.Factors), "", ""}
		if l.Block < 0 {
			row[0] = "others"
		}
		if k := l.KV; k != nil {
			row[5] = fmt.Sprintf("%s, %.0f B, %s", k.Format, k.Bytes, small(k.KLD))
		}
		if p := l.Pages; p != nil {
			row[6] = fmt.Sprintf("%.0f %%, %s", 100*(1-p.Read), small(p.KLD))
		}
		t.AppendRow(row)
	}
	printTable(a.out, t)
}
