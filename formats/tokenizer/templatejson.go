package tokenizer

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"

	"github.com/nstf/nstf/formats/jinja"
	"github.com/nstf/nstf/formats/pyjson"
)

// Ordered JSON is what a template's variables hold: nil, bool, int64,
// *big.Int, float64, string, []any or *jinja.Dict.

func parseOrdered(raw []byte) (any, error) {
	v, err := pyjson.Parse("", raw)
	if err != nil {
		return nil, err
	}
	return ordered(v)
}

// maxDigits is the longest integer that Python reads.
const maxDigits = 4300

func ordered(v pyjson.Value) (any, error) {
	switch v := v.(type) {
	case pyjson.Number:
		return number(string(v))
	case []pyjson.Value:
		out := make([]any, len(v))
		for i, x := range v {
			var err error
			if out[i], err = ordered(x); err != nil {
				return nil, err
			}
		}
		return out, nil
	case *pyjson.Object:
		d := jinja.NewDict()
		for _, k := range v.Keys() {
			x, _ := v.Get(k)
			y, err := ordered(x)
			if err != nil {
				return nil, err
			}
			d.Set(k, y)
		}
		return d, nil
	}
	return v, nil
}

func number(s string) (any, error) {
	n, ok := pyjson.Number(s).Int64()
	integer := strings.Trim(s, "-0123456789") == ""
	switch {
	case ok && integer:
		return n, nil
	case integer && len(s) > maxDigits:
		return nil, fmt.Errorf("an integer of %d digits: the limit is %d", len(s), maxDigits)
	case integer:
		i, _ := new(big.Int).SetString(s, 10)
		return i, nil
	}
	f, _ := pyjson.Number(s).Float64()
	return f, nil
}

// object returns the message as templates see it.
func (m Message) object() (*jinja.Dict, error) {
	d := jinja.NewDict()
	d.Set("role", m.Role)
	d.Set("content", m.Content)
	if m.ToolCalls != nil {
		calls := make([]any, len(m.ToolCalls))
		for i, raw := range m.ToolCalls {
			v, err := parseOrdered(raw)
			if err != nil {
				return nil, err
			}
			calls[i] = v
		}
		d.Set("tool_calls", calls)
	}
	if m.More != nil {
		v, err := parseOrdered(m.More)
		if err != nil {
			return nil, err
		}
		more, ok := v.(*jinja.Dict)
		if !ok {
			return nil, fmt.Errorf("further fields are not a JSON object: %s", clip(m.More))
		}
		if _, whole := more.Get("role"); whole && m.Content == "" && m.ToolCalls == nil {
			d = more // as ParseMessages made it: without fields of our own
		} else {
			for k, v := range more.All() {
				d.Set(k, v)
			}
		}
	}
	return withReasoning(d), nil
}

// withReasoning fills the fields under which templates look for an assistant's
// reasoning from the first of its names that has a value, as transformers'
// apply_chat_template does (utils/chat_template_utils.py of 5.23.0).
func withReasoning(d *jinja.Dict) *jinja.Dict {
	for _, name := range []string{"reasoning_content", "thinking", "reasoning"} {
		v, _ := d.Get(name)
		if v == nil {
			continue
		}
		out := jinja.NewDict()
		out.Set("thinking", v)
		for k, x := range d.All() {
			out.Set(k, x)
		}
		out.Set("reasoning_content", v)
		return out
	}
	return d
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
	case *jinja.Dict:
		for k, x := range v.All() {
			b.WriteString(k)
			collect(b, x)
		}
	}
}
