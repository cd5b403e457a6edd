package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

type dict = map[string]any

// A chance makes schemas by chance.
type chance struct {
	*rand.Rand
	defs []string
}

func (r chance) one(of ...any) any { return of[r.IntN(len(of))] }

func (r chance) schema(depth int) any {
	if depth > 3 {
		return r.one(dict{"type": "integer"}, dict{"type": "null"}, dict{"enum": []any{"x", 1, nil}}, dict{"const": "é\"\n"}, true)
	}
	s := dict{}
	switch r.IntN(14) {
	case 0:
		s = dict{"type": "string"}
		r.maybe(s, "minLength", r.IntN(4))
		r.maybe(s, "maxLength", 4+r.IntN(20))
		r.maybe(s, "pattern", r.one("^[a-z]+$", "a|b", `^\d{2,4}`, `\w+@\w+$`, "é*", `^[^"\\]{3}`, `^(foo|bar)baz?$`))
	case 1:
		s = dict{"type": "string", "format": r.one("date", "time", "date-time", "duration", "uuid", "hostname", "email", "ipv4", "ipv6", "uri", "json-pointer")}
	case 2, 3:
		s = dict{"type": r.one("integer", "number")}
		low := r.IntN(4000) - 2000
		r.maybe(s, r.one("minimum", "exclusiveMinimum").(string), r.one(low, float64(low)+0.25, low/100, float64(low)/1000))
		r.maybe(s, r.one("maximum", "exclusiveMaximum").(string), r.one(low+2+r.IntN(3000), float64(low)+1.5, 2e9))
		if r.IntN(5) == 0 {
			s["multipleOf"] = r.one(2, 7, 0.5, 0.25)
			delete(s, "minimum")
			delete(s, "exclusiveMinimum")
		}
	case 4:
		return dict{"enum": []any{r.IntN(9), "word", nil, true, []any{1, "a"}, dict{"k": 1, "l": []any{}}}[:1+r.IntN(6)]}
	case 5:
		s = dict{"type": "array"}
		r.maybe(s, "items", r.schema(depth+1))
		r.maybe(s, "minItems", r.IntN(3))
		r.maybe(s, "maxItems", 3+r.IntN(4))
		if r.IntN(3) == 0 {
			s["prefixItems"] = []any{r.schema(depth + 1), r.schema(depth + 1)}
		}
	case 6, 7, 8, 9:
		s = dict{"type": "object"}
		props, required := dict{}, []any{}
		for i := range r.IntN(5) {
			name := []string{"name", "na", "a/b", "x~", "ünï", "q\"t"}[i]
			props[name] = r.schema(depth + 1)
			if r.IntN(2) == 0 {
				required = append(required, name)
			}
		}
		r.maybe(s, "properties", props)
		r.maybe(s, "required", required)
		r.maybe(s, "additionalProperties", r.one(false, false, r.schema(depth+2)))
		if r.IntN(5) == 0 {
			s["patternProperties"] = dict{"^n": r.schema(depth + 2), "[0-9]$": r.schema(depth + 2)}
		}
		if r.IntN(6) == 0 {
			s["propertyNames"] = dict{"maxLength": 5}
		}
		if r.IntN(6) == 0 {
			s["maxProperties"] = len(required) + r.IntN(3)
		}
		if r.IntN(6) == 0 {
			s["minProperties"] = r.IntN(3)
		}
	case 10:
		return dict{"anyOf": []any{r.schema(depth + 1), r.schema(depth + 1)}}
	case 11:
		return dict{"allOf": []any{r.schema(depth + 1), r.schema(depth + 2)}}
	case 12:
		return dict{"oneOf": []any{dict{"type": "string"}, dict{"type": "array", "items": r.schema(depth + 1)}, dict{"type": "null"}}}
	case 13:
		return dict{"$ref": r.one("#/$defs/tree", "#/$defs/list")}
	}
	return s
}

func (r chance) maybe(s dict, key string, v any) {
	if r.IntN(2) == 0 {
		s[key] = v
	}
}

