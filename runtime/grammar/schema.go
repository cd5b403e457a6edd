package grammar

import (
	"cmp"
	"fmt"
	"math/big"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/nstf/nstf/formats"
)

// What one schema may take.
const (
	maxBranches = 2048    // alternatives of one place, combinations of anyOf multiplied
	maxExpanded = 1 << 16 // of all places
)

// ParseSchema makes the grammar of the JSON texts that a schema of draft 2020-12 allows.
//
// Every text that the grammar allows is an instance of the schema. Not every instance is
// allowed: properties come in the order in which the schema declares them, those that it
// requires without declaring them next, all others last; spaces and numbers are those of
// [JSON]; strings that pattern, format or additionalProperties constrain are spelled
// without needless escapes.
//
// It fails with a [formats.FormatError] where the schema is wrong, and with a
// [formats.UnsupportedError] for keywords that are not decided while a text is written.
// Both name the place by its JSON pointer.
func ParseSchema(raw []byte) (*Grammar, error) {
	rules, err := schemaRules(raw)
	if err != nil {
		return nil, err
	}
	return build(rules)
}

// schemaRules returns the rules of a schema, the first of which is the whole.
func schemaRules(raw []byte) ([]rule, error) {
	v, err := readJSON(raw)
	if err != nil {
		return nil, err
	}
	s := &schema{root: v, nodes: map[string]*node{}, goals: map[string]ref{}, rules: jsonBasis()}
	root, err := s.node("#", v)
	if err != nil {
		return nil, err
	}
	r, err := s.rule([]*node{root})
	if err != nil {
		return nil, err
	}
	s.rules[jsonRoot].x = r
	for len(s.todo) > 0 {
		g := s.todo[0]
		s.todo = s.todo[1:]
		x, err := s.goal(g.nodes)
		if err != nil {
			return nil, placed(err, g.nodes[0].at)
		}
		s.rules[g.rule].x = x
	}
	return s.rules, nil
}

// A schema is one being compiled.
type schema struct {
	root     value
	nodes    map[string]*node // by pointer
	goals    map[string]ref   // rules of conjunctions of nodes
	todo     []goal
	rules    []rule
	expanded int
}

// A goal is a rule whose texts are to satisfy some nodes, all of them.
type goal struct {
	rule  ref
	nodes []*node
}

// A node is a schema at a place: an object of keywords, or always true or false.
type node struct {
	at    string
	o     *object // nil: true or false
	never bool    // false
}

var never = &node{at: "false", never: true}

func at(pointer string, parts ...any) string {
	for _, p := range parts {
		pointer += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(fmt.Sprint(p))
	}
	return pointer
}

func wrong(pointer, format string, args ...any) error {
	return formats.Errorf("", pointer, format, args...)
}

func refused(pointer, format string, args ...any) error {
	return formats.Unsupportedf("", pointer, format, args...)
}

// node returns the schema at a place.
func (s *schema) node(pointer string, v value) (*node, error) {
	if n, ok := s.nodes[pointer]; ok {
		return n, nil
	}
	n := &node{at: pointer}
	switch v := v.(type) {
	case bool:
		n.never = !v
	case *object:
		n.o = v
	default:
		return nil, wrong(pointer, "a schema is an object, true or false")
	}
	if len(s.nodes) > maxExpanded {
		return nil, tooLarge("65536 schemas")
	}
	s.nodes[pointer] = n
	return n, nil
}

// resolve returns the schema that a reference names, within the document.
func (s *schema) resolve(from, text string) (*node, error) {
	rest, ok := strings.CutPrefix(text, "#")
	if !ok || rest != "" && rest[0] != '/' {
		return nil, refused(at(from, "$ref"), "a reference to %q, which is no JSON pointer within the schema", text)
	}
	rest, err := url.PathUnescape(rest)
	if err != nil {
		return nil, wrong(at(from, "$ref"), "%v", err)
	}
	v, pointer := s.root, "#"
	for _, part := range strings.Split(rest, "/")[1:] {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		ok := false
		switch x := v.(type) {
		case *object:
			v, ok = x.get(part)
		case []value:
			var i int
			if i, err = strconv.Atoi(part); err == nil && i >= 0 && i < len(x) {
				v, ok = x[i], true
			}
		}
		if !ok {
			return nil, wrong(at(from, "$ref"), "nothing is at %q", formats.Brief(text, 200))
		}
		pointer = at(pointer, part)
	}
	return s.node(pointer, v)
}

// rule returns the rule of the texts that satisfy all of some nodes.
func (s *schema) rule(nodes []*node) (ref, error) {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b *node) int { return cmp.Compare(a.at, b.at) })
	nodes = slices.Compact(nodes)
	if len(nodes) > 1 { // what is always true adds nothing
		nodes = slices.DeleteFunc(nodes, (*node).always)
	}
	if len(nodes) == 0 || len(nodes) == 1 && nodes[0].always() {
		return jsonValue, nil
	}
	var key strings.Builder
	for _, n := range nodes {
		key.WriteString(n.at)
		key.WriteByte(0)
	}
	if r, ok := s.goals[key.String()]; ok {
		return r, nil
	}
	if len(s.rules) >= maxRules {
		return 0, tooLarge("32768 rules")
	}
	r := ref(len(s.rules))
	s.rules = append(s.rules, rule{name: nodes[0].at})
	s.goals[key.String()] = r
	s.todo = append(s.todo, goal{r, nodes})
	return r, nil
}

