// Package report draws the accuracy ledgers of packages as one HTML file that
// needs nothing beside it: plots are SVG inside.
//
// In: ledgers with the sizes of their packages. Out: HTML. The same input gives
// the same bytes.
//
// Plots are made by github.com/wcharczuk/go-chart (MIT), which adds 2 MB to the
// program; gonum.org/v1/plot, which was tried beside it, adds 8.
package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/ledger"
)

// A Package is a file and its ledger.
type Package struct {
	Name   string
	Bytes  int64 // of the file
	Ledger *ledger.Ledger
}

//go:embed report.html
var page string

// Write writes the report of some packages, at least one. Errors are those of
// the writer.
func Write(w io.Writer, packages []Package) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"size": formats.Size, "figure": figure, "bits": func(v float64) string { return fmt.Sprintf("%.3f", v) },
		"percent": func(f *ledger.Figure) string { return measured(f, 100) }, "measured": func(f *ledger.Figure) string { return measured(f, 1) },
		"unread": func(p *ledger.PagesOf) string { return fmt.Sprintf("%.0f %%", 100*(1-p.Read)) },
		"number": func(b int64) string {
			if b < 0 {
				return ""
			}
			return fmt.Sprint(b)
		},
	}).Parse(page)
	if err != nil {
		return err
	}
	var d document
	for _, like := range Alike(packages) {
		c := comparison{Packages: like}
		if c.SizeAgainstKLD, err = sizes(like); err != nil {
			return err
		}
		d.Comparisons = append(d.Comparisons, c)
	}
	for i := range packages {
		s, err := sectionOf(&packages[i])
		if err != nil {
			return err
		}
		d.Sections = append(d.Sections, s)
	}
	return t.Execute(w, d)
}

// A document is what the page shows.
type document struct {
	Comparisons []comparison
	Sections    []section
}

// A comparison is of packages that were measured on the same windows.
type comparison struct {
	Packages       []Package
	SizeAgainstKLD template.HTML // "" where nothing was measured
}

// On says what its packages were measured on.
func (c *comparison) On() string { return measuredOn(&c.Packages[0].Ledger.Source) }

// measuredOn says what a package was measured on, "" where that was nothing.
func measuredOn(s *ledger.Source) string {
	if s.HeldCount == 0 {
		return ""
	}
	return fmt.Sprintf("%d windows of %d tokens: %s", s.HeldCount, s.Context, s.Held)
}

// Alike deals packages, in their order, into those whose measurements can be compared:
// made on the same number of windows, as long, of the same text, and where they were held
// out of a text, beside the same windows of it.
func Alike(packages []Package) (groups [][]Package) {
	var keys []ledger.Source
	for _, p := range packages {
		s := p.Ledger.Source
		key := ledger.Source{Held: s.Held, HeldCount: s.HeldCount, Context: s.Context}
		if strings.HasPrefix(s.Held, "held-out") {
			key.TextHash = s.TextHash
		}
		i := slices.Index(keys, key)
		if i < 0 {
			i, keys, groups = len(keys), append(keys, key), append(groups, nil)
		}
		groups[i] = append(groups[i], p)
	}
	return groups
}

// A section is one package's part.
type section struct {
	*Package
	Bits, Error, Predicted, Drift template.HTML // "" where there is nothing to draw
	Chosen                        []ledger.Tensor
}

func sectionOf(p *Package) (s section, err error) {
	s.Package = p
	for _, t := range p.Ledger.Tensors {
		if t.Method != "" || t.RunnerUp != nil {
			s.Chosen = append(s.Chosen, t)
		}
	}
	if s.Bits, err = byBlock(s.Chosen, "bits per weight", false, func(t *ledger.Tensor) float64 { return t.Bits }); err != nil {
		return s, err
	}
	if s.Error, err = byBlock(s.Chosen, "relative error", true, func(t *ledger.Tensor) float64 { return t.Obtained }); err != nil {
		return s, err
	}
	if s.Predicted, err = predictions(s.Chosen); err != nil {
		return s, err
	}
	s.Drift, err = drift(p.Ledger.Blocks)
	return s, err
}

// roles lists the roles of tensors in their order.
func roles(list []ledger.Tensor) (out []string) {
	for _, t := range list {
		if !slices.Contains(out, t.Role) {
			out = append(out, t.Role)
		}
	}
	return out
}

func figure(v float64) string {
	if v == 0 {
		return "0"
	}
	return fmt.Sprintf("%.3g", v)
}

func measured(f *ledger.Figure, scale float64) string {
	if f == nil {
		return "not measured"
	}
	return fmt.Sprintf("%.4g ± %.2g", scale*f.Mean, scale*f.SE)
}
