package jinja

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"unicode"
)

// str is Python's str(v).
func (m *machine) str(v Value) string {
	switch v := v.(type) {
	case string:
		return v
	case markup:
		return string(v)
	case *undefined:
		return ""
	}
	return m.repr(v)
}

// repr is Python's repr(v).
func (m *machine) repr(v Value) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return fmt.Sprint(v)
	case float64:
		return floatText(v)
	}
	w := &reprWriter{m: m}
	w.value(v)
	return w.b.String()
}

// A reprWriter writes reprs of containers. Open are those it is within: they
// are not entered again, so that a value that holds itself has an end.
type reprWriter struct {
	m    *machine
	b    strings.Builder
	open []Value
}

func (w *reprWriter) text(s string) {
	w.m.alloc(int64(len(s)))
	w.b.WriteString(s)
}

func (w *reprWriter) value(v Value) {
	w.m.step(1)
	w.m.enter()
	defer w.m.leave()
	switch v := v.(type) {
	case string:
		w.quoted(v)
	case markup:
		w.text("Markup(")
		w.quoted(string(v))
		w.text(")")
	case *big.Int:
		w.text(w.m.intText(v))
	case *list:
		w.sequence(v, "[", v.items, "]")
	case *tuple:
		end := ")"
		if len(v.items) == 1 {
			end = ",)"
		}
		w.sequence(v, "(", v.items, end)
	case *Dict:
		w.dict(v)
	case *undefined:
		w.text("Undefined")
	case *namespace:
		w.text("<Namespace ")
		w.dict(v.attrs)
		w.text(">")
	case *rng:
		w.text(fmt.Sprintf("range(%d, %d", v.start, v.stop))
		if v.step != 1 {
			w.text(fmt.Sprintf(", %d", v.step))
		}
		w.text(")")
	case *view:
		w.text("dict_" + v.what + "(")
		items := make([]Value, len(v.of.keys))
		for i := range items {
			items[i] = v.item(w.m, i)
		}
		w.sequence(v, "[", items, "]")
		w.text(")")
	case *macro:
		w.text("<Macro " + w.m.repr(v.def.name) + ">")
	case *loop:
		w.text(fmt.Sprintf("<LoopContext %d/%d>", v.index0+1, v.length(w.m)))
	case nil, bool, int64, float64:
		w.text(w.m.repr(v))
	default:
		w.m.unsupported("printing a %s, which shows an address,", typeName(v))
	}
}

// enter reports whether v is being written already.
func (w *reprWriter) enter(v Value) bool {
	w.m.scan(len(w.open) * 16)
	if slices.Contains(w.open, v) {
		return false
	}
	w.open = append(w.open, v)
	return true
}

func (w *reprWriter) sequence(v Value, open string, items []Value, end string) {
	if !w.enter(v) {
		w.text(open + "..." + end[len(end)-1:])
		return
	}
	w.text(open)
	for i, x := range items {
		if i > 0 {
			w.text(", ")
		}
		w.value(x)
	}
	w.text(end)
	w.open = w.open[:len(w.open)-1]
}

func (w *reprWriter) dict(d *Dict) {
	if !w.enter(d) {
		w.text("{...}")
		return
	}
	w.text("{")
	for i, k := range d.keys {
		if i > 0 {
			w.text(", ")
		}
		w.value(k)
		w.text(": ")
		w.value(d.values[i])
	}
	w.text("}")
	w.open = w.open[:len(w.open)-1]
}

// quoted writes a string literal as Python does.
func (w *reprWriter) quoted(s string) {
	q := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		q = '"'
	}
	w.m.alloc(int64(len(s)) + 2)
	w.b.WriteRune(q)
	for _, r := range s {
		switch {
		case escaped(&w.b, r, q):
		case unicode.IsPrint(r) || strings.ContainsRune(w.m.opts.Verbatim, r):
			w.b.WriteRune(r)
		case r < 0x100:
			w.text(fmt.Sprintf(`\x%02x`, r))
		case r < 0x10000:
			w.text(fmt.Sprintf(`\u%04x`, r))
		default:
			w.text(fmt.Sprintf(`\U%08x`, r))
		}
	}
	w.b.WriteRune(q)
}

// escaped writes what Python and JSON spell alike within the quotation mark q, and
// reports whether r is that.
func escaped(b *strings.Builder, r, q rune) bool {
	switch r {
	case q, '\\':
		b.WriteByte('\\')
		b.WriteRune(r)
	case '\n':
		b.WriteString(`\n`)
	case '\r':
		b.WriteString(`\r`)
	case '\t':
		b.WriteString(`\t`)
	default:
		return false
	}
	return true
}
