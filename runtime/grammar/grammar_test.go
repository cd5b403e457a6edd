package grammar

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nstf/nstf/formats"
)

// accepts reports whether a text is legal as a whole.
func accepts(t testing.TB, g *Grammar, text string) bool {
	t.Helper()
	v, err := NewVocabulary([][]byte{nil}, []int32{0})
	if err != nil {
		t.Fatal(err)
	}
	m := v.Compile(g).NewMatcher()
	return m.AcceptBytes([]byte(text)) == nil && m.CanEnd()
}

func gbnfOf(text string) func() (*Grammar, error) {
	return func() (*Grammar, error) { return ParseGBNF(text) }
}
func regexOf(text string) func() (*Grammar, error) {
	return func() (*Grammar, error) { return ParseRegex(text) }
}
func schemaOf(text string) func() (*Grammar, error) {
	return func() (*Grammar, error) { return ParseSchema([]byte(text)) }
}

func TestLanguages(t *testing.T) {
	for _, c := range []struct {
		make           func() (*Grammar, error)
		legal, illegal string // words; _ is the empty text, · a space
	}{
		{gbnfOf("root ::= expr\nexpr ::= expr \"+\" term | term\nterm ::= [0-9]+ | \"(\" expr \")\"\n"), "1 1+2 (1+2)+33 ((1))", "1+ _ (1 1)"},
		{gbnfOf("root ::= e\ne ::= none e \"+\" | \"1\"\nnone ::= \"-\"?"), "1 1+ 1++ -1+ -1++", "_ + -1"},
		{gbnfOf("root ::= \"\\x41\\u00e9\\U0001F600\\n\"? # a remark\r\n"), "_ Aé😀\n", "A Aé"},
		{gbnfOf("root ::=\n  (\n  \"a\" # first\n  | \"b\"\n ) |\n [c-e-] [^\\]\\-^]"), "a b c· -x dé", "c] c- e^ ab"},
		{gbnfOf("root ::= \"ab\"{2} [x]{1,} .{0,2}"), "ababx ababxx ababxéé ababxxxéé", "ab abab ababxyzw"},
		{gbnfOf("root ::= pair*\npair ::= \"(\" root \")\""), "_ () (())() ((()()))", "( )( (()"},
		{regexOf(`(^a|b)c{2,3}[^x-z]$|é+`), "acc1 bcccw éé", "acx accx _ xé"},
		{regexOf(`\d{3}-\u{1F600}|\p{Lu}\P{L}?|[\w-]+?\.|\cA`), "123-😀 É É1 a-b. \x01", "12-😀 é a.b"},
		{regexOf(`a$|^$|(?:x|y)(?<n>z)`), "a _ xz yz", "az x"},
		{regexOf(`[]|[^]{2}`), "ab é\n", "_ a abc"},
		{func() (*Grammar, error) { return Choices([]string{"red", "green", "reddish"}) }, "red reddish green", "redd _ blue"},
		{func() (*Grammar, error) { return Compose(Value()) }, `{} [1,{"a":·null}] -0.5e+10 "\u00e9\ud83d\ude00" true`, `{,} [1,] 01 "\ud83d" "\x" 1e999 ·1 nul`},
		{func() (*Grammar, error) { return Compose(Object()) }, `{} {"a":[]}`, `[] 1 {"a"·:1}`},
		{schemaOf(`{"const":{"b":[1.0,"é\n"],"a":null}}`), `{"b":[1,"é\n"],"a":null}`, `{"a":null,"b":[1,"é\n"]} {"b":[1.0,"é\n"],"a":null}`},
		{schemaOf(`{"type":"number","minimum":-1.25,"exclusiveMaximum":10.5}`), "-1.25 -1.2 -1 0 0.001 10 10.4999 9.99", "-1.26 -2 10.5 10.50 11 -0 1e0 00"},
		{schemaOf(`{"type":"number","multipleOf":0.25,"maximum":3}`), "0 0.5 0.250 3 -7.75 3.0", "0.3 3.25 1.2"},
		{schemaOf(`{"type":"object","oneOf":[{"properties":{"k":{"const":"a"},"x":{"type":"integer"}},"required":["k","x"],"additionalProperties":false},{"properties":{"k":{"const":"b"}},"required":["k"],"additionalProperties":false}]}`),
			`{"k":"a","x":1} {"k":"b"}`, `{"k":"a"} {"k":"b","x":1} {"k":"c"}`},
		{schemaOf(`{"type":"object","patternProperties":{"^n_":{"type":"integer"},"e$":{"maximum":5}},"additionalProperties":{"type":"null"}}`),
			`{} {"n_a":9} {"n_e":5} {"ze":4} {"z":null}`, `{"n_a":"x"} {"n_e":9} {"ze":9} {"z":1}`},
	} {
		g, err := c.make()
		if err != nil {
			t.Error(err)
			continue
		}
		for i, words := range []string{c.legal, c.illegal} {
			for _, w := range strings.Split(words, " ") {
				text := strings.ReplaceAll(strings.ReplaceAll(w, "_", ""), "·", " ")
				if strings.Contains(w, "n_") {
					text = w
				}
				if accepts(t, g, text) != (i == 0) {
					t.Errorf("%q is legal: %v, beside %s", text, i == 1, c.legal)
				}
			}
		}
	}
}

