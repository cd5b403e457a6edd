package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// written runs a prompt and returns what is written, without the last line feed.
func written(t *testing.T, args ...string) string {
	t.Helper()
	return strings.TrimSuffix(must(t, append([]string{"run"}, args...)...), "\n")
}

// What a grammar allows is written, whatever the model would rather say, greedily or not,
// as a continuation or in a conversation, in one precision or the other.
func TestRunGrammars(t *testing.T) {
	schema := filepath.Join(t.TempDir(), "person.json")
	if err := os.WriteFile(schema, []byte(`{"type":"object","properties":{"name":{"type":"string","maxLength":12},"age":{"type":"integer","minimum":1,"maximum":99},
		"tags":{"type":"array","items":{"enum":["a","b"]},"maxItems":3}},"required":["name","age"],"additionalProperties":false}`), 0o666); err != nil {
		t.Fatal(err)
	}
	gbnf := filepath.Join(t.TempDir(), "list.gbnf")
	if err := os.WriteFile(gbnf, []byte("root ::= (\"- \" word{1,3} \"\\n\"){2}\nword ::= [a-z]{1,8} \" \"?\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, how := range [][]string{{"--greedy"}, {"--seed", "1"}, {"--seed", "2", "--temperature", "3", "--top-k", "0", "--min-p", "0", "--repetition-penalty", "1.3"},
		{"--chat", "--seed", "3"}, {"--exact", "--seed", "4"}} {
		run := func(args ...string) string {
			return written(t, append(append([]string{demoModel, "-p", "Tell me."}, how...), args...)...)
		}
		for range 2 {
			var p struct {
				Name string
				Age  int
				Tags []string
			}
			text := run("--json-schema", schema)
			if err := json.Unmarshal([]byte(text), &p); err != nil || len([]rune(p.Name)) > 12 || p.Age < 1 || p.Age > 99 || len(p.Tags) > 3 {
				t.Errorf("%v: %s: %v", how, text, err)
			}
		}
		if text := run("--grammar", gbnf); !regexp.MustCompile(`^(- ([a-z]{1,8} ?){1,3}\n){2}$`).MatchString(text+"\n") && !regexp.MustCompile(`^(- ([a-z]{1,8} ?){1,3}\n){2}$`).MatchString(text) {
			t.Errorf("%v: %q", how, text)
		}
		if text := run("--regex", `(19|20)\d\d-[01]\d`); !regexp.MustCompile(`^(19|20)\d\d-[01]\d$`).MatchString(text) {
			t.Errorf("%v: %q", how, text)
		}
		if text := run("--choice", "red,green", "--choice", "blue"); text != "red" && text != "green" && text != "blue" {
			t.Errorf("%v: %q", how, text)
		}
	}
	one := written(t, demoModel, "-p", "Tell me.", "--seed", "5", "--json-schema", `{"type":"array","items":{"type":"integer"},"maxItems":9}`)
	if two := written(t, demoModel, "-p", "Tell me.", "--seed", "5", "--json-schema", `{"type":"array","items":{"type":"integer"},"maxItems":9}`); one != two {
		t.Errorf("the same seed: %q, %q", one, two)
	}
}

func TestRunGrammarRefusals(t *testing.T) {
	run := func(args ...string) result { return invoke(append([]string{"run", demoModel, "-p", "x"}, args...)...) }
	bad := filepath.Join(t.TempDir(), "bad.gbnf")
	if err := os.WriteFile(bad, []byte("root ::= one\none ::= root \"x\" | \"y\"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	run("--grammar", bad).fails(t, exitUnsupported, "left recursion")
	run("--grammar", `root ::= (`).fails(t, exitInput, "--grammar: ")
	if r := run("--grammar", `root ::= "yes" | "no"`); r.code != exitFine || r.out != "yes\n" && r.out != "no\n" {
		t.Errorf("exit %d, %q: %s", r.code, r.out, r.err)
	}
	run("--grammar", filepath.Join(t.TempDir(), "none")).fails(t, exitInput, "no such file")
	run("--json-schema", `{"type":"objet"}`).fails(t, exitInput, `"#/type"`)
	run("--json-schema", `{"items":{"not":{}}}`).fails(t, exitUnsupported, `"#/items/not": unsupported: the keyword "not"`)
	run("--regex", `(a`).fails(t, exitInput, "not closed")
	run("--choice", "a,b", "--regex", "a").fails(t, exitUsage, "two grammars")
	r := run("--json-schema", `{"type":"string","minLength":50}`, "--max-tokens", "3", "--seed", "1")
	r.fails(t, exitFailure, "before its grammar allows it")
	if !strings.HasPrefix(r.out, `"`) || !strings.Contains(r.err, "--max-tokens N") {
		t.Errorf("%q, %s", r.out, r.err)
	}
	run("--json-schema", `{"type":"string","minLength":500}`, "--max-tokens", "0", "--ctx", "12", "--seed", "1").fails(t, exitFailure, "before its grammar allows it")
}