// always reports whether a schema is true.
func (n *node) always() bool { return n.o == nil && !n.never }

// goal returns the expression of a conjunction.
func (s *schema) goal(nodes []*node) (expr, error) {
	all, err := s.expand(nodes)
	if err != nil {
		return nil, err
	}
	out := alt{}
	for _, c := range all {
		x, err := s.write(c)
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}

// A kind is a set of types; integers and other numbers are two.
type kind uint8

const (
	isNull kind = 1 << iota
	isBool
	isInteger
	isFraction
	isString
	isArray
	isObject
	isAny = 1<<7 - 1
)

var kinds = map[string]kind{"null": isNull, "boolean": isBool, "integer": isInteger, "number": isInteger | isFraction,
	"string": isString, "array": isArray, "object": isObject}

// A conj is what several schemas demand at once, without alternatives.
type conj struct {
	seen     []*node
	kinds    kind
	enum     []value // nil: no list
	where    string  // the place of the schema that came last
	minLen   int
	maxLen   int // -1: none
	strings  []*dfa
	low      *bound
	high     *bound
	steps    []*big.Rat // multipleOf
	arrays   []arrayPart
	minItems int
	maxItems int
	objects  []objectPart
	required []string
	minProps int
	maxProps int
	names    []*node // propertyNames
	unique   string  // the place of uniqueItems, "" for none
}

// A bound is one of a number.
type bound struct {
	v      *big.Rat
	strict bool
}

type arrayPart struct {
	prefix []*node
	items  *node // nil: anything
}

type objectPart struct {
	names    []string
	values   map[string]*node
	patterns []keyPattern
	others   *node // nil: anything
}

type keyPattern struct {
	text string
	keys *dfa
	n    *node
}

func newConj() *conj { return &conj{kinds: isAny, maxLen: -1, maxItems: -1, maxProps: -1} }

// clone returns a copy that grows by itself.
func (c *conj) clone() *conj {
	d := *c
	d.seen, d.strings, d.steps = slices.Clip(c.seen), slices.Clip(c.strings), slices.Clip(c.steps)
	d.arrays, d.objects = slices.Clip(c.arrays), slices.Clip(c.objects)
	d.required, d.names = slices.Clip(c.required), slices.Clip(c.names)
	return &d
}

// expand returns the alternatives of some nodes that hold at once.
func (s *schema) expand(nodes []*node) ([]*conj, error) { return s.add(newConj(), nodes) }

// add returns the alternatives of a conjunction with some nodes more.
func (s *schema) add(c *conj, todo []*node) ([]*conj, error) {
	c = c.clone()
	type group struct {
		nodes []*node
		one   string // the place of oneOf
	}
	var groups []group
	for len(todo) > 0 {
		n := todo[0]
		todo = todo[1:]
		if s.expanded++; s.expanded > maxExpanded {
			return nil, tooLarge("65536 steps of anyOf, allOf and $ref")
		}
		if n.never {
			return nil, nil
		}
		if n.o == nil || slices.Contains(c.seen, n) {
			continue
		}
		c.seen, c.where = append(c.seen, n), n.at
		for _, name := range n.o.names {
			v, p := n.o.values[name], at(n.at, name)
			var err error
			switch name {
			case "$ref":
				text, ok := v.(string)
				if !ok {
					return nil, wrong(p, "a reference is a string")
				}
				var to *node
				if to, err = s.resolve(n.at, text); err == nil {
					todo = append(todo, to)
				}
			case "allOf", "anyOf", "oneOf":
				var list []*node
				if list, err = s.list(p, v); err != nil {
					return nil, err
				}
				if name == "allOf" {
					todo = append(todo, list...)
					break
				}
				g := group{nodes: list}
				if name == "oneOf" {
					g.one = p
				}
				groups = append(groups, g)
			default:
				err = s.keyword(c, n, name, v, p)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if c.kinds == 0 {
		return nil, nil
	}
	all := []*conj{c}
	for _, g := range groups {
		var next []*conj
		branch := make([]int, 0) // of each of next
		for _, d := range all {
			for i, n := range g.nodes {
				more, err := s.add(d, []*node{n})
				if err != nil {
					return nil, err
				}
				for _, e := range more {
					next, branch = append(next, e), append(branch, i)
				}
				if len(next) > maxBranches {
					return nil, tooLarge("2048 combinations of anyOf at one place")
				}
			}
		}
		if g.one != "" {
			for i := range next {
				for j := range i {
					if branch[i] == branch[j] {
						continue
					}
					apart, err := s.apart(next[i], next[j], 0)
					if err != nil {
						return nil, err
					}
					if !apart {
						return nil, &formats.UnsupportedError{Tensor: g.one, Offset: -1,
							Feature: fmt.Sprintf("oneOf, of which branches %d and %d may both hold", branch[j], branch[i]),
							Hint:    "anyOf is decided; branches of oneOf are where their types, or the values of a property that all require, differ"}
					}
				}
			}
		}
		all = next
	}
	return all, nil
}

func (s *schema) list(p string, v value) ([]*node, error) {
	in, ok := v.([]value)
	if !ok || len(in) == 0 {
		return nil, wrong(p, "a list of schemas should stand here")
	}
	var out []*node
	for i, x := range in {
		n, err := s.node(at(p, i), x)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}
