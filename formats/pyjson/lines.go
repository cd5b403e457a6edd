package pyjson

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
)

// Lines writes a struct as JSON for people who compare and edit it: a field a
// line in the order of the struct, and of a field that is a slice of structs
// an element a line. It panics where v is no struct, or holds what JSON cannot.
func Lines(v any) []byte {
	var b bytes.Buffer
	s := reflect.Indirect(reflect.ValueOf(v))
	b.WriteString("{")
	first := true
	for i := range s.NumField() {
		name, omit, _ := bytes.Cut([]byte(s.Type().Field(i).Tag.Get("json")), []byte(","))
		f := s.Field(i)
		if len(omit) > 0 && f.IsZero() {
			continue
		}
		if !first {
			b.WriteString(",")
		}
		first = false
		b.WriteString("\n  " + strconv.Quote(string(name)) + ": ")
		if f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct {
			lines(&b, f)
			continue
		}
		compact(&b, f.Interface())
	}
	b.WriteString("\n}\n")
	return b.Bytes()
}

func lines(b *bytes.Buffer, list reflect.Value) {
	b.WriteString("[")
	for i := range list.Len() {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n    ")
		compact(b, list.Index(i).Interface())
	}
	if list.Len() > 0 {
		b.WriteString("\n  ")
	}
	b.WriteString("]")
}

// compact writes one value on one line.
func compact(b *bytes.Buffer, v any) {
	var raw bytes.Buffer
	e := json.NewEncoder(&raw)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	quoted := false
	p := bytes.TrimSuffix(raw.Bytes(), []byte("\n"))
	for i, c := range p {
		b.WriteByte(c)
		switch {
		case c == '"' && !escaped(p[:i]):
			quoted = !quoted
		case (c == ',' || c == ':') && !quoted:
			b.WriteByte(' ')
		}
	}
}

// escaped reports whether what follows p is escaped by a backslash.
func escaped(p []byte) bool {
	n := 0
	for n < len(p) && p[len(p)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// Round returns the nearest number of six significant decimal digits: what is
// measured has no more, and files that hold it stay short.
func Round(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return v
	}
	r, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	return r
}
