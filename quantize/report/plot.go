package report

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"math"

	"github.com/wcharczuk/go-chart/v2"
	"github.com/wcharczuk/go-chart/v2/drawing"

	"github.com/nstf/nstf/formats/ledger"
)

// palette are colours that stay apart for those who see fewer of them (Okabe
// and Ito, then Tol's muted ones), and in print.
var palette = []string{"0072B2", "D55E00", "009E73", "CC79A7", "E69F00", "56B4E9", "000000", "8B6914", "7F3C8D", "808080",
	"882255", "44AA99", "332288", "999933", "117733", "DDAA99"}

// A line is a named series of points.
type line struct {
	name   string
	x, y   []float64
	joined bool   // by a line
	colour string // "": of the palette
	nth    int    // of it
}

// An axis is named and perhaps logarithmic: values are then plotted by their
// logarithm, between whole powers of ten.
type axis struct {
	name string
	log  bool
	zero bool // a linear axis begins at 0 or below
}

func (a axis) at(v float64) float64 {
	if a.log {
		return math.Log10(v)
	}
	return v
}

// draw makes a plot, "" where there are no points. Points that a logarithm
// cannot show are left out.
func draw(title string, x, y axis, lines []line) (template.HTML, error) {
	c := chart.Chart{Width: 560, Height: 340, Background: chart.Style{Padding: chart.Box{Top: 54, Left: 12, Right: 130, Bottom: 8}}}
	var xs, ys []float64
	for _, l := range lines {
		s := series(l, x, y)
		if len(s.XValues) == 0 {
			continue
		}
		xs, ys = append(xs, s.XValues...), append(ys, s.YValues...)
		c.Series = append(c.Series, s)
	}
	if len(xs) == 0 {
		return "", nil
	}
	c.XAxis = chart.XAxis{Name: x.name, Range: span(x, xs), Ticks: ticks(x, xs, sideBySide), TickPosition: chart.TickPositionUnderTick}
	c.YAxis = chart.YAxis{Range: span(y, ys), Ticks: ticks(y, ys, stacked), AxisType: chart.YAxisSecondary}
	c.YAxisSecondary.Style = chart.Hidden() // no values, whose labels would lie at minus infinity
	c.Elements = []chart.Renderable{above(title, 11, 36), above(y.name, 9, 12)}
	if len(lines) > 1 {
		c.Elements = append(c.Elements, legend(lines))
	}
	var b bytes.Buffer
	if err := c.Render(chart.SVG, &b); err != nil {
		return "", fmt.Errorf("plot %q: %w", title, err)
	}
	return template.HTML(b.String()), nil
}

func colourOf(l line) drawing.Color {
	return drawing.ColorFromHex(cmp.Or(l.colour, palette[l.nth%len(palette)]))
}

func series(l line, x, y axis) chart.ContinuousSeries {
	colour := colourOf(l)
	s := chart.ContinuousSeries{Name: l.name, Style: chart.Style{StrokeWidth: chart.Disabled, DotWidth: 2.5, DotColor: colour}}
	if l.joined {
		s.Style = chart.Style{StrokeWidth: 1.2, StrokeColor: colour, DotWidth: 1.8, DotColor: colour}
	}
	for j := range l.x {
		u, v := x.at(l.x[j]), y.at(l.y[j])
		if !math.IsInf(u, 0) && !math.IsNaN(u) && !math.IsInf(v, 0) && !math.IsNaN(v) {
			s.XValues, s.YValues = append(s.XValues, u), append(s.YValues, v)
		}
	}
	return s
}

// bounds returns the range of an axis, and for a linear one the step of its
// ticks: whole powers of ten, or at most seven round steps around the values.
func bounds(a axis, values []float64) (lo, hi, step float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, v := range values {
		lo, hi = min(lo, v), max(hi, v)
	}
	if !a.log && a.zero {
		lo = min(lo, 0)
	}
	if hi-lo < 1e-9 {
		lo, hi = lo-0.5, hi+0.5
	}
	step = 1
	if !a.log {
		step = math.Pow(10, math.Floor(math.Log10((hi-lo)/7)))
		for _, f := range []float64{1, 2, 5, 10} {
			if (hi-lo)/(f*step) <= 7 {
				step *= f
				break
			}
		}
	}
	return math.Floor(lo/step+1e-9) * step, math.Ceil(hi/step-1e-9) * step, step
}

func span(a axis, values []float64) *chart.ContinuousRange {
	lo, hi, _ := bounds(a, values)
	return &chart.ContinuousRange{Min: lo, Max: hi}
}

// How many powers of ten an axis may have so that labels at twice and five times them
// stay apart: where they stand side by side, and where one lies above the other.
const sideBySide, stacked = 1, 3

