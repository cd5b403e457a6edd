package candidates

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/quantize/fit"
)

// Recipes returns the recipes of a name: nil for "all", "ggml" for ggml's
// schemes alone, or names between commas. A name that cannot be written is a
// [formats.UnsupportedError].
func Recipes(name string) ([]string, error) {
	switch name {
	case "all":
		return nil, nil
	case "ggml":
		var out []string
		for _, r := range fit.Recipes() {
			if s, ok := scheme.ByName(r); ok && s.GGML >= 0 {
				out = append(out, r)
			}
		}
		return out, nil
	}
	known := map[string]bool{}
	for _, r := range fit.Recipes() {
		known[r] = true
	}
	var out []string
	for _, r := range strings.Split(name, ",") {
		if r = strings.TrimSpace(r); !known[r] {
			e := formats.Unsupportedf("", "", "quantizing to scheme %q", r)
			e.Hint = `"all", "ggml", or some of: ` + strings.Join(fit.Recipes(), ", ")
			return nil, e
		}
		out = append(out, r)
	}
	return out, nil
}

// all returns the recipes worth looking at for a matrix: the trellis codes and
// what is above them, or all others where its tiles do not divide it.
func all(n, k int) []string {
	var trellis, rest []string
	for _, r := range fit.Recipes() {
		if plan.TrellisBits(r) == 0 {
			rest = append(rest, r)
		} else if fit.Fits(r, n, k) {
			trellis = append(trellis, r)
		}
	}
	if trellis == nil {
		return rest
	}
	return append(trellis, "q8_0", "f16", "bf16")
}

// A Rule gives the tensors whose names match a recipe.
type Rule struct {
	Name   *regexp.Regexp
	Recipe string
}

// String spells a rule as [ParseRule] reads it.
func (r Rule) String() string { return r.Name.String() + "=" + r.Recipe }

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
	if _, err := plan.ParseRecipe(s[i+1:]); err != nil {
		return Rule{}, err
	}
	return Rule{re, s[i+1:]}, nil
}

// A RuleError says why a rule cannot be kept.
type RuleError struct {
	Rule   Rule
	Reason string
}

// Error implements error.
func (e *RuleError) Error() string { return fmt.Sprintf("rule %q %s", e.Rule, e.Reason) }
