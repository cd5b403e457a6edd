package grammar

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// small is a vocabulary of all texts of up to three characters of an alphabet, some
// longer ones, tokens that no text spells, and two that end a text.
func small(t testing.TB, alphabet string) *Vocabulary {
	t.Helper()
	tokens := [][]byte{nil, []byte("never: it ends a text"), nil}
	for _, a := range alphabet {
		tokens = append(tokens, []byte(string(a)))
		for _, b := range alphabet {
			tokens = append(tokens, []byte(string(a)+string(b)))
			if len(alphabet) > 6 {
				continue
			}
			for _, c := range alphabet {
				tokens = append(tokens, []byte(string(a)+string(b)+string(c)))
			}
		}
		tokens = append(tokens, []byte(strings.Repeat(string(a), keyDepth)), []byte(strings.Repeat(string(a), keyDepth+3)),
			[]byte(string(a)+strings.Repeat("ab", keyDepth)), []byte(string(a)), []byte(string(a))[:1])
	}
	v, err := NewVocabulary(tokens, []int32{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// agree follows a text by chance and holds every mask to a trial of every token.
func agree(t testing.TB, g *Grammar, v *Vocabulary, r *rand.Rand, steps int) {
	t.Helper()
	p := v.Compile(g)
	m := p.NewMatcher()
	dst := make([]uint32, v.Words())
	for range steps {
		err := m.Mask(dst)
		if errors.Is(err, ErrAmbiguous) {
			return
		}
		var legal []int32
		for id := int32(-1); int(id) <= v.Len(); id++ {
			trial := m.Clone()
			took := trial.Accept(id) == nil
			if took {
				legal = append(legal, id)
			} else if *trial != *m {
				t.Fatalf("token %d was refused, and the matcher is elsewhere", id)
			}
			in := id >= 0 && int(id) < v.Len() && dst[id>>5]>>(id&31)&1 == 1
			if in != took {
				t.Fatalf("token %d, %q: mask says %v, the matcher %v", id, v.tokens[id], in, took)
			}
		}
		if (err == nil) != (len(legal) > 0) {
			t.Fatalf("%v with %d tokens", err, len(legal))
		}
		if m.CanEnd() != slices.Contains(legal, 1) {
			t.Fatalf("the text may end: %v; by a token: %v", m.CanEnd(), legal)
		}
		if j := m.Jump(); len(j) > 0 {
			if m.CanEnd() {
				t.Fatalf("%q alone may follow, and so may the end", j)
			}
			for _, id := range legal {
				if b := string(v.tokens[id]); !strings.HasPrefix(string(j), b) && !strings.HasPrefix(b, string(j)) {
					t.Fatalf("%q alone may follow, and so may %q", j, b)
				}
			}
		}
		if len(legal) == 0 {
			m.Reset()
			continue
		}
		id := legal[r.IntN(len(legal))]
		c := m.Clone()
		if err := m.Accept(id); err != nil {
			t.Fatal(err)
		}
		if m.done {
			if !m.IsDone() || m.Accept(id) == nil {
				t.Fatal("something follows the end")
			}
			m.Reset()
			continue
		}
		if c.Accept(id) != nil || c.now != m.now {
			t.Fatal("a clone goes elsewhere")
		}
	}
}

// A random grammar, in GBNF, over few characters.
func randomGBNF(r *rand.Rand) string {
	names := []string{"root", "one", "two", "three"}[:1+r.IntN(4)]
	var item func(depth int) string
	sequence := func(depth int) string {
		var parts []string
		for range r.IntN(4) {
			parts = append(parts, item(depth))
		}
		return strings.Join(parts, " ")
	}
	item = func(depth int) string {
		switch k := r.IntN(9); {
		case k < 3:
			return []string{`"a"`, `"b"`, `"ab"`, `"é"`, `"ba"`}[r.IntN(5)]
		case k == 3:
			return []string{"[ab]", "[^a]", ".", "[a-bé]"}[r.IntN(4)]
		case k < 6:
			return names[r.IntN(len(names))]
		case depth > 2:
			return `"b"`
		case k == 6:
			return "(" + sequence(depth+1) + " | " + sequence(depth+1) + ")"
		}
		return item(depth+1) + []string{"*", "+", "?", "{2}", "{1,3}", "{0,20}", "{2,}"}[r.IntN(7)]
	}
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, "%s ::= %s", n, sequence(0))
		for range r.IntN(3) {
			fmt.Fprintf(&b, " | %s", sequence(0))
		}
		b.WriteString("\n")
	}
	return b.String()
}

type reading struct {
	r        ref
	i, depth int
}

// ends returns where x can end that begins at i, of what depth steps of rules reach: a
// plain reading of the definitions, and slow.
func ends(rules []rule, x expr, text string, i, depth int, memo map[reading][]int) []int {
	var out []int
	add := func(more ...int) {
		for _, e := range more {
			if !slices.Contains(out, e) {
				out = append(out, e)
			}
		}
	}
	switch x := x.(type) {
	case literal:
		if strings.HasPrefix(text[i:], string(x)) {
			add(i + len(x))
		}
	case class:
		for _, r := range text[i:] {
			if slices.ContainsFunc(x, func(of runeRange) bool { return r >= of.lo && r <= of.hi }) {
				add(i + len(string(r)))
			}
			break
		}
	case seq:
		out = []int{i}
		for _, y := range x {
			from := out
			out = nil
			for _, e := range from {
				add(ends(rules, y, text, e, depth, memo)...)
			}
		}
	case alt:
		for _, y := range x {
			add(ends(rules, y, text, i, depth, memo)...)
		}
	case repeat:
		at := []int{i}
		if x.min == 0 {
			add(i)
		}
		for n := 1; x.max < 0 && n <= x.min+len(text)+1 || n <= x.max; n++ {
			var next []int
			for _, e := range at {
				for _, f := range ends(rules, x.x, text, e, depth, memo) {
					if !slices.Contains(next, f) {
						next = append(next, f)
					}
				}
			}
			if at = next; n >= x.min {
				add(at...)
			}
		}
	case ref:
		if depth == 0 {
			return nil
		}
		key := reading{x, i, depth}
		if known, ok := memo[key]; ok {
			return known
		}
		out = ends(rules, rules[x].x, text, i, depth-1, memo)
		memo[key] = out
	}
	return out
}

// Grammars by chance: masks are trials of every token, and what is legal is what the
// definition says.
func TestRandomGrammars(t *testing.T) {
	n := 250
	if testing.Short() {
		n = 100
	}
	v := small(t, "abé")
	built, texts, legal := 0, 0, 0
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		text := randomGBNF(r)
		g, err := ParseGBNF(text)
		if err != nil {
			continue // left recursion through others, rules that never end
		}
		built++
		func() {
			defer func() {
				if t.Failed() {
					t.Logf("grammar %d:\n%s", seed, text)
				}
			}()
			agree(t, g, v, r, 12)
		}()
		p := &gbnf{text: text, index: map[string]int{}}
		p.rule("root")
		if err := p.parse(); err != nil {
			t.Fatal(err)
		}
		for range 12 {
			s := ""
			for range r.IntN(6) {
				s += string([]rune("aabbé")[r.IntN(5)])
			}
			memo := map[reading][]int{}
			want := slices.Contains(ends(p.rules, ref(0), s, 0, 12, memo), len(s))
			if got := accepts(t, g, s); got != want {
				t.Errorf("%q is legal: %v, and the definition says %v, in\n%s", s, got, want, text)
			}
			if texts++; want {
				legal++
			}
		}
	}
	if built < n/4 || legal < texts/20 {
		t.Errorf("only %d grammars, %d of %d texts legal", built, legal, texts)
	}
	t.Logf("%d grammars, %d texts, %d of them legal", built, texts, legal)
}
