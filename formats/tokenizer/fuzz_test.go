package tokenizer

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// exercise runs a tokenizer that came from hostile bytes.
func exercise(t *testing.T, tok *Tokenizer) {
	for _, text := range []string{"", "ab <s> ab", "\xff\u0301 \U0001f600", strings.Repeat("a b", 50)} {
		ids, err := tok.Encode(text, EncodeOptions{})
		if err != nil {
			continue
		}
		for _, id := range ids {
			if id < 0 || int(id) >= tok.VocabSize() {
				t.Fatalf("id %d of %d", id, tok.VocabSize())
			}
		}
		if _, err := tok.Decode(ids, true); err != nil {
			t.Fatal(err)
		}
		s := tok.NewStream(StreamOptions{})
		for _, id := range ids {
			if out := s.Next(id); !utf8.ValidString(out) {
				t.Fatalf("stream gave %q", out)
			}
		}
		s.Flush()
	}
	tok.JSON()
	tok.GGUFVocabulary()
	if tp, err := tok.ChatTemplate(""); err == nil {
		tp.Render(t.Context(), []Message{{Role: "user", Content: "<s>"}}, RenderOptions{})
	}
}

func FuzzFromFiles(f *testing.F) {
	f.Add([]byte(smallJSON), []byte(`{"bos_token": "<s>", "chat_template": "{% for m in messages %}{{ m.content | trim }}{% endfor %}"}`))
	for _, n := range []string{"normed", "added", "metaspace-first", "prefix"} {
		f.Add(mustRead(f, filepath.Join(testdata, "tokenizer", n+".json")), []byte(`{}`))
	}
	f.Fuzz(func(t *testing.T, raw, config []byte) {
		if tok, err := FromFiles("f", Files{JSON: raw, Config: config}); err == nil {
			exercise(t, tok)
		}
	})
}

func FuzzSentencePiece(f *testing.F) {
	for _, n := range []string{"sp-bpe", "sp-unigram-bytes"} {
		f.Add(mustRead(f, filepath.Join(testdata, "tokenizer", n+".model")))
	}
	f.Add([]byte("\x0a\x05\x0a\x01a\x18\x01"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if tok, err := FromFiles("f", Files{Model: raw}); err == nil {
			exercise(t, tok)
		}
	})
}

func FuzzFromGGUF(f *testing.F) {
	f.Add("gpt2", "llama-bpe", "a\x00b\x00ab\x00<s>", "a b", []byte{1, 1, 1, 3}, []byte{}, int32(3), true)
	f.Add("llama", "default", "<unk>\x00<s>\x00</s>\x00a\x00b\x00ab", "", []byte{2, 3, 3, 1, 1, 4}, []byte{0, 0, 0, 0, 9, 9}, int32(1), true)
	f.Add("t5", "default", "<pad>\x00</s>\x00<unk>\x00\u2581\x00a", "", []byte{3, 3, 2, 1, 1}, []byte{8, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 'x', 0}, int32(1), false)
	f.Fuzz(func(t *testing.T, model, pre, tokens, merges string, types, more []byte, bos int32, add bool) {
		list := strings.Split(tokens, "\x00")
		m := map[string]any{ggml + "model": model, ggml + "pre": pre, ggml + "tokens": list, ggml + "bos_token_id": bos,
			ggml + "add_bos_token": add, ggml + "precompiled_charsmap": more, ggml + "remove_extra_whitespaces": add}
		if merges != "" {
			m[ggml+"merges"] = strings.Split(merges, "\x00")
		}
		scores, kinds := make([]float32, len(list)), make([]int32, len(list))
		for i := range list {
			if i < len(more) {
				scores[i] = -float32(more[i])
			}
			if i < len(types) {
				kinds[i] = int32(types[i])
			}
		}
		m[ggml+"scores"], m[ggml+"token_type"] = scores, kinds
		if tok, err := fromMap("f", m); err == nil {
			exercise(t, tok)
		}
	})
}

// FuzzEncode feeds any bytes to tokenizers of every kind and holds them to
// their promises: no panic, byte-level round trips, streams like Decode.
func FuzzEncode(f *testing.F) {
	var toks []*Tokenizer
	for _, n := range []string{"llama3", "deepseek", "llama2", "gemma", "unigram", "unigram-bytes", "added", "normed", "metaspace-first"} {
		toks = append(toks, fromCase(f, n))
	}
	for _, s := range caseTexts(f) {
		f.Add(s, uint8(0))
	}
	f.Add("\xf0\x9f\x98", uint8(3))
	f.Fuzz(func(t *testing.T, text string, which uint8) {
		tok := toks[int(which)%len(toks)]
		ids, err := tok.Encode(text, EncodeOptions{NoParseSpecial: true})
		if err != nil {
			t.Fatal(err)
		}
		if int(which)%len(toks) < 2 {
			if got, _ := tok.Decode(ids, true); got != string([]rune(text)) {
				t.Fatalf("%q came back as %q", text, got)
			}
		}
		for _, skip := range []bool{false, true} {
			s := tok.NewStream(StreamOptions{SkipSpecial: skip})
			var b strings.Builder
			for _, id := range ids {
				b.WriteString(s.Next(id))
			}
			b.WriteString(s.Flush())
			if want, _ := tok.Decode(ids, skip); b.String() != want {
				t.Fatalf("stream %q, Decode %q", b.String(), want)
			}
		}
	})
}
