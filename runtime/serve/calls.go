package serve

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats/answer"
	"github.com/nstf/nstf/runtime/generate"
	"github.com/nstf/nstf/runtime/grammar"
)

// A tool is a function that a request declares.
type tool struct {
	Name       string          `json:"name"`
	Parameters json.RawMessage `json:"parameters"`
	Strict     bool            `json:"strict"`

	raw  json.RawMessage // as OpenAI writes it
	read answer.Tool     // what its calls are read by
}

// readTool reads a tool as OpenAI writes it.
func readTool(raw json.RawMessage) (tool, bool) {
	var t struct {
		Function tool `json:"function"`
	}
	read, ok := answer.ParseTool(raw)
	if !ok || json.Unmarshal(raw, &t) != nil {
		return tool{}, false
	}
	t.Function.raw, t.Function.read = raw, read
	return t.Function, true
}

// functionTool writes a tool as OpenAI does.
func functionTool(name, description string, parameters json.RawMessage, strict bool) (json.RawMessage, error) {
	function := map[string]any{"name": name, "parameters": parameters}
	if description != "" {
		function["description"] = description
	}
	if strict {
		function["strict"] = true
	}
	return json.Marshal(map[string]any{"type": "function", "function": function})
}

// schema returns what a tool's arguments are. One that is not strict and whose schema
// cannot be held takes any object.
func (t *tool) schema() (grammar.Part, error) {
	raw := t.Parameters
	if !said(raw) {
		raw = json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)
	}
	p, err := grammar.Schema(raw)
	if err != nil && !t.Strict {
		return grammar.Object(), nil
	}
	if err != nil {
		err = invalid("tools", "the parameters of the tool %q: %v", t.Name, err)
	}
	return p, err
}

// bounded has the tools of an answer held together: where their schemas take more than a grammar may
// (Claude Code's Workflow has a text of 524,288 characters at most), that of the tool that takes most is
// held by the types of its arguments alone, then that of the next, but not where a tool is strict. whole
// is the grammar of an answer with the tools that stand in tools then.
func bounded(tools []tool, whole func() (grammar.Part, error)) (grammar.Part, error) {
	p, err := whole()
	if err != nil {
		return p, err
	}
	_, err = grammar.Compose(p)
	if err == nil {
		return p, nil
	}
	order := make([]int, 0, len(tools))
	sizes := make([]int, len(tools))
	for i := range tools {
		s, err := tools[i].schema()
		if err != nil || tools[i].Strict {
			continue
		}
		order, sizes[i] = append(order, i), math.MaxInt
		if g, err := grammar.Compose(s); err == nil {
			sizes[i] = g.States()
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return sizes[b] - sizes[a] })
	for _, i := range order {
		tools[i] = tools[i].typed()
		if p, err = whole(); err != nil {
			return p, err
		}
		if _, err = grammar.Compose(p); err == nil {
			break
		}
	}
	return p, nil // what is still too large is refused where it is compiled
}

// typed returns a tool of whose arguments the types alone are held.
func (t tool) typed() tool {
	types := map[string]any{}
	var required []string
	parameters, _ := t.parameters()
	for _, p := range parameters {
		var s struct {
			Type json.RawMessage `json:"type"`
		}
		if json.Unmarshal(p.schema, &s); said(s.Type) {
			types[p.name] = s
		} else {
			types[p.name] = map[string]any{}
		}
		if p.required {
			required = append(required, p.name)
		}
	}
	s := map[string]any{"type": "object", "properties": types, "additionalProperties": false}
	if required != nil {
		s["required"] = required
	}
	t.Parameters, _ = json.Marshal(s)
	return t
}

// A caller writes grammars of calls as a model's format has them.
type caller struct {
	f *answer.Format
	// spell writes special tokens as grammars have them.
	spell *strings.Replacer
}

func (c *caller) text(s string) grammar.Part { return grammar.Text(c.spell.Replace(s)) }

