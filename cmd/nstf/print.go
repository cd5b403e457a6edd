package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/schollz/progressbar/v3"

	"github.com/nstf/nstf/formats"
)

// tableWidth is what every table fits.
const tableWidth = 100

// A textTable is a table whose cells may hold anybody's words.
type textTable struct{ table.Writer }

// folded is a cell of several lines, made by this program.
type folded string

// AppendRow adds a row. Strings are made printable and bounded.
func (t textTable) AppendRow(row table.Row, config ...table.RowConfig) {
	for i, cell := range row {
		switch s := cell.(type) {
		case string:
			row[i] = formats.Printable(formats.Brief(s, maxErrorLine))
		case folded:
			row[i] = folded(formats.PrintableText(formats.Brief(string(s), maxErrorLine)))
		}
	}
	t.Writer.AppendRow(row, config...)
}

// newTable returns a plain table in the house's style, whose columns from
// the given one on are numbers.
func newTable(numbersFrom int, header ...any) textTable {
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
	return textTable{t}
}

// printTable writes a table without trailing spaces.
func printTable(w io.Writer, t textTable) {
	for line := range strings.Lines(t.Render() + "\n") {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

// printJSON writes a value as indented JSON. What a terminal would obey is escaped as
// JSON has it, where encoding/json does not: in strings alone it can occur.
func printJSON(w io.Writer, v any) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, jsonPrintable(text.String()))
	return err
}

func jsonPrintable(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		switch {
		case r == '\n' || !formats.Controls(r):
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		}
	}
	return b.String()
}

// progress returns a function that draws a bar with rate and remaining time
// on stderr, and one that clears it; where stderr is no terminal, lines tell of what
// takes longer than a moment. unit is what the numbers count.
func (a *app) progress(what, unit string) (step func(done, total int64), end func()) {
	if !a.errTerminal {
		l := newPhaseLog(a.err, what, unit, firstLine, everyLine)
		return l.step, l.end
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
func size(n int64) string { return formats.Size(n) }

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

// clip shortens a name from the middle, so that it fits a column, and makes it printable.
func clip(s string, width int) string {
	if len(s) > 64*width { // what is left of the middle shows nowhere
		s = s[:32*width] + s[len(s)-32*width:]
	}
	r := []rune(formats.Printable(s))
	if len(r) <= width {
		return string(r)
	}
	head := (width - 1) / 3
	return string(r[:head]) + "…" + string(r[len(r)-(width-1-head):])
}
