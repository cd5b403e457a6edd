package grammar_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/tokenizer"
	"github.com/nstf/nstf/runtime/grammar"
	"github.com/nstf/nstf/testdata/packed"
)

var vocabFile = flag.String("vocab", "", "model or vocabulary to measure masks with instead of GPT-2's")

func realVocabulary(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	path := *vocabFile
	if path == "" {
		path = packed.File(t, "../../testdata/vocab/ggml-vocab-gpt-2.gguf")
	}
	tok, err := checkpoint.OpenTokenizer(path)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// vocabulary returns a model's tokens as a grammar wants them.
func vocabulary(t testing.TB, tok *tokenizer.Tokenizer) *grammar.Vocabulary {
	t.Helper()
	tokens := make([][]byte, tok.VocabSize())
	for i := range tokens {
		if !tok.IsSpecial(int32(i)) {
			tokens[i] = tok.TokenBytes(int32(i))
		}
	}
	v, err := grammar.NewVocabulary(tokens, tok.Stops())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// measured are grammars as people use them, each with a text that is legal, nil for
// texts by chance.
var measured = []struct {
	name string
	make func() (*grammar.Grammar, error)
	text string
}{
	{"json object", func() (*grammar.Grammar, error) { return grammar.Compose(grammar.Object()) },
		`{"name": "Ada Lovelace", "born": 1815, "works": [{"title": "Notes on the Analytical Engine", "year": 1843, "pages": null}, {"title": "Translation", "year": 1842, "tags": ["mathematics", "engines", ["nested", {"deep": [1, 2, 3.5e2]}]]}], "alive": false, "quote": "That brain of mine is something more than merely mortal; as time will show."}`},
	{"schema: person", schemaOf(`{"type":"object","properties":{"name":{"type":"string","maxLength":80},"age":{"type":"integer","minimum":0,"maximum":150},
		"email":{"type":"string","format":"email"},"tags":{"type":"array","items":{"enum":["red","green","blue"]},"minItems":1,"maxItems":5},
		"address":{"type":"object","properties":{"street":{"type":"string"},"zip":{"type":"string","pattern":"^[0-9]{5}$"}},"required":["street","zip"],"additionalProperties":false}},
		"required":["name","age","address"],"additionalProperties":false}`),
		`{"name": "Ada Lovelace, Countess of Lovelace", "age": 36, "email": "ada@engine.example", "tags": ["red", "blue"], "address": {"street": "12 St James's Square, London", "zip": "12345"}}`},
	{"schema: recursive tree", schemaOf(`{"$defs":{"node":{"type":"object","properties":{"label":{"type":"string"},"children":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["label","children"],"additionalProperties":false}},"$ref":"#/$defs/node"}`),
		`{"label": "root of the tree", "children": [{"label": "left", "children": []}, {"label": "right", "children": [{"label": "a leaf that hangs low", "children": []}]}]}`},
	{"gbnf: json as in llama.cpp's folder", func() (*grammar.Grammar, error) {
		return grammar.ParseGBNF(`root ::= object
value ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
`)
	}, `{"name": "Ada Lovelace", "born": 1815, "works": [{"title": "Notes on the Analytical Engine", "year": 1843, "pages": null}], "alive": false}`},
	{"gbnf: arithmetic, left-recursive", func() (*grammar.Grammar, error) {
		return grammar.ParseGBNF("root ::= sum \"\\n\"\nsum ::= sum [-+] product | product\nproduct ::= product [*/] atom | atom\natom ::= [0-9]+ | [a-z]+ | \"(\" sum \")\"\n")
	}, "(alpha+12)*(beta-3/(gamma+delta))+1234567/x\n"},
	{"regex: log line", func() (*grammar.Grammar, error) {
		return grammar.ParseRegex(`\d{4}-\d\d-\d\d (INFO|WARN|ERROR) \[[a-z.]+\] .{1,200}`)
	}, "2026-11-22 WARN [nstf.grammar] the mask of this state was computed in 31 microseconds"},
	{"choice", func() (*grammar.Grammar, error) { return grammar.Choices([]string{"positive", "negative", "neutral"}) }, "negative"},
}

func schemaOf(s string) func() (*grammar.Grammar, error) {
	return func() (*grammar.Grammar, error) { return grammar.ParseSchema([]byte(s)) }
}

// BenchmarkMasks prints what docs/perf/grammar.md shows:
// go test ./runtime/grammar -run '^$' -bench Masks -benchtime 1x -vocab FILE.
func BenchmarkMasks(b *testing.B) {
	tok := realVocabulary(b)
	var v *grammar.Vocabulary
	b.Run("vocabulary", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			v = vocabulary(b, tok)
		}
		b.ReportMetric(float64(v.Len()), "tokens")
	})
	for _, c := range measured {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				measure(b, tok, v, c.make, c.text)
			}
		})
	}
}

