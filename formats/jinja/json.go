package jinja

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
)

// A jsonWriter writes what Python's json.dumps does.
type jsonWriter struct {
	m           *machine
	b           strings.Builder
	item, colon string
	indent      *string // nil: on one line
	ascii, sort bool
}

// toJSON is the tojson filter as transformers sets it up: json.dumps with
// ensure_ascii=False and without escaping HTML.
func toJSON(m *machine, v Value, a *args) Value {
	p := a.bind(m, "tojson", 0, "ensure_ascii", "indent", "separators", "sort_keys")
	w := &jsonWriter{m: m, item: ", ", colon: ": ", ascii: p.truth(0, false), sort: p.truth(3, false)}
	if ind, ok := p.given(1); ok && ind != nil {
		s, ok := isText(ind)
		if !ok {
			s = m.repeatText(" ", m.clamped("tojson's indent", ind))
		}
		w.indent, w.item = &s, ","
	}
	if sep, ok := p.given(2); ok && sep != nil {
		parts := m.items(sep)
		if len(parts) != 2 {
			m.fail("tojson's separators are %d: two are needed", len(parts))
		}
		for i, dst := range []*string{&w.item, &w.colon} {
			s, ok := isText(parts[i])
			if !ok {
				m.fail("tojson's separators: %s is not a string", typeName(parts[i]))
			}
			*dst = s
		}
	}
	w.value(v, 0)
	return w.b.String()
}

func (w *jsonWriter) text(s string) {
	w.m.alloc(int64(len(s)))
	w.b.WriteString(s)
}

func (w *jsonWriter) line(depth int) {
	if w.indent != nil {
		w.m.allocs(int64(depth), int64(len(*w.indent)))
		w.b.WriteByte('\n')
		w.b.WriteString(strings.Repeat(*w.indent, depth))
	}
}

func (w *jsonWriter) value(v Value, depth int) {
	w.m.step(1)
	w.m.enter()
	defer w.m.leave()
	switch v := v.(type) {
	case nil, bool, int64, *big.Int, float64:
		s, _ := w.scalar(v)
		w.text(s)
	case string:
		w.str(v)
	case markup:
		w.str(string(v))
	case *list:
		w.sequence('[', ']', len(v.items), depth, func(i int) { w.value(v.items[i], depth+1) })
	case *tuple:
		w.sequence('[', ']', len(v.items), depth, func(i int) { w.value(v.items[i], depth+1) })
	case *Dict:
		order := w.order(v)
		w.sequence('{', '}', len(order), depth, func(i int) {
			w.key(v.keys[order[i]])
			w.text(w.colon)
			w.value(v.values[order[i]], depth+1)
		})
	default:
		w.m.fail("%s cannot be written as JSON", typeName(v))
	}
}

// order is the order of a dictionary's entries.
func (w *jsonWriter) order(d *Dict) []int {
	w.m.allocs(int64(len(d.keys)), 8)
	out := make([]int, len(d.keys))
	for i := range out {
		out[i] = i
	}
	if w.sort {
		slices.SortStableFunc(out, func(a, b int) int {
			c, _ := w.m.order(d.keys[a], d.keys[b])
			return c
		})
	}
	return out
}

func (w *jsonWriter) scalar(v Value) (string, bool) {
	switch v := v.(type) {
	case nil:
		return "null", true
	case bool:
		return fmt.Sprint(v), true
	case int64:
		return fmt.Sprint(v), true
	case *big.Int:
		return w.m.intText(v), true
	case float64:
		switch {
		case math.IsNaN(v):
			return "NaN", true
		case math.IsInf(v, 1):
			return "Infinity", true
		case math.IsInf(v, -1):
			return "-Infinity", true
		}
		return floatText(v), true
	}
	return "", false
}

func (w *jsonWriter) key(k Value) {
	s, ok := isText(k)
	if !ok {
		if s, ok = w.scalar(k); !ok {
			w.m.fail("%s cannot be a key in JSON", typeName(k))
		}
	}
	w.str(s)
}

func (w *jsonWriter) sequence(open, end byte, n, depth int, item func(i int)) {
	w.b.WriteByte(open)
	for i := range n {
		if i > 0 {
			w.text(w.item)
		}
		w.line(depth + 1)
		item(i)
	}
	if n > 0 {
		w.line(depth)
	}
	w.b.WriteByte(end)
}

// str writes a string with the escapes of Python's json.
func (w *jsonWriter) str(s string) {
	w.m.alloc(int64(len(s)) + 2)
	w.b.WriteByte('"')
	for _, r := range s {
		switch {
		case escaped(&w.b, r, '"'):
		case r == '\b':
			w.b.WriteString(`\b`)
		case r == '\f':
			w.b.WriteString(`\f`)
		case r < 0x20:
			w.text(fmt.Sprintf(`\u%04x`, r))
		case !w.ascii || r < 0x7f || strings.ContainsRune(w.m.opts.Verbatim, r):
			w.b.WriteRune(r)
		case r < 0x10000:
			w.text(fmt.Sprintf(`\u%04x`, r))
		default:
			w.text(fmt.Sprintf(`\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff))
		}
	}
	w.b.WriteByte('"')
}
