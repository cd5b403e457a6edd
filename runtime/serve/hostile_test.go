package serve

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nstf/nstf/runtime/schedule"
)

// endless is a body that counts what is read of it.
type endless struct {
	head string
	read int64
	most int64
}

func (e *endless) Read(p []byte) (int, error) {
	if e.read >= e.most {
		return 0, io.EOF
	}
	n := copy(p, e.head)
	e.head = e.head[n:]
	for ; n < len(p); n++ {
		p[n] = 'a'
	}
	e.read += int64(n)
	return n, nil
}

// A body of 100 MB is read as far as the limit goes, and no further.
func TestHostileBodies(t *testing.T) {
	_, s, _ := serving(t, Options{}, schedule.Options{})
	for path, head := range map[string]string{"/v1/chat/completions": `{"messages": [{"role": "user", "content": "`, "/v1/messages": "", "/api/chat": `{"model": "`, "/v1/embeddings": `{"input": "`, "/tokenize": `{"content": "`} {
		for _, length := range []int64{100 << 20, -1} {
			body := &endless{head: head, most: 100 << 20}
			r := httptest.NewRequest("POST", path, body)
			r.ContentLength = length
			w := httptest.NewRecorder()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			s.ServeHTTP(w, r)
			runtime.ReadMemStats(&after)
			if w.Code != 413 || !strings.Contains(w.Body.String(), "16777216") {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
			if body.read > 17<<20 || after.TotalAlloc-before.TotalAlloc > 160<<20 {
				t.Errorf("%s: read %d bytes, took %d", path, body.read, after.TotalAlloc-before.TotalAlloc)
			}
		}
	}
}

// What is made to cost much is refused within seconds, by a clear message.
func TestHostileRequests(t *testing.T) {
	h, _, sched := serving(t, Options{}, schedule.Options{})
	chat := func(more string) string {
		return `{"messages": [{"role": "user", "content": "a"}], "max_tokens": 4, ` + more + `}`
	}
	schema := func(s string) string {
		return chat(`"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": ` + s + `}}`)
	}
	quoted := func(s string) string { p, _ := json.Marshal(s); return string(p) }
	const n = 200_000 // all of it grows in proportion: tenfold was tried
	// Each definition is two of the one before: 2^40 alternatives, or values.
	doubled := func(one, both string) string {
		defs := []string{`"a0": ` + one}
		for i := range 40 {
			defs = append(defs, fmt.Sprintf(`"a%d": `+both, i+1, i, i))
		}
		return `{"$ref": "#/$defs/a40", "$defs": {` + strings.Join(defs, ", ") + `}}`
	}
	either := make([]string, 20)
	for i := range either {
		either[i] = fmt.Sprintf(`{"anyOf": [{"required": ["a%d"]}, {"required": ["b%d"]}]}`, i, i)
	}
	for name, c := range map[string]struct{ path, body, says string }{
		"nested arrays":        {"/v1/chat/completions", strings.Repeat("[", n), "deeper"},
		"nested objects":       {"/v1/messages", strings.Repeat(`{"a":`, n), "deeper"},
		"nested content":       {"/v1/chat/completions", `{"messages": [{"role": "user", "content": ` + strings.Repeat(`[{"a":`, 1000), "deeper"},
		"nested schema":        {"/v1/chat/completions", schema(strings.Repeat(`{"items": `, 120) + "true" + strings.Repeat("}", 120)), "-"},
		"many prompts":         {"/v1/completions", `{"prompt": [` + strings.Repeat(`"a",`, n) + `"a"]}`, "at most"},
		"many texts":           {"/v1/embeddings", `{"input": [` + strings.Repeat(`"a",`, n) + `"a"]}`, "at most"},
		"many messages":        {"/v1/chat/completions", `{"messages": [` + strings.Repeat(`{"role":"user","content":"a"},`, n/10) + `{"role":"user","content":"a"}]}`, ""},
		"many stops":           {"/v1/chat/completions", chat(`"stop": [` + strings.Repeat(`"a",`, n) + `"a"]`), "at most"},
		"a long word":          {"/v1/completions", `{"prompt": "` + strings.Repeat("a", n) + `"}`, "positions"},
		"long whitespace":      {"/v1/completions", `{"prompt": "` + strings.Repeat(" ", n) + `"}`, "positions"},
		"alternatives doubled": {"/v1/chat/completions", schema(doubled(`{"type": "integer"}`, `{"anyOf": [{"$ref": "#/$defs/a%d"}, {"type": "array", "items": {"$ref": "#/$defs/a%d"}}]}`)), "-"},
		"values doubled":       {"/v1/chat/completions", schema(doubled(`{"type": "string", "maxLength": 100}`, `{"type": "array", "prefixItems": [{"$ref": "#/$defs/a%d"}, {"$ref": "#/$defs/a%d"}], "minItems": 2, "maxItems": 2}`)), "-"},
		"merged alternatives":  {"/v1/chat/completions", schema(`{"allOf": [` + strings.Join(either, ", ") + `]}`), "combinations"},
		"bounds multiplied":    {"/v1/chat/completions", schema(`{"type": "array", "minItems": 1000000, "items": {"type": "array", "minItems": 1000000, "items": {"type": "string", "minLength": 1000000}}}`), ""},
		"regex powers":         {"/v1/chat/completions", chat(`"structured_outputs": {"regex": "((((a{99}){99}){99}){99}){99}"}`), "states"},
		"regex subsets":        {"/v1/chat/completions", chat(`"structured_outputs": {"regex": "(a|b)*a(a|b){64}"}`), "-"},
		"regex stars":          {"/v1/chat/completions", chat(`"structured_outputs": {"regex": "((((((a*)*)*)*)*)*)*b"}`), "-"},
		"left recursion":       {"/v1/chat/completions", chat(`"grammar": ` + quoted("root ::= a | \"x\"\na ::= b \"y\"\nb ::= root \"z\"")), "left recursion"},
		"endless grammar":      {"/v1/chat/completions", chat(`"grammar": ` + quoted("root ::= \"a\" root")), "never ends"},
		"empty recursion":      {"/v1/chat/completions", chat(`"grammar": ` + quoted("root ::= \"\" root | root root | \"\"")), ""},
		"many rules":           {"/v1/chat/completions", chat(`"grammar": ` + quoted("root ::= a0\n"+strings.Repeat("x", n))), ""},
		"many choices":         {"/v1/chat/completions", chat(`"structured_outputs": {"choice": [` + strings.Repeat(`"abcdefgh",`, n/4) + `"b"]}`), "-"},
		"an endless reference": {"/v1/chat/completions", schema(`{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}`), "-"},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			code, v, _ := post(t, h.URL+c.path, c.body)
			said, _ := json.Marshal(v)
			// What says "-" can be told either way: it is answered within its 4 tokens, or refused.
			if c.says == "-" && code == 200 {
				code = 400
				said = append(said, '-')
			}
			if code < 400 || code >= 500 || c.says != "-" && !strings.Contains(string(said), c.says) || len(said) > 2000 {
				t.Errorf("%d %.300s", code, said)
			}
			if d := time.Since(began); d > 10*time.Second {
				t.Errorf("it took %v", d)
			}
		})
	}
	if m := sched.Metrics(); m.Running != 0 || m.Waiting != 0 {
		t.Errorf("%+v", m)
	}
	if code, v, _ := post(t, h.URL+"/v1/chat/completions", chat(`"temperature": 0`)); code != 200 {
		t.Errorf("behind all that: %d %v", code, v)
	}
}

