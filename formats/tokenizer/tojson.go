package tokenizer

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"
)

// toJSON is the tojson filter as transformers sets it up: Python's json.dumps
// with ensure_ascii=False, in the order of keys.
func toJSON(args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
	if len(args) == 0 {
		return jinja.Undefined(), fmt.Errorf("tojson without a value")
	}
	w := jsonWriter{item: ", ", colon: ": ", indent: -1}
	for k, v := range kw {
		switch {
		case k == "indent" && v.IsNone(), k == "separators" && v.IsNone():
		case k == "indent" && v.IsInt() && v.AsInt() >= 0 && v.AsInt() <= 64:
			w.indent, w.item = int(v.AsInt()), ","
		case k == "ensure_ascii" && v.IsBool():
			w.ascii = v.AsBool()
		case k == "sort_keys" && v.IsBool() && !v.AsBool():
		case k == "separators" && v.IsList() && v.AsList().Len() == 2:
			w.item, w.colon = v.AsList().Get(0).String(), v.AsList().Get(1).String()
		default:
			return jinja.Undefined(), fmt.Errorf("tojson with %s=%v", k, v)
		}
	}
	if len(args) > 1 && args[1].IsInt() && args[1].AsInt() >= 0 && args[1].AsInt() <= 64 {
		w.indent, w.item = int(args[1].AsInt()), ","
	}
	if err := w.write(args[0], 0); err != nil {
		return jinja.Undefined(), err
	}
	return jinja.NewString(w.b.String()), nil
}

type jsonWriter struct {
	b           strings.Builder
	item, colon string
	indent      int // -1: on one line
	ascii       bool
}

func (w *jsonWriter) line(depth int) {
	if w.indent >= 0 {
		w.b.WriteByte('\n')
		w.b.WriteString(strings.Repeat(" ", w.indent*depth))
	}
}

func (w *jsonWriter) write(v jinja.Value, depth int) error {
	switch {
	case v.IsNone():
		w.b.WriteString("null")
	case v.IsBool():
		w.b.WriteString(strconv.FormatBool(v.AsBool()))
	case v.IsInt():
		w.b.WriteString(strconv.FormatInt(v.AsInt(), 10))
	case v.IsFloat():
		w.b.WriteString(pyFloat(v.AsFloat()))
	case v.IsString():
		w.str(v.AsString())
	case v.IsList():
		return w.sequence('[', ']', v.AsList().Len(), depth, func(i int) error { return w.write(v.AsList().Get(i), depth+1) })
	case v.IsDict():
		d := v.AsDict()
		keys := d.OrderedKeys()
		return w.sequence('{', '}', len(keys), depth, func(i int) error {
			w.str(keys[i])
			w.b.WriteString(w.colon)
			x, _ := d.Get(keys[i])
			return w.write(x, depth+1)
		})
	default:
		return fmt.Errorf("%v is not JSON serializable", v)
	}
	return nil
}

func (w *jsonWriter) sequence(open, close byte, n, depth int, item func(i int) error) error {
	w.b.WriteByte(open)
	for i := range n {
		if i > 0 {
			w.b.WriteString(w.item)
		}
		w.line(depth + 1)
		if err := item(i); err != nil {
			return err
		}
	}
	if n > 0 {
		w.line(depth)
	}
	w.b.WriteByte(close)
	return nil
}

// str writes a string with the escapes of Python's json.
func (w *jsonWriter) str(s string) {
	w.b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			w.b.WriteByte('\\')
			w.b.WriteRune(r)
		case r == '\n':
			w.b.WriteString(`\n`)
		case r == '\r':
			w.b.WriteString(`\r`)
		case r == '\t':
			w.b.WriteString(`\t`)
		case r == '\b':
			w.b.WriteString(`\b`)
		case r == '\f':
			w.b.WriteString(`\f`)
		case r < 0x20 || w.ascii && r > 0x7e && r < 0x10000:
			fmt.Fprintf(&w.b, `\u%04x`, r)
		case w.ascii && r >= 0x10000:
			fmt.Fprintf(&w.b, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		default:
			w.b.WriteRune(r)
		}
	}
	w.b.WriteByte('"')
}

// pyFloat is Python's repr of a float.
func pyFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64) // two digits of exponent, like Python
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