// ticks marks round numbers; of a logarithm over few powers of ten also twice
// and five times these. The first and the last tick are the axis's ends.
func ticks(a axis, values []float64, few float64) (out []chart.Tick) {
	lo, hi, step := bounds(a, values)
	for i := 0; lo+float64(i)*step <= hi+step/2; i++ {
		v := lo + float64(i)*step
		if !a.log {
			out = append(out, chart.Tick{Value: v, Label: fmt.Sprintf("%.4g", math.Round(v/step)*step)})
			continue
		}
		for _, f := range []float64{1, 2, 5} {
			if f > 1 && (hi-lo > few || v+math.Log10(f) > hi) {
				break
			}
			out = append(out, chart.Tick{Value: v + math.Log10(f), Label: fmt.Sprintf("%.3g", f*math.Pow(10, math.Round(v)))})
		}
	}
	return out
}

// above writes so far over the upright axis: its name, which written upright would lie on
// the labels of its ticks, and the title, whose begin is seen where a screen is narrow.
func above(text string, size float64, by int) chart.Renderable {
	return func(r chart.Renderer, box chart.Box, defaults chart.Style) {
		style := chart.Style{FontSize: size, FontColor: drawing.ColorFromHex("333333"), Font: defaults.Font}
		style.WriteTextOptionsToRenderer(r)
		r.Text(text, 12, box.Top-by)
	}
}

// legend names the lines at the right of a plot.
func legend(lines []line) chart.Renderable {
	return func(r chart.Renderer, box chart.Box, defaults chart.Style) {
		style := chart.Style{FontSize: 8, FontColor: drawing.ColorFromHex("333333"), Font: defaults.Font}
		style.WriteTextOptionsToRenderer(r)
		y := box.Top + 6
		for _, l := range lines {
			if l.name == "" {
				continue
			}
			r.SetFillColor(colourOf(l))
			r.SetStrokeColor(colourOf(l))
			r.Circle(3, box.Right+18, y-3)
			r.FillStroke()
			style.WriteTextOptionsToRenderer(r)
			r.Text(l.name, box.Right+26, y)
			y += 14
		}
	}
}

// sizes draws the divergence of packages over their size, as measured and as
// predicted.
func sizes(packages []Package) (template.HTML, error) {
	got, want := line{name: "measured"}, line{name: "predicted", nth: 1}
	unit, name := float64(1<<20), "MiB"
	for _, p := range packages {
		if p.Bytes >= 2<<30 {
			unit, name = 1<<30, "GiB"
		}
	}
	for _, p := range packages {
		size := float64(p.Bytes) / unit
		if k := p.Ledger.Model.KLD; k != nil {
			got.x, got.y = append(got.x, size), append(got.y, k.Mean)
		}
		if k := p.Ledger.Model.PredictedKLD; k > 0 {
			want.x, want.y = append(want.x, size), append(want.y, k)
		}
	}
	return draw("KL divergence against size", axis{name: "size of the package in " + name, zero: true}, axis{name: "mean KL divergence in nats", log: true}, []line{got, want})
}

// byBlock draws a figure of tensors over their blocks, a line for each role.
func byBlock(list []ledger.Tensor, what string, log bool, f func(t *ledger.Tensor) float64) (template.HTML, error) {
	var lines []line
	for i, role := range roles(list) { // a role has one colour in all plots
		l := line{name: role, joined: true, nth: i}
		for i := range list {
			if t := &list[i]; t.Role == role && t.Block >= 0 {
				l.x, l.y = append(l.x, float64(t.Block)), append(l.y, f(t))
			}
		}
		if len(l.x) > 0 {
			lines = append(lines, l)
		}
	}
	return draw(what+" by block and role", axis{name: "block"}, axis{name: what, log: log, zero: true}, lines)
}

// predictions draws the errors that fitting left over those that were
// predicted, between lines of half as much again and two thirds.
func predictions(list []ledger.Tensor) (template.HTML, error) {
	var lines []line
	lo, hi := math.Inf(1), 0.0
	for i, role := range roles(list) {
		l := line{name: role, nth: i}
		for i := range list {
			if t := &list[i]; t.Role == role && t.Predicted > 0 && t.Obtained > 0 {
				l.x, l.y = append(l.x, t.Predicted), append(l.y, t.Obtained)
				lo, hi = min(lo, t.Predicted), max(hi, t.Predicted)
			}
		}
		if len(l.x) > 0 {
			lines = append(lines, l)
		}
	}
	if len(lines) == 0 {
		return "", nil
	}
	for _, factor := range []float64{1, 1.5, 1 / 1.5} {
		lines = append(lines, line{x: []float64{lo, hi}, y: []float64{factor * lo, factor * hi}, joined: true, colour: "B0B0B0"})
	}
	return draw("error obtained against predicted", axis{name: "predicted", log: true}, axis{name: "obtained", log: true}, lines)
}

// drift draws how far hidden states have drifted behind each block.
func drift(blocks []ledger.Block) (template.HTML, error) {
	l := line{joined: true}
	for _, b := range blocks {
		l.x, l.y = append(l.x, float64(b.Index)), append(l.y, b.Drift)
	}
	return draw("drift of hidden states", axis{name: "block"}, axis{name: "mean squared difference over mean square", log: true}, []line{l})
}