// bytesAnd is a vocabulary of all bytes, and some tokens as JSON has them.
func bytesAnd(t testing.TB) *Vocabulary {
	tokens := [][]byte{nil}
	for b := range 256 {
		tokens = append(tokens, []byte{byte(b)})
	}
	for _, s := range []string{`":`, `",`, `{"`, `"}`, `},{"`, `"]`, "]}", `": "`, `":[`, "name", "null", "true", "12", `, "`, "é", "\n  ", `\u00`, "2024-", ".5", "e+1", "the quick brown fox jumps", `"}]}`} {
		tokens = append(tokens, []byte(s))
	}
	v, err := NewVocabulary(tokens, []int32{0})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// textBy walks through masks until the text ends. What closes something is preferred.
func textBy(t testing.TB, m *Matcher, v *Vocabulary, r *rand.Rand) (string, bool) {
	var b strings.Builder
	dst := make([]uint32, v.Words())
	for step := range 20000 {
		if err := m.Mask(dst); err != nil {
			t.Fatalf("%v behind %s", err, b.String())
		}
		var legal, closing []int32
		for id := range int32(v.Len()) {
			if dst[id>>5]>>(id&31)&1 == 0 {
				continue
			}
			legal = append(legal, id)
			if s := string(v.tokens[id]); id == 0 || s == `"` || s == "}" || s == "]" || s == `"}` || s == `"]` {
				closing = append(closing, id)
			}
		}
		if len(closing) > 0 && (step > 300 || r.IntN(4) == 0) {
			legal = closing
		}
		id := legal[r.IntN(len(legal))]
		if err := m.Accept(id); err != nil {
			t.Fatal(err)
		}
		if id == 0 {
			return b.String(), true
		}
		b.Write(v.tokens[id])
	}
	return b.String(), false
}

// Schemas by chance: what comes of masks is an instance, as another program says.
func TestRandomSchemas(t *testing.T) {
	want := 1000
	if testing.Short() {
		want = 150
	}
	v := bytesAnd(t)
	schemas, texts, refused, empty, open := 0, 0, 0, 0, 0
	for seed := uint64(0); schemas < want; seed++ {
		r := chance{Rand: rand.New(rand.NewPCG(seed, 1))}
		s := r.schema(0)
		if o, ok := s.(dict); ok {
			o["$defs"] = dict{
				"tree": dict{"type": "object", "properties": dict{"left": dict{"$ref": "#/$defs/tree"}, "value": r.schema(2)}, "additionalProperties": false},
				"list": dict{"anyOf": []any{dict{"type": "null"}, dict{"type": "array", "prefixItems": []any{r.schema(2), dict{"$ref": "#/$defs/list"}}, "minItems": 2, "items": false}}},
			}
		}
		raw, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		g, err := ParseSchema(raw)
		var u *formats.UnsupportedError
		var f *formats.FormatError
		switch {
		case errors.As(err, &u):
			refused++
			continue
		case errors.As(err, &f) && strings.Contains(err.Error(), "never ends"):
			empty++
			continue
		case err != nil:
			t.Fatalf("%s: %v", raw, err)
		}
		schemas++
		valid := validator(t, raw)
		p := v.Compile(g)
		for range 4 {
			text, whole := textBy(t, p.NewMatcher(), v, r.Rand)
			if !whole {
				open++
				continue
			}
			texts++
			if err := valid(text); err != nil {
				t.Errorf("schema %d: %s\n%s: %v", seed, raw, text, err)
			}
		}
	}
	t.Logf("%d schemas, %d texts; %d did not end, %d schemas refused, %d without instances", schemas, texts, open, refused, empty)
	if open > texts/50 || refused > schemas {
		t.Errorf("%d texts of %d did not end; %d schemas of %d refused", open, texts, refused, schemas)
	}
}

// validator returns what another program says of a text.
func validator(t testing.TB, schema []byte) func(text string) error {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(schema)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	return func(text string) error {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			return fmt.Errorf("not JSON: %w", err)
		}
		return s.Validate(v)
	}
}
