package tokenizer

import (
	"encoding/json"
	"fmt"
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