// last is text that ends an answer: up to a token that does.
func (c *caller) last(s string) grammar.Part {
	s, _, _ = strings.Cut(c.spell.Replace(s), generate.End)
	return grammar.Text(s)
}

// until is free text up to s, with it.
func (c *caller) until(s string) grammar.Part { return grammar.Until(c.spell.Replace(s)) }

// calls is one call of one of the tools at least, and one at most where single is set.
func (c *caller) calls(tools []tool, single bool) (grammar.Part, error) {
	k := c.f.Calls
	var each []grammar.Part
	for i := range tools {
		p, err := c.call(&tools[i])
		if err != nil {
			return p, err
		}
		each = append(each, p)
	}
	one := grammar.Shared(grammar.Either(each...))
	more := -1
	if single || strings.TrimSpace(k.Before+k.After+k.Between) == "" {
		more = 0
	}
	return grammar.Sequence(c.text(k.Open), one, grammar.Many(grammar.Sequence(c.text(k.Between), one), 0, more), c.last(k.Close)), nil
}

// call is a call of one tool.
func (c *caller) call(t *tool) (grammar.Part, error) {
	k := c.f.Calls
	var inside grammar.Part
	switch k.Arguments {
	case answer.StyleTagged:
		p, err := c.tagged(t)
		if err != nil {
			return p, err
		}
		inside = grammar.Sequence(grammar.Text(t.Name), c.text(k.Behind), p)
	default:
		p, err := t.schema()
		if err != nil {
			return p, err
		}
		if inside = grammar.Sequence(grammar.Text(t.Name), c.text(k.Behind), p); k.Arguments == answer.StyleObject {
			inside = grammar.Sequence(grammar.Text("{"), grammar.Blank(1), grammar.Text(quoted(k.NameKey)+":"), grammar.Blank(1), grammar.Text(quoted(t.Name)+","), grammar.Blank(1),
				grammar.Text(quoted(k.ArgKey)+":"), grammar.Blank(1), p, grammar.Blank(1), grammar.Text("}"))
		}
	}
	return grammar.Sequence(c.text(k.Before), inside, c.last(k.After)), nil
}

func quoted(s string) string {
	p, _ := json.Marshal(s)
	return string(p)
}

// A parameter is one of a tool's, in the order in which the schema declares them.
type parameter struct {
	name     string
	schema   json.RawMessage
	required bool
}

// parameters returns a tool's, and what its schema defines for others to refer to.
func (t *tool) parameters() ([]parameter, map[string]json.RawMessage) {
	var s struct {
		Properties  json.RawMessage `json:"properties"`
		Required    []string        `json:"required"`
		Defs        json.RawMessage `json:"$defs"`
		Definitions json.RawMessage `json:"definitions"`
	}
	json.Unmarshal(t.Parameters, &s)
	needed := map[string]bool{}
	for _, name := range s.Required {
		needed[name] = true
	}
	var all []parameter
	d := json.NewDecoder(strings.NewReader(string(s.Properties)))
	if open, err := d.Token(); err == nil && open == json.Delim('{') {
		for d.More() {
			name, _ := d.Token()
			var raw json.RawMessage
			if d.Decode(&raw) != nil {
				break
			}
			key, _ := name.(string)
			all = append(all, parameter{key, raw, needed[key]})
		}
	}
	defs := map[string]json.RawMessage{}
	if said(s.Defs) {
		defs["$defs"] = s.Defs
	}
	if said(s.Definitions) {
		defs["definitions"] = s.Definitions
	}
	return all, defs
}