// What is wrong, and what takes too much, is said, with its place.
func TestRefusals(t *testing.T) {
	var required, deep strings.Builder
	for i := range 20 {
		fmt.Fprintf(&required, `{"anyOf":[{"required":["a%d"]},{"required":["b%d"]}]},`, i, i)
	}
	for i := range 10000 {
		fmt.Fprintf(&deep, "a%d ::= a%d | \"x\"\n", i, i+1)
	}
	for _, c := range []struct {
		make        func() (*Grammar, error)
		unsupported bool
		want        string
	}{
		{gbnfOf("root ::= \"a"), false, "line 1, column 12"},
		{gbnfOf("root ::= a\n\n b ::= \"x\""), false, `rule "a" is not defined`},
		{gbnfOf("start ::= \"a\""), false, "no rule root"},
		{gbnfOf("root ::= root2\nroot2 ::= root \"x\" | \"y\""), true, "left recursion"},
		{gbnfOf("root ::= \"a\" root"), false, "never ends"},
		{gbnfOf("root ::= <think>"), true, "a token in a grammar"},
		{gbnfOf("root ::= \"a\"\nroot ::= \"b\""), false, "defined twice"},
		{gbnfOf("root ::= \"\\q\""), false, `\q`},
		{gbnfOf("root ::= \"\\ud800\""), false, "no code point"},
		{gbnfOf("root ::= [z-a]"), false, "down to"},
		{gbnfOf("root ::= \"a\"{3,2}"), false, "3 to 2 times"},
		{gbnfOf("root ::= " + strings.Repeat("(", 300) + strings.Repeat(")", 300)), false, "levels of parentheses"},
		{gbnfOf("root ::= (((x?){0,100}){0,100}){0,100}\nx ::= [a-z]+ \" \""), true, "states"},
		{gbnfOf("root ::= a0\n" + deep.String() + "a10000 ::= \"x\"\n"), false, ""},
		{gbnfOf("root ::= \"\xff\""), false, "UTF-8"},
		{regexOf(`((((a{99}){99}){99}){99}){99}`), true, "states"},
		{regexOf(`(((((){9999}){9999}){9999}){999}){99}`), true, "states"},
		{regexOf(`(a|b)*a(a|b){16}`), true, "more than"},
		{regexOf(`(?=a)b`), true, "lookahead"},
		{regexOf(`(a)\1`), true, "back reference"},
		{regexOf(`\bword`), true, "word boundary"},
		{regexOf(`(a`), false, "not closed"},
		{regexOf(`a)`), false, "not opened"},
		{regexOf(`*`), false, "nothing to repeat"},
		{schemaOf(`{"type":"object"`), false, "not JSON"},
		{schemaOf(`{"type":"object","type":"array"}`), false, "twice"},
		{schemaOf(strings.Repeat(`{"items":`, 300) + "1" + strings.Repeat("}", 300)), false, "levels"},
		{schemaOf(`{"properties":{"a/b":{"not":{}}}}`), true, `#/properties/a~1b/not": unsupported: the keyword "not"`},
		{schemaOf(`{"properties":{"a":{"format":"color"}}}`), true, `#/properties/a/format`},
		{schemaOf(`{"items":{"pattern":"(?!x)"}}`), true, `"#/items/pattern": unsupported: lookahead`},
		{schemaOf(`{"items":{"minimum":"1"}}`), false, `"#/items/minimum"`},
		{schemaOf(`{"oneOf":[{"minimum":1},{"maximum":3}]}`), true, `"#/oneOf"`},
		{schemaOf(`{"$ref":"#/$defs/x"}`), false, "nothing is at"},
		{schemaOf(`{"$ref":"http://example.com/s"}`), true, `"#/$ref"`},
		{schemaOf(`{"$ref":"#"}`), false, ""},
		{schemaOf(`{"allOf":[{"type":"string"},{"type":"null"}]}`), false, "never ends"},
		{schemaOf(`{"properties":{"a":{"$ref":"#"}},"required":["a"],"type":"object"}`), false, "never ends"},
		{schemaOf(`{"type":"string","maxLength":1000000}`), true, `unsupported: a grammar that takes more than`},
		{schemaOf(`{"allOf":[` + required.String() + `true]}`), true, "combinations of anyOf"},
		{schemaOf(`{"type":"array","uniqueItems":true}`), true, "uniqueItems"},
		{func() (*Grammar, error) { return Choices(nil) }, false, "nothing"},
	} {
		_, err := c.make()
		var u *formats.UnsupportedError
		var f *formats.FormatError
		switch {
		case c.want == "" && err == nil:
		case c.want == "" || !strings.Contains(fmt.Sprint(err), c.want):
			t.Errorf("%v, want %q", err, c.want)
		case errors.As(err, &u) != c.unsupported || errors.As(err, &f) == c.unsupported:
			t.Errorf("%v is of the wrong family", err)
		}
	}
}

