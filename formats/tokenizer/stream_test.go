package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// TestStreamOfAnything streams random ids: never half a sequence, and for
// byte-level vocabularies exactly what Decode gives.
func TestStreamOfAnything(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"gpt2", "llama3", "llama2", "gemma", "unigram-bytes", "metaspace-first", "nounk"} {
		tok := fromCase(t, name)
		exact := strings.HasPrefix(name, "gpt2") || name == "llama3" || name == "metaspace-first"
		for range 300 {
			ids := make([]int32, rng.IntN(40))
			for i := range ids {
				ids[i] = int32(rng.IntN(tok.VocabSize() + 3))
			}
			s := tok.NewStream(StreamOptions{SkipSpecial: true})
			var b strings.Builder
			for _, id := range ids {
				out := s.Next(id)
				if !utf8.ValidString(out) {
					t.Fatalf("%s: %q", name, out)
				}
				b.WriteString(out)
			}
			b.WriteString(s.Flush())
			if s.Flush() != "" {
				t.Fatalf("%s: a second Flush had more", name)
			}
			if want, _ := tok.Decode(ids, true); exact && b.String() != want {
				t.Fatalf("%s: %v\n got %q\nwant %q", name, ids, b.String(), want)
			}
		}
	}
}

func TestStreamHoldsBackHalves(t *testing.T) {
	tok := fromCase(t, "gpt2")
	ids, err := tok.Encode("\U0001f642!", EncodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := tok.NewStream(StreamOptions{})
	var got []string
	for _, id := range ids {
		got = append(got, s.Next(id))
	}
	if want := []string{"", "", "", "\U0001f642", "!"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	s = tok.NewStream(StreamOptions{})
	if s.Next(ids[0]) != "" || s.Flush() != "\ufffd" || s.Next(ids[4]) != "!" {
		t.Error("Flush of a half")
	}
}

// TestStreamContext: behind a prompt the first word keeps its space, which it
// loses at the start of a text.
func TestStreamContext(t *testing.T) {
	tok := vocabulary(t, "phi-3")
	prompt, _ := tok.Encode("Hello", EncodeOptions{})
	all, _ := tok.Encode("Hello world again", EncodeOptions{})
	rest := all[len(prompt):]
	for _, c := range []struct {
		context []int32
		want    string
	}{{nil, "world again"}, {prompt, " world again"}, {prompt[:1], "world again"}} {
		s := tok.NewStream(StreamOptions{SkipSpecial: true, Context: c.context})
		got := ""
		for _, id := range rest {
			got += s.Next(id)
		}
		if got += s.Flush(); got != c.want {
			t.Errorf("behind %v: %q, want %q", c.context, got, c.want)
		}
	}
}

// TestConcurrentUse: goroutines that share a tokenizer, its cache too small
// for their words, get what one alone gets.
func TestConcurrentUse(t *testing.T) {
	tok := fromCase(t, "llama3")
	var texts []string
	var want [][]int32
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		b := make([]byte, 40)
		for i := range b {
			b[i] = "abcdefgh  "[rng.IntN(10)]
		}
		ids, err := fromIDs(tok.Encode(string(b), EncodeOptions{}))
		if err != nil {
			t.Fatal(err)
		}
		texts, want = append(texts, string(b)), append(want, ids)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i, s := range texts {
				if got, err := tok.Encode(s, EncodeOptions{}); err != nil || !slices.Equal(got, want[i]) {
					t.Errorf("%q: %v %v", s, got, err)
				}
			}
		})
	}
	wg.Wait()
}

// fromIDs keeps a result from being changed by a later one.
func fromIDs(ids []int32, err error) ([]int32, error) { return slices.Clone(ids), err }

func TestPiecesAndBytes(t *testing.T) {
	tok := vocabulary(t, "phi-3")
	for piece, bytes := range map[string]string{"▁world": " world", "<0x0A>": "\n", "ing": "ing"} {
		id, ok := tok.ID(piece)
		if !ok || string(tok.TokenBytes(id)) != bytes {
			t.Errorf("%q: %d %v %q", piece, id, ok, tok.TokenBytes(id))
		}
	}
	if _, ok := tok.Piece(int32(tok.VocabSize())); ok || tok.TokenBytes(-1) != nil {
		t.Error("a piece beyond the vocabulary")
	}
	if _, err := tok.Decode([]int32{-1}, false); err == nil {
		t.Error("a negative id was decoded")
	}
}

func TestInvalidUTF8(t *testing.T) {
	tok := fromCase(t, "gpt2")
	a, err := tok.Encode("a\xffb\xe4\xbdc", EncodeOptions{})
	b, err2 := tok.Encode("a\ufffdb\ufffd\ufffdc", EncodeOptions{})
	if err != nil || err2 != nil || !slices.Equal(a, b) {
		t.Errorf("%v %v %v %v", a, b, err, err2)
	}
	// Spans of plain text stay on their bytes when these change.
	golden := goldenTokenizer(t, "")
	text := "\xff<|im_end|>\xff<|im_end|>"
	ids, err := golden.EncodeRendered(Rendered{Text: text, Plain: []Span{{12, len(text)}}})
	if err != nil {
		t.Fatal(err)
	}
	special := 0
	for i, id := range ids {
		if golden.IsSpecial(id) {
			special++
			if i != 3 {
				t.Errorf("the special token is at %d", i)
			}
		}
	}
	if special != 1 {
		t.Errorf("%d special tokens", special)
	}
}