// tagged is arguments each of which stands by itself, up to what ends them.
func (c *caller) tagged(t *tool) (grammar.Part, error) {
	k := c.f.Calls
	parameters, defs := t.parameters()
	blank := grammar.Blank(2)
	// From the last to the first: what may follow where some stand before, and where none does.
	some := blank
	if k.End != "" {
		some = c.text(k.End)
	}
	none := some
	for i := len(parameters) - 1; i >= 0; i-- {
		one, err := c.argument(&parameters[i], defs, t)
		if err != nil {
			return one, err
		}
		first := grammar.Sequence(blank, one, some)
		further := first
		if k.End != "" {
			first, further = grammar.Sequence(one, some), grammar.Sequence(c.text(k.ValueClose), one, some)
		}
		if parameters[i].required {
			some, none = grammar.Shared(further), grammar.Shared(first)
		} else {
			some, none = grammar.Shared(grammar.Either(further, some)), grammar.Shared(grammar.Either(first, none))
		}
	}
	return none, nil
}

// argument is one of them: its key and its value.
func (c *caller) argument(p *parameter, defs map[string]json.RawMessage, t *tool) (grammar.Part, error) {
	k := c.f.Calls
	v := c.readValue(p.schema)
	isString := v.Type == "string"
	key := []grammar.Part{c.text(k.KeyOpen), grammar.Text(p.name), c.text(k.KeyClose)}
	if k.KeyEnd != "" {
		kind := k.OtherType
		if isString {
			kind = k.StringType
		}
		key = append(key, c.text(kind), c.text(k.KeyEnd))
	}
	value, err := c.value(p, v, defs, t)
	return grammar.Sequence(append(key, value)...), err
}

// A valueSchema is what matters of a schema to how its values are spelled.
type valueSchema struct {
	Type      string            `json:"type"`
	Enum      []json.RawMessage `json:"enum"`
	Const     json.RawMessage   `json:"const"`
	MaxLength *int              `json:"maxLength"`
	MinLength int               `json:"minLength"`
}

func (c *caller) readValue(raw json.RawMessage) (v valueSchema) {
	json.Unmarshal(raw, &v) // a list of types is none
	if said(v.Const) && v.Enum == nil {
		v.Enum = []json.RawMessage{v.Const}
	}
	texts := len(v.Enum) > 0
	for _, e := range v.Enum {
		texts = texts && e[0] == '"'
	}
	if texts {
		v.Type = "string"
	}
	return v
}

