package grammar

import "testing"

func TestCompose(t *testing.T) {
	schema := func(raw string) Part {
		p, err := Schema([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	list := Shared(Sequence(Text("<"), Many(Any("<>"), 1, 3), Text(">")))
	for _, c := range []struct {
		name    string
		p       Part
		yes, no []string
	}{
		{"texts", Sequence(Text("a"), Either(Text("b"), Text("cc")), Many(Text("d"), 0, 2)), []string{"ab", "accdd"}, []string{"a", "abddd", "b"}},
		{"a shared part", Sequence(list, Text("-"), list), []string{"<a>-<bcd>"}, []string{"<>-<a>", "<abcd>-<a>"}},
		{"up to a tag", Until("</a>"), []string{"</a>", "x</a>", "<</a>", "</</a>", "é\n</b></a>"}, []string{"", "</a", "</a>x", "</a></a>"}},
		{"up to what repeats", Until("aab"), []string{"aab", "aaab", "abaab"}, []string{"aa", "aabaab"}},
		{"up to no UTF-8", Until("\xff1\xfe"), []string{"\xff1\xfe", "a</a>\xff1\xfe"}, []string{"a", "\xff1", "\xff1\xfe\xff1\xfe"}},
		{"schemas", Sequence(schema(`{"enum": ["x", 1]}`), Blank(1), schema(`{"type": "array", "items": {"$ref": "#/$defs/i"}, "$defs": {"i": {"type": "integer"}}}`), Text("!")),
			[]string{`"x"[1, 2]!`, `1 []!`}, []string{`"y"[]!`, `1["a"]!`, `1  []!`}},
		{"any object", Object(), []string{`{}`, `{"a": [1, {}]}`}, []string{`[]`, `{`}},
		{"any value", Value(), []string{`1`, `"a"`, `[true]`}, []string{``, `a`}},
	} {
		g, err := Compose(c.p)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, text := range c.yes {
			if !accepts(t, g, text) {
				t.Errorf("%s has no %q", c.name, text)
			}
		}
		for _, text := range c.no {
			if accepts(t, g, text) {
				t.Errorf("%s has %q", c.name, text)
			}
		}
	}
	if _, err := Schema([]byte(`{"not": {}}`)); err == nil {
		t.Error("a schema that is refused is not")
	}
}