// Bytes that alone may follow, the end, and the way back to the front.
func TestJump(t *testing.T) {
	g, err := schemaOf(`{"type":"object","properties":{"name":{"const":"é"},"age":{"enum":[12,13]}},"required":["name","age"],"additionalProperties":false}`)()
	if err != nil {
		t.Fatal(err)
	}
	v := bytesAnd(t)
	m := v.Compile(g).NewMatcher()
	if j := string(m.Jump()); j != "{" { // a space may follow
		t.Errorf("%q alone may follow", j)
	}
	for _, c := range []struct{ text, jump string }{{`{"`, `name":`}, {`name": "`, `é",`}, {`é",`, ""}, {`"age":1`, ""}, {`2`, ""}, {`}`, ""}} {
		if err := m.AcceptBytes([]byte(c.text)); err != nil {
			t.Fatal(err)
		}
		if j := string(m.Jump()); j != c.jump {
			t.Errorf("behind %q %q alone may follow, not %q", c.text, j, c.jump)
		}
	}
	if !m.IsDone() || !m.CanEnd() {
		t.Error("it is not done")
	}
	if err := m.Accept(0); err != nil || m.Accept(0) == nil {
		t.Errorf("the end: %v", err)
	}
	m.Reset()
	if j := string(m.Jump()); j != "{" || m.IsDone() {
		t.Errorf("in front again, %q alone may follow", j)
	}
}

// Many matchers of one grammar, some of which find its memory full, see the same masks.
func TestConcurrent(t *testing.T) {
	v := bytesAnd(t)
	g, err := Compose(Value())
	if err != nil {
		t.Fatal(err)
	}
	one := v.Compile(g)
	want := randomMasks(t, v, v.Compile(g), 1)
	one.m.limit = 1 << 14 // forgets now and then
	v.masks.limit, v.local.limit = 1<<12, 1<<12
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got := randomMasks(t, v, one, 1); !slices.Equal(got, want) {
				t.Error("masks differ")
			}
		})
	}
	wg.Wait()
}

// A cache makes each grammar once, keeps no errors, and forgets what was asked for
// longest ago.
func TestCache(t *testing.T) {
	c := NewCache(bytesAnd(t), 3*(configBytes+1<<16))
	made := map[string]int{}
	var mu sync.Mutex
	get := func(key string) *Compiled {
		p, err := c.Get(key, func() (*Grammar, error) {
			mu.Lock()
			made[key]++
			mu.Unlock()
			return ParseRegex(key)
		})
		if (err != nil) != (key == "(") || (p == nil) != (err != nil) {
			t.Errorf("%s: %v, %v", key, p, err)
		}
		return p
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { get("a") })
	}
	wg.Wait()
	if first := get("a"); first != get("a") || made["a"] != 1 {
		t.Errorf("made %v", made)
	}
	for _, key := range []string{"(", "(", "b", "c", "a", "d", "a"} {
		get(key)
	}
	if made["("] != 2 || made["a"] != 1 {
		t.Errorf("made %v", made)
	}
	if get("b"); made["b"] != 2 {
		t.Errorf("made %v: b was to be forgotten", made)
	}
}

func randomMasks(t *testing.T, v *Vocabulary, p *Compiled, seed uint64) (all []uint32) {
	r := rand.New(rand.NewPCG(seed, 0))
	m := p.NewMatcher()
	dst := make([]uint32, v.Words())
	for range 400 {
		if err := m.Mask(dst); err != nil {
			m.Reset()
			continue
		}
		all = append(all, dst...)
		id := int32(r.IntN(v.Len()))
		for dst[id>>5]>>(id&31)&1 == 0 {
			id = (id + 1) % int32(v.Len())
		}
		if err := m.Accept(id); err != nil {
			t.Error(err)
			return
		}
	}
	return all
}