// value is a parameter's value with what closes it.
func (c *caller) value(p *parameter, v valueSchema, defs map[string]json.RawMessage, t *tool) (grammar.Part, error) {
	k := c.f.Calls
	end := strings.TrimSpace(k.ValueClose)
	open, shut, closing := k.Quote, k.Quote, "" // around strings; behind the value
	if k.Quote == "" && k.End == "" {
		shut, closing = end, k.ValueClose
	}
	switch {
	case v.Type == "string" && shut == "":
		return grammar.Many(grammar.Any("\n,()[]{}'\""), 1, -1), nil
	case v.Type != "string" && len(k.Quote) > 1:
		return c.marked(p.schema, defs, 3), nil
	case v.Type != "string":
		schema, err := withDefinitions(p.schema, defs)
		if err == nil {
			var part grammar.Part
			if part, err = grammar.Schema(schema); err == nil {
				return grammar.Sequence(part, c.text(closing)), nil
			}
		}
		if t.Strict {
			return grammar.Part{}, invalid("tools", "the parameter %q of the tool %q: %v", p.name, t.Name, err)
		}
		return grammar.Sequence(grammar.Value(), c.text(closing)), nil
	case len(v.Enum) > 0:
		var each []grammar.Part
		for _, e := range v.Enum {
			var text string
			if json.Unmarshal(e, &text) == nil {
				if len(k.Quote) == 1 {
					text = strings.NewReplacer(`\`, `\\`, k.Quote, `\`+k.Quote, "\n", `\n`).Replace(text)
				}
				each = append(each, grammar.Text(text))
			}
		}
		if k.Quote == "" {
			return grammar.Sequence(grammar.Either(each...), c.text(k.ValueClose)), nil
		}
		return grammar.Sequence(c.text(open), grammar.Either(each...), c.text(shut)), nil
	case len(k.Quote) == 1:
		char := grammar.Either(grammar.Any(k.Quote+"\\\n"), grammar.Either(grammar.Text(`\\`), grammar.Text(`\n`), grammar.Text(`\`+k.Quote)))
		return grammar.Sequence(c.text(open), grammar.Many(char, v.MinLength, most(v)), c.text(shut)), nil
	case v.MaxLength != nil || v.MinLength > 0:
		spelled := c.spell.Replace(shut)
		return grammar.Sequence(c.text(open), grammar.Many(grammar.Any(spelled[:1]), v.MinLength, most(v)), c.text(strings.TrimSuffix(shut, closing)+closing)), nil
	}
	return grammar.Sequence(c.text(open), c.until(shut)), nil
}

func most(v valueSchema) int {
	if v.MaxLength == nil {
		return -1
	}
	return max(*v.MaxLength, v.MinLength)
}

// withDefinitions returns a schema that stands for itself.
func withDefinitions(raw json.RawMessage, defs map[string]json.RawMessage) (json.RawMessage, error) {
	if len(defs) == 0 {
		return raw, nil
	}
	var o map[string]json.RawMessage
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("it is no object")
	}
	for name, v := range defs {
		o[name] = v
	}
	return json.Marshal(o)
}

// marked is a value whose strings stand in marks of the model's own and whose keys in none,
// which nests so deep.
func (c *caller) marked(raw json.RawMessage, defs map[string]json.RawMessage, depth int) grammar.Part {
	var s struct {
		valueSchema
		Items    json.RawMessage `json:"items"`
		MinItems int             `json:"minItems"`
		MaxItems *int            `json:"maxItems"`
		Ref      string          `json:"$ref"`
	}
	json.Unmarshal(raw, &s)
	if parts := strings.Split(s.Ref, "/"); len(parts) == 3 && parts[0] == "#" {
		var of map[string]json.RawMessage
		if json.Unmarshal(defs[parts[1]], &of) == nil && said(of[parts[2]]) && depth > 0 {
			return c.marked(of[parts[2]], defs, depth-1)
		}
	}
	switch s.Type {
	case "string":
		if v := c.readValue(raw); len(v.Enum) == 0 {
			return grammar.Sequence(c.text(c.f.Calls.Quote), c.until(c.f.Calls.Quote))
		} else if p, err := c.value(&parameter{schema: raw}, v, nil, &tool{}); err == nil {
			return p
		}
	case "integer", "number", "boolean", "null":
		if p, err := grammar.Schema(raw); err == nil {
			return p
		}
	case "array":
		if said(s.Items) && depth > 0 {
			most := -1
			if s.MaxItems != nil {
				most = max(*s.MaxItems, s.MinItems)
			}
			return list("[", c.marked(s.Items, defs, depth-1), s.MinItems, most, "]")
		}
	}
	number, _ := grammar.Regex(`-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?`)
	key, _ := grammar.Regex(`[A-Za-z_][A-Za-z0-9_]{0,63}`)
	text := grammar.Sequence(c.text(c.f.Calls.Quote), c.until(c.f.Calls.Quote))
	value := grammar.Either(number, grammar.Text("true"), grammar.Text("false"), grammar.Text("null"), text)
	for range depth {
		inner := grammar.Shared(value)
		object := list("{", grammar.Sequence(key, grammar.Text(":"), inner), 0, -1, "}")
		if value = grammar.Either(inner, list("[", inner, 0, -1, "]"), object); s.Type == "object" {
			value = object
		}
	}
	return value
}

// list is from least to most times x, between commas.
func list(open string, x grammar.Part, least, most int, shut string) grammar.Part {
	if most == 0 {
		return grammar.Text(open + shut)
	}
	x = grammar.Shared(x)
	if most > 0 {
		most--
	}
	some := grammar.Sequence(x, grammar.Many(grammar.Sequence(grammar.Text(","), x), max(0, least-1), most))
	if least == 0 {
		some = grammar.Many(some, 0, 1)
	}
	return grammar.Sequence(grammar.Text(open), some, grammar.Text(shut))
}
