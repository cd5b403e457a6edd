package tokenizer

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// prose is the text of novels that the cases were made from, and their odd
// texts, repeated to about 3.2 MB.
func prose(tb testing.TB) string {
	var b strings.Builder
	for _, l := range strings.Split(string(read(filepath.Join(sharedOrEmpty(), "text", "calib.jsonl"))), "\n") {
		var d struct{ Text string }
		if json.Unmarshal([]byte(l), &d) == nil {
			b.WriteString(d.Text)
		}
	}
	s := b.String()
	if s == "" {
		s = strings.Join(caseTexts(tb), "\n")
	}
	return strings.Repeat(s, 1+(3_200_000-1)/len(s))[:3_200_000]
}

func BenchmarkEncode(b *testing.B) {
	text := prose(b)
	for _, name := range []string{"gpt-2", "phi-3"} {
		tok := vocabulary(b, name)
		b.Run(name, func(b *testing.B) { benchEncode(b, tok, text) })
	}
	for _, name := range []string{"llama3", "qwen2", "kimi", "deepseek", "unigram", "gemma"} {
		tok := fromCase(b, name)
		b.Run(name, func(b *testing.B) { benchEncode(b, tok, text) })
	}
}

func benchEncode(b *testing.B, tok *Tokenizer, text string) {
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tok.Encode(text, EncodeOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	raw := mustRead(b, filepath.Join(testdata, "tokenizer", "unigram.json"))
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, err := FromFiles("unigram", Files{JSON: raw}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestLongWord: a text without a place to split takes n log n, not n squared.
// The bound is loose, for slow machines; a quadratic merge takes minutes.
func TestLongWord(t *testing.T) {
	for _, name := range []string{"gpt2", "llama3", "llama2", "unigram", "deepseek", "kimi"} {
		tok := fromCase(t, name)
		for _, unit := range []string{"a", " ", "\n", "é", "1", "!", "▁", "ab1 ", strings.Repeat(" ", 1000) + "1"} {
			start := time.Now()
			n := 1_000_000 / len(unit)
			if unit != "a" || name == "kimi" || name == "deepseek" {
				n /= 30
			}
			ids, err := tok.Encode(strings.Repeat(unit, n), EncodeOptions{})
			if err != nil || len(ids) == 0 && unit != " " {
				t.Errorf("%s: %d ids of %q, %v", name, len(ids), unit, err)
			}
			if d := time.Since(start); d > time.Minute {
				t.Errorf("%s: %d of %q took %v", name, n, unit, d)
			}
		}
	}
}
