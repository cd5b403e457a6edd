package grammar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/nstf/nstf/formats"
)

// A value is JSON: nil, bool, json.Number, string, []value or *object.
type value any

// An object keeps its members in their order.
type object struct {
	names  []string
	values map[string]value
}

func (o *object) get(name string) (value, bool) {
	v, ok := o.values[name]
	return v, ok
}

// readJSON reads one value.
func readJSON(raw []byte) (value, error) {
	if len(raw) > maxSource {
		return nil, formats.Errorf("", "", "%d bytes of JSON; %d at most", len(raw), maxSource)
	}
	if !utf8.Valid(raw) {
		return nil, formats.Errorf("", "", "the JSON is not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	v, err := readValue(dec, 0)
	if err == nil {
		if _, more := dec.Token(); more != io.EOF {
			err = errors.New("something follows the value")
		}
	}
	var known *formats.FormatError
	if err != nil && !errors.As(err, &known) {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, formats.ErrorAt("", "", dec.InputOffset(), "not JSON: %v", err)
	}
	return v, err
}

func readValue(dec *json.Decoder, depth int) (value, error) {
	if depth > maxNesting {
		return nil, formats.ErrorAt("", "", dec.InputOffset(), "JSON of more than %d levels", maxNesting)
	}
	t, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('['):
		out := []value{}
		for dec.More() {
			v, err := readValue(dec, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		_, err = dec.Token()
		return out, err
	case json.Delim('{'):
		o := &object{values: map[string]value{}}
		for dec.More() {
			k, err := dec.Token()
			if err != nil {
				return nil, err
			}
			name := k.(string)
			v, err := readValue(dec, depth+1)
			if err != nil {
				return nil, err
			}
			if _, twice := o.values[name]; twice {
				return nil, formats.ErrorAt("", "", dec.InputOffset(), "the name %q occurs twice", formats.Brief(name, 80))
			}
			o.names, o.values[name] = append(o.names, name), v
		}
		_, err = dec.Token()
		return o, err
	}
	return t, nil
}

// number returns a number's value. Exponents beyond 400 are refused: they are no numbers
// that a program computes with, and a rational would hold all their digits.
func number(n json.Number) (*big.Rat, error) {
	s := string(n)
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		var e int
		if _, err := fmt.Sscanf(s[i+1:], "%d", &e); err != nil || e > 400 || e < -400 {
			return nil, fmt.Errorf("%s is out of range", formats.Brief(s, 40))
		}
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok || len(s) > 1000 {
		return nil, fmt.Errorf("%s is out of range", formats.Brief(s, 40))
	}
	return r, nil
}

// same reports whether two values are equal as JSON Schema has it: numbers by their
// value, objects whatever the order of their members.
func same(a, b value) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		if !ok || a == b {
			return ok
		}
		x, errX := number(a)
		y, errY := number(b)
		return errX == nil && errY == nil && x.Cmp(y) == 0
	case []value:
		b, ok := b.([]value)
		return ok && slices.EqualFunc(a, b, same)
	case *object:
		b, ok := b.(*object)
		if !ok || len(a.names) != len(b.names) {
			return false
		}
		for _, n := range a.names {
			if w, ok := b.get(n); !ok || !same(a.values[n], w) {
				return false
			}
		}
		return true
	}
	switch b.(type) {
	case []value, *object:
		return false
	}
	return a == b
}

// quote spells a string in JSON, as this engine writes those that a schema constrains:
// characters as they are, but for quotes, backslashes and controls.
func quote(s string) string {
	b := []byte{'"'}
	for _, r := range s {
		b = append(b, spelled(r)...)
	}
	return string(append(b, '"'))
}

func spelled(r rune) string {
	switch r {
	case '"', '\\':
		return `\` + string(r)
	case '\b':
		return `\b`
	case '\f':
		return `\f`
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	}
	if r < ' ' {
		return fmt.Sprintf(`\u%04x`, r)
	}
	return string(r)
}

// spelling is the expression of one character of a string, out of a set, so spelled.
func spelling(s runeSet) expr {
	controls := newRuneSet(runeRange{0, 0x1f}, runeRange{'"', '"'}, runeRange{'\\', '\\'})
	out := alt{class(s.and(controls.not()))}
	for _, r := range s.and(controls) {
		for c := r.lo; c <= r.hi; c++ {
			out = append(out, literal(spelled(c)))
		}
	}
	return out
}

// The rules that every JSON grammar has, behind rule 0.
const (
	jsonRoot ref = iota
	jsonSpace
	jsonString
	jsonNumber
	jsonInteger
	jsonArray
	jsonObject
	jsonValue
	jsonRules
)

// jsonBasis returns those rules; the first is left to the caller.
//
// Between tokens there is nothing, one space, or the end of a line with up to 20 spaces
// or tabs behind it. Numbers have 16 digits at most in front of the point, 16 behind it,
// and 2 in the exponent: what no double holds is not written.
func jsonBasis() []rule {
	set := func(s string) class {
		var in []runeRange
		for _, r := range s {
			in = append(in, runeRange{r, r})
		}
		return class(newRuneSet(in...))
	}
	digit, hex := class(digits), set("0123456789abcdefABCDEF")
	plain := newRuneSet(runeRange{0, 0x1f}, runeRange{'"', '"'}, runeRange{'\\', '\\'}).not()
	char := alt{class(plain), seq{literal(`\`), alt{
		set(`"\/bfnrt`),
		seq{literal("u"), alt{
			seq{set("0123456789abcefABCEF"), hex, hex, hex},
			seq{set("dD"), set("01234567"), hex, hex},
			seq{set("dD"), set("89abAB"), hex, hex, literal(`\u`), set("dD"), set("cdefCDEF"), hex, hex}, // two for one
		}},
	}}}
	integer := seq{repeat{literal("-"), 0, 1}, alt{literal("0"), seq{set("123456789"), repeat{digit, 0, 15}}}}
	members := func(open string, x expr, shut string) expr {
		return seq{literal(open), jsonSpace, alt{literal(shut), seq{x, repeat{seq{literal(","), jsonSpace, x}, 0, -1}, jsonSpace, literal(shut)}}}
	}
	rules := make([]rule, jsonRules)
	rules[jsonRoot] = rule{name: "the text"}
	rules[jsonSpace] = rule{"a space", alt{seq{}, literal(" "), seq{literal("\n"), repeat{set(" \t"), 0, 20}}}, true}
	rules[jsonString] = rule{"a string", seq{literal(`"`), repeat{char, 0, -1}, literal(`"`)}, true}
	rules[jsonNumber] = rule{"a number", seq{integer, repeat{seq{literal("."), repeat{digit, 1, 16}}, 0, 1},
		repeat{seq{set("eE"), repeat{set("+-"), 0, 1}, repeat{digit, 1, 2}}, 0, 1}}, true}
	rules[jsonInteger] = rule{"an integer", integer, true}
	rules[jsonArray] = rule{"an array", members("[", jsonValue, "]"), true}
	rules[jsonObject] = rule{"an object", members("{", seq{jsonString, literal(":"), jsonSpace, jsonValue}, "}"), true}
	rules[jsonValue] = rule{"a value", alt{jsonObject, jsonArray, jsonString, jsonNumber, literal("true"), literal("false"), literal("null")}, false}
	return rules
}

// charIn is one character of a string, in any spelling.
func charIn(rules []rule) expr { return rules[jsonString].x.(seq)[1].(repeat).x }