// measure times a text and what chance makes, in microseconds a token: the mask and the
// step behind it.
func measure(b *testing.B, tok *tokenizer.Tokenizer, v *grammar.Vocabulary, grammarOf func() (*grammar.Grammar, error), text string) {
	v = vocabulary(b, tok) // that knows nothing of any grammar
	dst := make([]uint32, v.Words())
	start := time.Now()
	g, err := grammarOf()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(time.Since(start).Microseconds())/1000, "read-ms")
	b.ReportMetric(float64(g.States()), "states")
	p := v.Compile(g)
	ids := encoded(b, tok, text)
	report := func(name string, d []time.Duration) {
		slices.Sort(d)
		at := func(q float64) float64 { return float64(d[int(q*float64(len(d)-1))].Nanoseconds()) / 1000 }
		b.ReportMetric(at(0.5), name+"-median")
		b.ReportMetric(at(0.99), name+"-99%")
		b.ReportMetric(at(1), name+"-most")
	}
	report("cold", follow(b, p, dst, ids))
	start = time.Now()
	p.Warm(func() bool { return false })
	b.ReportMetric(float64(time.Since(start).Microseconds())/1000, "warm-ms")
	report("text", follow(b, p, dst, ids))
	chance, places := walk(b, v, p, dst, 5000, 1)
	report("chance", chance)
	report("place", places)
	b.ReportMetric(float64(len(places)), "places")
}

func encoded(t testing.TB, tok *tokenizer.Tokenizer, text string) []int32 {
	t.Helper()
	ids, err := tok.Encode(text, tokenizer.EncodeOptions{NoSpecial: true, NoParseSpecial: true})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// The texts that are measured are legal, token by token, and so is what chance makes.
func TestRealVocabulary(t *testing.T) {
	tok := realVocabulary(t)
	v := vocabulary(t, tok)
	dst := make([]uint32, v.Words())
	for _, c := range measured {
		g, err := c.make()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		p := v.Compile(g)
		follow(t, p, dst, encoded(t, tok, c.text))
		if times, _ := walk(t, v, p, dst, 300, 1); len(times) < 30 {
			t.Errorf("%s: %d tokens by chance", c.name, len(times))
		}
	}
}

// follow times the mask of every token of a text, and the text has to be legal.
func follow(t testing.TB, p *grammar.Compiled, dst []uint32, ids []int32) (times []time.Duration) {
	m := p.NewMatcher()
	for _, id := range ids {
		start := time.Now()
		if err := m.Mask(dst); err != nil {
			t.Fatal(err)
		}
		took := time.Since(start)
		if dst[id>>5]>>(id&31)&1 == 0 {
			t.Fatalf("token %d of the text is not legal", id)
		}
		start = time.Now()
		if err := m.Accept(id); err != nil {
			t.Fatal(err)
		}
		times = append(times, took+time.Since(start))
	}
	if !m.CanEnd() {
		t.Fatal("the text may not end")
	}
	return times
}

// walk times masks of texts by chance, and of each place that it comes to the mask as it
// is found there the first time, the least of three times.
func walk(t testing.TB, v *grammar.Vocabulary, p *grammar.Compiled, dst []uint32, n int, seed uint64) (times, places []time.Duration) {
	r := rand.New(rand.NewPCG(seed, 0))
	m := p.NewMatcher()
	seen, scratch := map[any]bool{}, make([]uint32, len(dst))
	for range n {
		start := time.Now()
		err := m.Mask(dst)
		took := time.Since(start)
		if at := m.Place(); !seen[at] {
			seen[at] = true
			least := time.Hour
			for range 3 {
				start := time.Now()
				m.Fresh(scratch)
				least = min(least, time.Since(start))
			}
			places = append(places, least)
		}
		if err != nil || m.IsDone() {
			m.Reset()
			continue
		}
		var id int32
		for id = int32(r.IntN(v.Len())); dst[id>>5]>>(id&31)&1 == 0; {
			if id++; int(id) == v.Len() {
				id = 0
			}
		}
		start = time.Now()
		if err := m.Accept(id); err != nil {
			t.Fatal(err)
		}
		times = append(times, took+time.Since(start))
	}
	return times, places
}