// A chat template that loops ends within its budget, and the request with what it says.
func TestHostileTemplates(t *testing.T) {
	for name, template := range map[string]string{
		"loops":  `{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}{% endfor %}{% endfor %}{% endfor %}`,
		"grows":  `{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for a in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}`,
		"macros": `{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}`,
	} {
		h, _, _ := servingAs(t, Options{}, schedule.Options{}, template)
		for path, body := range map[string]string{"/v1/chat/completions": `{"messages": [{"role": "user", "content": "a"}]}`, "/v1/messages": `{"max_tokens": 1, "messages": [{"role": "user", "content": "a"}]}`} {
			began := time.Now()
			code, v, _ := post(t, h.URL+path, body)
			said, _ := json.Marshal(v)
			if d := time.Since(began); code < 400 || code >= 500 || !strings.Contains(string(said), "template") || d > 10*time.Second {
				t.Errorf("%s, %s: %d %s after %v", name, path, code, said, d)
			}
		}
	}
}

// How long a key takes tells nothing of those that are known: each is compared, by
// crypto/subtle, and none ends the search. No clock shows that on a busy machine; the source does.
func TestKeysInConstantTime(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "server.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, d := range f.Decls {
		known, ok := d.(*ast.FuncDecl)
		if !ok || known.Name.Name != "known" {
			continue
		}
		ast.Inspect(known.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.IfStmt, *ast.BranchStmt, *ast.SwitchStmt:
				t.Errorf("known decides in its midst: %T", n)
			case *ast.SelectorExpr:
				if n.Sel.Name == "ConstantTimeCompare" {
					compared++
				}
			case *ast.BinaryExpr:
				if x, ok := n.X.(*ast.Ident); !ok || x.Name != "found" {
					t.Errorf("known compares by %s", n.Op)
				}
			}
			return true
		})
	}
	if compared != 1 {
		t.Errorf("known calls subtle.ConstantTimeCompare %d times", compared)
	}
}
