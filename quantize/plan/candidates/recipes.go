package candidates

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/quantize/fit"
)

// Codes returns the codes of a name: nil for "all", "ggml" for ggml's
// schemes alone, or names between commas. A name that cannot be written is a
// [formats.UnsupportedError].
func Codes(name string) ([]plan.Code, error) {
	switch name {
	case "all":
		return nil, nil
	case "ggml":
		return slices.DeleteFunc(usual(), func(c plan.Code) bool { return c.Scheme.GGML < 0 }), nil
	}
	var out []plan.Code
	for _, r := range strings.Split(name, ",") {
		r = strings.TrimSpace(r)
		c, err := plan.ParseCode(r)
		if err != nil || !fit.Fittable(c) {
			e := formats.Unsupportedf("", "", "quantizing to scheme %q", r)
			e.Hint = `"all", "ggml", or some of: ` + fit.Names()
			return nil, e
		}
		out = append(out, c)
	}
	return out, nil
}

// usual returns the codes that suit any weights.
func usual() []plan.Code {
	return slices.DeleteFunc(fit.Codes(), func(c plan.Code) bool { return c.Scheme.Trained })
}

// all returns the codes worth looking at for a matrix: the trellis codes and
// what is above them, or all others where its tiles do not divide it.
func all(n, k int) []plan.Code {
	var trellis, rest []plan.Code
	for _, c := range usual() {
		if c.Bits == 0 {
			rest = append(rest, c)
		} else if fit.Fits(c, n, k) {
			trellis = append(trellis, c)
		}
	}
	if trellis == nil {
		return rest
	}
	return append(trellis, plan.MustCode("q8_0"), plan.MustCode("f16"), plan.MustCode("bf16"))
}

// A Rule gives the tensors whose names match a recipe.
type Rule struct {
	Name   *regexp.Regexp
	Recipe plan.Recipe
}

// String spells a rule as [ParseRule] reads it.
func (r Rule) String() string { return r.Name.String() + "=" + r.Recipe.String() }

// ParseRule reads "regex=recipe". The expression is searched in a tensor's
// name, in the syntax of Go's regexp.
func ParseRule(s string) (Rule, error) {
	i := strings.LastIndexByte(s, '=')
	if i < 1 {
		return Rule{}, fmt.Errorf("rule %q is not regex=recipe", s)
	}
	re, err := regexp.Compile(s[:i])
	if err != nil {
		return Rule{}, fmt.Errorf("rule %q: %w", s, err)
	}
	r, err := plan.ParseRecipe(s[i+1:])
	if err != nil {
		return Rule{}, err
	}
	return Rule{re, r}, nil
}

// A RuleError says why a rule cannot be kept.
type RuleError struct {
	Rule   Rule
	Reason string
}

// Error implements error.
func (e *RuleError) Error() string { return fmt.Sprintf("rule %q %s", e.Rule, e.Reason) }
