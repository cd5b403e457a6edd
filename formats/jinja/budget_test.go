package jinja_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nstf/nstf/formats/jinja"
)

const ns = "{% set ns = namespace(s='x', l=[1]) %}"

// times is a loop that runs n times.
func times(n int, body string) string {
	return fmt.Sprintf("{%% for i in range(%d) %%}%s{%% endfor %%}", n, body)
}

// attacks are templates that want everything, and the budget that stops each.
// "" stands for one that has an end in Python as well.
var attacks = []struct{ name, src, budget string }{
	{"macro", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "depth"},
	{"macros", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}", "depth"},
	{"caller", "{% macro m() %}{{ caller is defined }}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}", "depth"},
	{"fork", "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(100) }}", "steps"},
	{"recursive loop", ns + "{% set ns.s = [1] %}{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "depth"},
	{"held list printed", ns + times(10000, "{% set ns.l = [ns.l] %}") + "{{ ns.l }}", "depth"},
	{"held list as JSON", ns + times(10000, "{% set ns.l = [ns.l] %}") + "{{ ns.l | tojson }}", "depth"},
	{"held dict as JSON", ns + times(10000, "{% set ns.l = {'a': ns.l} %}") + "{{ ns.l | tojson }}", "depth"},
	{"held lists compared", ns + times(10000, "{% set ns.l = [ns.l] %}") + "{% set a = ns.l %}{% set ns.l = [1] %}" + times(10000, "{% set ns.l = [ns.l] %}") + "{{ a == ns.l }}", "depth"},
	{"held tuple as key", ns + times(10000, "{% set ns.l = (ns.l, 1) %}") + "{{ {ns.l: 1} }}", "depth"},
	{"doubled list printed", ns + times(64, "{% set ns.l = [ns.l, ns.l] %}") + "{{ ns.l }}", "steps memory"},
	{"doubled list as JSON", ns + times(64, "{% set ns.l = [ns.l, ns.l] %}") + "{{ ns.l | tojson }}", "steps memory"},
	{"doubled list compared", "{% set a = namespace(l=[1]) %}{% set b = namespace(l=[1]) %}" + times(64, "{% set a.l = [a.l, a.l] %}{% set b.l = [b.l, b.l] %}") + "{{ a.l == b.l }}", "steps"},
	{"doubled tuple as key", "{% set a = namespace(l=(1,)) %}" + times(64, "{% set a.l = (a.l, a.l) %}") + "{{ {a.l: 1} }}", "steps memory"},
	{"namespace as JSON", ns + "{% set ns.l = [ns] %}{{ ns.l | tojson }}", ""},
	{"times", "{{ 'x' * 10**10 }}", "memory"},
	{"times list", "{{ [0] * 10**10 }}", "memory"},
	{"times list of nothing", "{{ ([] * 10**10) | length }}", "none"},
	{"times beyond", "{{ 'x' * 10**100 }}", ""},
	{"doubled", ns + times(60, "{% set ns.s = ns.s ~ ns.s %}"), "memory"},
	{"added", ns + times(60, "{% set ns.s = ns.s + ns.s %}"), "memory"},
	{"list added", ns + times(60, "{% set ns.l = ns.l + ns.l %}"), "memory"},
	{"replaced", ns + times(60, "{% set ns.s = ns.s.replace('x', 'xx') %}"), "steps memory"},
	{"replaced by filter", ns + times(60, "{% set ns.s = ns.s | replace('x', 'xx') %}"), "steps memory"},
	{"joined", ns + times(60, "{% set ns.s = [ns.s, ns.s] | join(ns.s) %}"), "memory"},
	{"joined by method", ns + times(60, "{% set ns.s = ns.s.join([ns.s, ns.s, ns.s]) %}"), "memory"},
	{"indented", ns + times(60, "{% set ns.s = (ns.s ~ '\\n' ~ ns.s) | indent(10**4, true) %}"), "memory"},
	{"indented widely", "{{ 'x' | indent(10**12, true) }}", "memory"},
	{"centered", "{{ 'x' | center(10**12) }}", "memory"},
	{"justified", "{{ 'x'.ljust(10**12) }}", "memory"},
	{"filled", "{{ 'x'.zfill(10**12) }}", "memory"},
	{"tabs", "{{ '\\t'.expandtabs(10**12) }}", "memory"},
	{"percent width", "{{ '%1000000000d' % 1 }}", "memory"},
	{"percent precision", "{{ '%.1000000000d' % 1 }}", "memory"},
	{"percent float", "{{ '%.1000000000f' % 1 }}", ""},
	{"format width", "{{ '{:1000000000}'.format(1) }}", "memory"},
	{"batch", "{{ [1] | batch(10**9, 'x') | list }}", "memory"},
	{"slice", "{{ [1] | slice(10**12) | list }}", "steps memory"},
	{"json indent", "{{ [[[1]]] | tojson(indent=10**9) }}", "memory"},
	{"json of indent", ns + times(4000, "{% set ns.l = [ns.l] %}") + "{{ ns.l | tojson(indent=10**5) }}", "memory"},
	{"escaped", ns + times(60, "{% set ns.s = (ns.s ~ '&') | e | string ~ ns.s %}"), "memory"},
	{"set block", ns + times(60, "{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}"), "memory"},
	{"nested loops", times(100000, times(100000, "")), "steps"},
	{"nested loops that print", times(100000, times(100000, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx")), "steps output"},
	{"output", "{% set s = 'x' * 10**6 %}" + times(1000, "{{ s }}"), "output"},
	{"power", "{{ 10 ** (10 ** 10) }}", "memory"},
	{"power of one", "{{ 1 ** (10 ** 10) }}{{ (-1) ** (10**10) }}{{ 0 ** 10**10 }}", "none"},
	{"squared", "{% set ns = namespace(s=3) %}" + times(60, "{% set ns.s = ns.s * ns.s %}"), "memory"},
	{"rounded", "{{ 1 | round(-10**9) }}", "memory"},
	{"rounded up", "{{ 1.5 | round(10**9, 'ceil') }}", "memory"},
	{"sorted", "{{ (range(100000) | list * 10) | sort | length }}", "none"},
	{"searched", "{% set l = range(100000) | list %}" + times(100000, "{{ -1 in l }}"), "steps"},
	{"scanned", "{% set s = 'x' * 10**7 %}" + times(100000, "{{ 'y' in s }}"), "steps"},
	{"counted", "{% set s = 'x' * 10**7 %}" + times(100000, "{{ s | length }}"), "steps output"},
	{"stripped", "{% set s = ' ' * 10**7 %}" + times(100000, "{{ s | trim }}"), "steps"},
	{"cased", "{% set s = 'ß' * 10**7 %}" + times(100000, "{{ s | upper }}"), "steps memory"},
	{"reversed", "{% set s = 'ß' * 10**7 %}" + times(100000, "{{ s[::-1] }}"), "memory"},
	{"split", "{% set s = 'x ' * 10**7 %}" + times(100, "{% set y = s.split() %}"), "steps memory"},
	{"summed", "{{ ([[1]] * 100000) | sum(start=[]) }}", "memory"},
	{"grouped", "{{ range(100000) | groupby('x') }}", ""},
	{"brackets", "{{ " + strings.Repeat("[", 100000) + strings.Repeat("]", 100000) + " }}", "depth"},
	{"parentheses", "{{ " + strings.Repeat("(", 100000) + "1" + strings.Repeat(")", 100000) + " }}", "depth"},
	{"braces", "{{ " + strings.Repeat("{1:", 100000) + "1" + strings.Repeat("}", 100000) + " }}", "depth"},
	{"nots", "{{ " + strings.Repeat("not ", 100000) + "1 }}", "depth"},
	{"signs", "{{ " + strings.Repeat("- ", 100000) + "1 }}", "depth"},
	{"ifs", strings.Repeat("{% if true %}", 50000) + strings.Repeat("{% endif %}", 30000), "depth"},
	{"conditions", "{{ " + strings.Repeat("1 if 1 else ", 70000) + "1 }}", "depth"},
	{"sums", "{{ 1" + strings.Repeat("+1", 100000) + " }}", "depth"},
	{"pipes", "{{ 1" + strings.Repeat("|e", 100000) + " }}", "depth"},
	{"dots", "{{ a" + strings.Repeat(".a", 100000) + " }}", "depth"},
	{"calls", "{{ a" + strings.Repeat("()", 100000) + " }}", "depth"},
	{"tests", "{{ 1" + strings.Repeat(" is odd == 1", 50000) + " }}", "none"},
	{"filter block", "{% filter upper" + strings.Repeat("|upper", 100000) + " %}x{% endfilter %}", "depth"},
	{"long", strings.Repeat("x", 1<<20+1), "source"},
	{"many names", times(1, strings.Repeat("{% set a = 1 %}", 50000)), "none"},
}

// TestBudgets: every attack ends at once, in an error that names its budget,
// and within memory that is stated.
func TestBudgets(t *testing.T) {
	for _, a := range attacks {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begin := time.Now()
		_, err := render(t, a.src, nil, jinja.DefaultLimits)
		took := time.Since(begin)
		runtime.ReadMemStats(&after)
		var e *jinja.Error
		switch {
		case a.budget == "none":
			if err != nil {
				t.Errorf("%s: %v", a.name, err)
			}
		case !errors.As(err, &e):
			t.Errorf("%s: no error, %v", a.name, err)
		case a.budget == "" && e.Budget != "", a.budget != "" && (e.Budget == "" || !strings.Contains(a.budget, e.Budget)):
			t.Errorf("%s: %v, not the budget %q", a.name, err, a.budget)
		case e.Budget != "" && !(strings.Contains(err.Error(), "budget of "+e.Budget) && strings.HasPrefix(err.Error(), "test, line ")):
			t.Errorf("%s: the error %v does not name its budget and line", a.name, err)
		}
		if limit := 10 * time.Second; took > limit { // a loaded machine; see docs/perf/templates.md for the times
			t.Errorf("%s took %v", a.name, took)
		}
		grown := (after.TotalAlloc - before.TotalAlloc) >> 20
		t.Logf("%-24s %6d ms %6d MiB allocated in all: %v", a.name, took.Milliseconds(), grown, err)
	}
}

// TestCancel: a context that ends stops a rendering wherever it is.
func TestCancel(t *testing.T) {
	free := jinja.Limits{Source: 1 << 20, Depth: 5000, Steps: 1 << 60, Memory: 1 << 60, Output: 1 << 60}
	for _, src := range []string{
		times(100000, times(100000, "")),
		"{% set l = range(100000) | list %}" + times(100000, "{{ -1 in l }}"),
		"{% set s = 'x' * 10**7 %}" + times(100000, "{{ 'y' in s }}"),
		"{% set a = namespace(l=[1]) %}{% set b = namespace(l=[1]) %}" + times(64, "{% set a.l = [a.l, a.l] %}{% set b.l = [b.l, b.l] %}") + "{{ a.l == b.l }}",
		"{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(100) }}",
		times(100000, "{% set x = range(100000) | sort(reverse=true) %}"),
		times(100000, "{% set x = range(100000) | map('string') | select | list %}"),
	} {
		tp, err := jinja.Parse("test", src, free)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		begin := time.Now()
		_, err = tp.Render(ctx, nil, jinja.Options{})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%.60s: %v", src, err)
		}
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("%.60s: stopped after %v", src, took)
		}
	}
}

// TestUnsupported: what is valid and missing says so.
func TestUnsupported(t *testing.T) {
	for _, src := range []string{"{{ lipsum() }}", "{{ [1] | random }}", "{{ [1] | pprint }}", "{{ 'x' | urlize }}", "{{ (-1) ** 0.5 }}", "{{ {}.items }}",
		"{{ [1] | map('string') }}", "{% autoescape true %}{% endautoescape %}", "{{ self.x() }}", "{% block a scoped %}{% endblock %}", "{{ 'x'.encode() }}"} {
		_, err := render(t, src, nil, jinja.DefaultLimits)
		var e *jinja.Error
		if !errors.As(err, &e) || !e.Unsupported {
			t.Errorf("%s: %v", src, err)
		}
	}
}

// TestErrorsNameLines: a line is the one where a thing stands, also in a
// macro that is called from elsewhere.
func TestErrorsNameLines(t *testing.T) {
	for src, line := range map[string]int{
		"a\n\n{{ x.y.z }}": 3,
		"{% macro m() %}\n{{ 1/0 }}\n{% endmacro %}\n{{ m() }}": 2,
		"{% if true %}\n{{ raise_exception('x') }}{% endif %}":  2,
		"a\r\nb\rc{{ ":                      3,
		"{{ [\n1,\n2 }}":                    3,
		"{% for x in [1] %}\n\n{% endif %}": 3,
		"{# a\n#}{{ 1 | nosuch }}":          2,
	} {
		_, err := render(t, src, nil, jinja.DefaultLimits)
		var e *jinja.Error
		if !errors.As(err, &e) || e.Line != line {
			t.Errorf("%q: %v, not line %d", src, err, line)
		}
	}
}
