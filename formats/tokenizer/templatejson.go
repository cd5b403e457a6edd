package tokenizer

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"

	"github.com/nstf/nstf/formats/pyjson"
)

// object is a JSON object in order. Ordered JSON is nil, bool, int64,
// float64, string, []any or *object.
type object struct {
	keys   []string
	values []any
}

func (o *object) set(k string, v any) {
	for i := range o.keys {
		if o.keys[i] == k {
			o.values[i] = v
			return
		}
	}
	o.keys = append(o.keys, k)
	o.values = append(o.values, v)
}

func parseOrdered(raw []byte) (any, error) {
	v, err := pyjson.Parse("", raw)
	if err != nil {
		return nil, err
	}
	return ordered(v), nil
}

func ordered(v pyjson.Value) any {
	switch v := v.(type) {
	case pyjson.Number:
		if n, ok := v.Int64(); ok && !strings.ContainsAny(string(v), ".eE") {
			return n
		}
		f, _ := v.Float64()
		return f
	case []pyjson.Value:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = ordered(x)
		}
		return out
	case *pyjson.Object:
		o := &object{}
		for _, k := range v.Keys() {
			x, _ := v.Get(k)
			o.keys = append(o.keys, k) // no two are equal
			o.values = append(o.values, ordered(x))
		}
		return o
	}
	return v
}

// object returns the message as templates see it.
func (m Message) object() (*object, error) {
	o := &object{}
	o.set("role", m.Role)
	o.set("content", m.Content)
	if m.ToolCalls != nil {
		calls := make([]any, len(m.ToolCalls))
		for i, raw := range m.ToolCalls {
			v, err := parseOrdered(raw)
			if err != nil {
				return nil, err
			}
			calls[i] = v
		}
		o.set("tool_calls", calls)
	}
	if m.More != nil {
		v, err := parseOrdered(m.More)
		if err != nil {
			return nil, err
		}
		more, ok := v.(*object)
		if !ok {
			return nil, fmt.Errorf("further fields are not a JSON object: %s", clip(m.More))
		}
		for i, k := range more.keys {
			o.set(k, more.values[i])
		}
	}
	return o, nil
}

// ParseMessages reads a JSON array of messages, each an object with at least
// a role; the order of their fields is kept.
func ParseMessages(raw []byte) ([]Message, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, jsonError("", "messages", err)
	}
	out := make([]Message, len(list))
	for i, r := range list {
		var h struct{ Role *string }
		if err := json.Unmarshal(r, &h); err != nil || h.Role == nil {
			return nil, located("", fmt.Sprintf("message %d", i), fmt.Errorf("not an object with a role: %s", clip(r)))
		}
		out[i] = Message{Role: *h.Role, More: r}
	}
	return out, nil
}

// collect appends every text within v.
func collect(b *strings.Builder, v any) {
	switch v := v.(type) {
	case string:
		b.WriteString(v)
	case []any:
		for _, x := range v {
			collect(b, x)
		}
	case *object:
		for i, k := range v.keys {
			b.WriteString(k)
			collect(b, v.values[i])
		}
	}
}

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

// maxRange is the longest range a template may make, as in Jinja's sandbox.
const maxRange = 100000

func boundedRange(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	n := [3]int64{0, 0, 1}
	for i, a := range args {
		if !a.IsInt() || i > 2 {
			return jinja.Undefined(), fmt.Errorf("range: %v is not an integer", a)
		}
		n[i] = a.AsInt()
	}
	switch {
	case len(args) == 0 || n[2] == 0:
		return jinja.Undefined(), fmt.Errorf("range: missing bound or zero step")
	case len(args) == 1:
		n[0], n[1] = 0, n[0]
	}
	var items []jinja.Value
	for i := n[0]; n[2] > 0 && i < n[1] || n[2] < 0 && i > n[1]; i += n[2] {
		if len(items) >= maxRange {
			return jinja.Undefined(), fmt.Errorf("range: more than %d items", maxRange)
		}
		items = append(items, jinja.NewInt(i))
	}
	return jinja.NewList(items), nil
}

// strftime is Python's strftime for the directives that templates use.
func (c *conversation) strftime(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if len(args) != 1 || !args[0].IsString() {
		return jinja.Undefined(), fmt.Errorf("strftime_now needs a format")
	}
	layouts := map[byte]string{'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'b': "Jan", 'B': "January", 'a': "Mon", 'A': "Monday",
		'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'j': "002", 'Z': "MST", 'z': "-0700",
		'F': "2006-01-02", 'T': "15:04:05", 'e': "_2"}
	f := args[0].AsString()
	var b strings.Builder
	for i := 0; i < len(f); i++ {
		if f[i] != '%' || i+1 == len(f) {
			b.WriteByte(f[i])
			continue
		}
		i++
		switch l, ok := layouts[f[i]]; {
		case ok:
			b.WriteString(c.now.Format(l))
		case f[i] == '%':
			b.WriteByte('%')
		case f[i] == '-' && i+1 < len(f) && (f[i+1] == 'd' || f[i+1] == 'm' || f[i+1] == 'H' || f[i+1] == 'I'):
			i++
			b.WriteString(strings.TrimPrefix(c.now.Format(layouts[f[i]]), "0"))
		default:
			return jinja.Undefined(), fmt.Errorf("strftime_now: %%%c is not implemented", f[i])
		}
	}
	return jinja.NewString(b.String()), nil
}
