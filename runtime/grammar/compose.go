package grammar

import (
	"slices"
	"unicode/utf8"
)

// A Part is a language that others are made of, by [Compose]. It is immutable.
type Part struct{ x expr }

// A rulesPart is a language of rules, the first of which is the whole, a sharedPart one that is to be a rule.
type (
	rulesPart  []rule
	sharedPart struct{ x expr }
)

// Text is these bytes, whatever they are.
func Text(s string) Part { return Part{literal(s)} }

// Sequence is one part after the other; of none, the empty text.
func Sequence(parts ...Part) Part { return Part{seq(exprs(parts))} }

// Either is one of the parts; there is one at least.
func Either(parts ...Part) Part { return Part{alt(exprs(parts))} }

// Many is a part, from least to most times; most < 0: any number of times.
func Many(p Part, least, most int) Part { return Part{repeat{p.x, least, most}} }

// Shared is a part that is used in several places, and is compiled once.
func Shared(p Part) Part { return Part{&sharedPart{p.x}} }

// Any is a code point that is none of those in except.
func Any(except string) Part {
	var out []runeRange
	for _, r := range except {
		out = append(out, runeRange{r, r})
	}
	return Part{class(newRuneSet(out...).not())}
}

// Until is text up to the first place where end stands, with end. What is no UTF-8 stands
// in no text: where end has some, the text goes up to that.
func Until(end string) Part {
	if !utf8.ValidString(end) {
		return Part{seq{repeat{class(anyRune), 0, -1}, literal(end)}}
	}
	// The automaton of Knuth, Morris and Pratt, over code points.
	want := []rune(end)
	n := network{nodes: len(want) + 1, ends: []int{len(want)}}
	known := slices.Clone(want)
	slices.Sort(known)
	known = slices.Compact(known)
	for at := range want {
		for _, r := range known {
			seen := append(slices.Clone(want[:at]), r)
			to := min(len(seen), len(want))
			for !slices.Equal(seen[len(seen)-to:], want[:to]) {
				to--
			}
			n.edges = append(n.edges, link{at, to, literal(string(r))})
		}
		n.edges = append(n.edges, link{at, 0, Any(string(known)).x})
	}
	return Part{n}
}

// Schema is the JSON texts that a schema allows, as [ParseSchema] has them, whose errors
// it gives.
func Schema(raw []byte) (Part, error) {
	rules, err := schemaRules(raw)
	return Part{rulesPart(rules)}, err
}

// GBNF is the texts of a grammar, Regex those that a regular expression matches, Choice
// some texts, as [ParseGBNF], [ParseRegex] and [Choices] have them, whose errors they give.
func GBNF(text string) (Part, error) {
	rules, err := gbnfRules(text)
	return Part{rulesPart(rules)}, err
}

// Regex is as [GBNF] is.
func Regex(pattern string) (Part, error) {
	d, err := regexDFA(pattern, false, func(s runeSet) expr { return class(s) })
	return Part{regular{d}}, err
}

// Choice is as [GBNF] is.
func Choice(texts []string) (Part, error) {
	a, err := choices(texts)
	return Part{a}, err
}

// Object is any JSON object.
func Object() Part { return jsonPart(jsonObject) }

// Value is any JSON value.
func Value() Part { return jsonPart(jsonValue) }

func jsonPart(root ref) Part {
	rules := jsonBasis()
	rules[jsonRoot].x = root
	return Part{rulesPart(rules)}
}

// Blank is nothing or up to most spaces and line ends.
func Blank(most int) Part {
	return Part{repeat{class(newRuneSet(runeRange{' ', ' '}, runeRange{'\n', '\n'})), 0, most}}
}

func exprs(parts []Part) []expr {
	out := make([]expr, len(parts))
	for i, p := range parts {
		out[i] = p.x
	}
	return out
}

// Compose makes the grammar of a part. It fails where that takes more than a grammar may,
// or has no text.
func Compose(p Part) (*Grammar, error) {
	c := composer{rules: []rule{{name: "the text"}}, shared: map[*sharedPart]ref{}}
	c.rules[0].x = c.put(p.x)
	return build(c.rules)
}

// A composer collects the rules of parts.
type composer struct {
	rules  []rule
	shared map[*sharedPart]ref
}

// put returns an expression in which parts are rules.
func (c *composer) put(x expr) expr {
	switch x := x.(type) {
	case seq:
		return seq(c.all(x))
	case alt:
		return alt(c.all(x))
	case repeat:
		return repeat{c.put(x.x), x.min, x.max}
	case *sharedPart:
		r, ok := c.shared[x]
		if !ok {
			r = ref(len(c.rules))
			c.rules, c.shared[x] = append(c.rules, rule{name: "a part"}), r
			c.rules[r].x = c.put(x.x)
		}
		return r
	case rulesPart:
		base := ref(len(c.rules))
		for _, r := range x {
			r.x = moved(r.x, base)
			c.rules = append(c.rules, r)
		}
		return base
	}
	return x
}

func (c *composer) all(xs []expr) []expr {
	out := make([]expr, len(xs))
	for i, x := range xs {
		out[i] = c.put(x)
	}
	return out
}

// moved returns x with its rules further back.
func moved(x expr, by ref) expr {
	each := func(xs []expr) []expr {
		out := make([]expr, len(xs))
		for i, x := range xs {
			out[i] = moved(x, by)
		}
		return out
	}
	switch x := x.(type) {
	case seq:
		return seq(each(x))
	case alt:
		return alt(each(x))
	case repeat:
		return repeat{moved(x.x, by), x.min, x.max}
	case ref:
		return x + by
	case network:
		n := network{nodes: x.nodes, ends: x.ends, edges: slices.Clone(x.edges)}
		for i := range n.edges {
			n.edges[i].x = moved(n.edges[i].x, by)
		}
		return n
	}
	return x
}
