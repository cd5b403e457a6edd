package grammar

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
)

// annotations say something about a value and demand nothing of it.
var annotations = []string{"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment",
	"$defs", "definitions", "$anchor", "contentEncoding", "contentMediaType", "contentSchema"}

// keyword adds what one keyword demands.
func (s *schema) keyword(c *conj, n *node, name string, v value, p string) (err error) {
	switch name {
	case "type":
		return c.setTypes(v, p)
	case "enum":
		list, ok := v.([]value)
		if !ok {
			return wrong(p, "a list of values should stand here")
		}
		c.setEnum(list)
	case "const":
		c.setEnum([]value{v})
	case "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties":
		k, err := count(v, p)
		if err != nil {
			return err
		}
		low := map[string]*int{"minLength": &c.minLen, "minItems": &c.minItems, "minProperties": &c.minProps}[name]
		high := map[string]*int{"maxLength": &c.maxLen, "maxItems": &c.maxItems, "maxProperties": &c.maxProps}[name]
		if low != nil {
			*low = max(*low, k)
		} else if *high < 0 || k < *high {
			*high = k
		}
	case "pattern":
		text, ok := v.(string)
		if !ok {
			return wrong(p, "a regular expression is a string")
		}
		d, err := s.pattern(text, p)
		if err != nil {
			return err
		}
		c.strings = append(c.strings, d)
	case "format":
		d, err := formatDFA(v, p)
		if err != nil {
			return err
		}
		c.strings = append(c.strings, d)
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
		return c.setBound(name, v, p)
	case "items", "prefixItems":
		if name == "prefixItems" && n.o.values["items"] != nil {
			return nil // with items
		}
		return s.setItems(c, n)
	case "uniqueItems":
		if v == true {
			c.unique = p
		} else if v != false {
			return wrong(p, "true or false should stand here")
		}
	case "properties", "patternProperties", "additionalProperties":
		if name == n.firstOf("properties", "patternProperties", "additionalProperties") {
			return s.setProperties(c, n)
		}
	case "required":
		list, ok := v.([]value)
		for _, x := range list {
			text, isText := x.(string)
			ok = ok && isText
			if ok && !slices.Contains(c.required, text) {
				c.required = append(c.required, text)
			}
		}
		if !ok {
			return wrong(p, "a list of names should stand here")
		}
	case "propertyNames":
		m, err := s.node(p, v)
		if err != nil {
			return err
		}
		c.names = append(c.names, m)
	case "$schema":
		text, _ := v.(string)
		if rest, ok := strings.CutPrefix(strings.Replace(text, "https:", "http:", 1), "http://json-schema.org/draft"); !ok ||
			!slices.Contains([]string{"/2020-12/schema", "/2019-09/schema", "-07/schema", "-06/schema"}, strings.TrimSuffix(rest, "#")) {
			return refused(p, "the dialect %q", text)
		}
	case "$id":
		if n.at != "#" {
			return refused(p, "$id within a schema")
		}
	default:
		if !slices.Contains(annotations, name) && !strings.HasPrefix(name, "x-") {
			return refused(p, "the keyword %q", name)
		}
	}
	return nil
}

// firstOf returns the keyword of some that stands first.
func (n *node) firstOf(names ...string) string {
	for _, name := range n.o.names {
		if slices.Contains(names, name) {
			return name
		}
	}
	return ""
}

func (c *conj) setTypes(v value, p string) error {
	list, ok := v.([]value)
	if !ok {
		list = []value{v}
	}
	var k kind
	for _, x := range list {
		name, _ := x.(string)
		is, ok := kinds[name]
		if !ok {
			return wrong(p, "a type, or a list of types, should stand here: null, boolean, integer, number, string, array, object")
		}
		k |= is
	}
	c.kinds &= k
	return nil
}

func (c *conj) setEnum(list []value) {
	if c.enum == nil {
		c.enum = append([]value{}, list...)
		return
	}
	var out = []value{}
	for _, v := range c.enum {
		if slices.ContainsFunc(list, func(w value) bool { return same(v, w) }) {
			out = append(out, v)
		}
	}
	c.enum = out
}

func count(v value, p string) (int, error) {
	n, ok := v.(json.Number)
	if ok {
		r, err := number(n)
		if err == nil && r.IsInt() && r.Sign() >= 0 {
			if !r.Num().IsInt64() || r.Num().Int64() > math.MaxInt32 {
				return math.MaxInt32, nil
			}
			return int(r.Num().Int64()), nil
		}
	}
	return 0, wrong(p, "a whole number that is not negative should stand here")
}

func (c *conj) setBound(name string, v value, p string) error {
	n, ok := v.(json.Number)
	if !ok {
		return wrong(p, "a number should stand here")
	}
	r, err := number(n)
	if err != nil {
		return wrong(p, "%v", err)
	}
	strict := strings.HasPrefix(name, "exclusive")
	switch {
	case name == "multipleOf":
		if r.Sign() <= 0 {
			return wrong(p, "a number above 0 should stand here")
		}
		c.steps = append(c.steps, r)
	case strings.HasSuffix(strings.ToLower(name), "minimum"):
		if c.low == nil || r.Cmp(c.low.v) > 0 || r.Cmp(c.low.v) == 0 && strict {
			c.low = &bound{r, strict}
		}
	default:
		if c.high == nil || r.Cmp(c.high.v) < 0 || r.Cmp(c.high.v) == 0 && strict {
			c.high = &bound{r, strict}
		}
	}
	return nil
}

func (s *schema) setItems(c *conj, n *node) (err error) {
	var part arrayPart
	if v, ok := n.o.get("prefixItems"); ok {
		if part.prefix, err = s.list(at(n.at, "prefixItems"), v); err != nil {
			return err
		}
	}
	if v, ok := n.o.get("items"); ok {
		p := at(n.at, "items")
		if _, list := v.([]value); list {
			return refused(p, "a list in items, which is prefixItems since draft 2020-12")
		}
		if part.items, err = s.node(p, v); err != nil {
			return err
		}
	}
	c.arrays = append(c.arrays, part)
	return nil
}

func (s *schema) setProperties(c *conj, n *node) (err error) {
	part := objectPart{values: map[string]*node{}}
	if v, ok := n.o.get("properties"); ok {
		p := at(n.at, "properties")
		o, ok := v.(*object)
		if !ok {
			return wrong(p, "an object of schemas should stand here")
		}
		part.names = o.names
		for _, name := range o.names {
			if part.values[name], err = s.node(at(p, name), o.values[name]); err != nil {
				return err
			}
		}
	}
	if v, ok := n.o.get("patternProperties"); ok {
		p := at(n.at, "patternProperties")
		o, ok := v.(*object)
		if !ok {
			return wrong(p, "an object of schemas should stand here")
		}
		for _, text := range o.names {
			k := keyPattern{text: text}
			if k.keys, err = s.pattern(text, at(p, text)); err != nil {
				return err
			}
			if k.n, err = s.node(at(p, text), o.values[text]); err != nil {
				return err
			}
			part.patterns = append(part.patterns, k)
		}
	}
	if v, ok := n.o.get("additionalProperties"); ok {
		if part.others, err = s.node(at(n.at, "additionalProperties"), v); err != nil {
			return err
		}
	}
	c.objects = append(c.objects, part)
	return nil
}
