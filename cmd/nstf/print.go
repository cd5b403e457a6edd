package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/schollz/progressbar/v3"

	drawn "github.com/nstf/nstf/quantize/report"
)

// tableWidth is what every table fits.
const tableWidth = 100

// newTable returns a plain table in the house's style, whose columns from
// the given one on are numbers.
func newTable(numbersFrom int, header ...any) table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = text.FormatDefault
	style.Size.WidthMax = tableWidth
	t.SetStyle(style)
	if header != nil {
		t.AppendHeader(table.Row(header))
	}
	var columns []table.ColumnConfig
	for i := numbersFrom; i < len(header); i++ {
		columns = append(columns, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	return t
}

// printTable writes a table without trailing spaces.
func printTable(w io.Writer, t table.Writer) {
	for line := range strings.Lines(t.Render() + "\n") {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

// printJSON writes a value as indented JSON.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// progress returns a function that draws a bar with rate and remaining time
// on stderr, and one that clears it; nil and a no-op where stderr is no
// terminal. unit is what the numbers count.
func (a *app) progress(what, unit string) (step func(done, total int64), end func()) {
	if !a.errTerminal {
		return nil, func() {}
	}
	options := []progressbar.Option{
		progressbar.OptionSetWriter(a.err), progressbar.OptionSetDescription(what), progressbar.OptionSetWidth(30),
		progressbar.OptionSetPredictTime(true), progressbar.OptionThrottle(100 * time.Millisecond), progressbar.OptionClearOnFinish(),
	}
	if unit == "bytes" {
		options = append(options, progressbar.OptionShowBytes(true), progressbar.OptionUseIECUnits(true))
	} else {
		options = append(options, progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString(unit))
	}
	// The bar exists from now on, so that its rate counts from the beginning;
	// the total comes with the first step.
	bar, known := progressbar.NewOptions64(math.MaxInt64, options...), false
	step = func(done, total int64) {
		if !known {
			known = true
			bar.ChangeMax64(total)
		}
		bar.Set64(done)
	}
	return step, func() {
		if known {
			bar.Clear()
		}
	}
}

// size writes a number of bytes as pages do.
func size(n int64) string { return drawn.Size(n) }

// count writes a number of parameters.
func count(n int64) string {
	switch f := float64(n); {
	case n >= 1e9:
		return fmt.Sprintf("%.2f B", f/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.2f M", f/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%.1f K", f/1e3)
	}
	return fmt.Sprint(n)
}

// clip shortens a name from the middle, so that it fits a column.
func clip(s string, width int) string {
	r := []rune(s)
	if len(r) <= width {
		return s
	}
	head := (width - 1) / 3
	return string(r[:head]) + "…" + string(r[len(r)-(width-1-head):])
}
