package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
)

// metadata writes a vocabulary as the keys that a GGUF export has.
func metadata(v *Vocabulary) map[string]any {
	m := map[string]any{ggml + "model": v.Model, ggml + "pre": v.Pre, ggml + "tokens": v.Tokens, ggml + "token_type": v.Types,
		ggml + "add_bos_token": v.AddBOS, ggml + "add_eos_token": v.AddEOS, ggml + "add_space_prefix": v.AddSpacePrefix}
	if v.Merges != nil {
		m[ggml+"merges"] = v.Merges
	}
	if v.Model != "gpt2" {
		m[ggml+"scores"] = v.Scores
		m[ggml+"remove_extra_whitespaces"] = v.RemoveExtraWhitespaces
		m[ggml+"treat_whitespace_as_suffix"] = v.TreatWhitespaceAsSuffix
	}
	if v.PrecompiledCharsmap != nil {
		m[ggml+"precompiled_charsmap"] = v.PrecompiledCharsmap
	}
	for k, id := range map[string]int32{"bos_token_id": v.BOS, "eos_token_id": v.EOS, "unknown_token_id": v.UNK, "padding_token_id": v.PAD} {
		if id >= 0 {
			m[ggml+k] = uint32(id)
		}
	}
	if s, ok := v.Templates["default"]; ok {
		m["tokenizer.chat_template"] = s
	}
	return m
}

func fromMap(name string, m map[string]any) (*Tokenizer, error) {
	return FromGGUF(name, metadataFunc(func(k string) (any, bool) { v, ok := m[k]; return v, ok }))
}

func TestExportedVocabulariesEncodeAlike(t *testing.T) {
	texts := caseTexts(t)
	config := []byte(`{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}`)
	for name, pre := range map[string]string{"gpt2": "gpt-2", "llama3": "llama-bpe", "starcoder": "starcoder", "falcon": "falcon",
		"deepseek": "deepseek-coder", "bloom": "poro-chat", "sp-bpe": "default", "sp-unigram": "default"} {
		f := Files{Config: config}
		if strings.HasPrefix(name, "sp-") {
			f.Model = mustRead(t, filepath.Join(testdata, "tokenizer", name+".model"))
		} else {
			f.JSON = mustRead(t, filepath.Join(testdata, "tokenizer", name+".json"))
		}
		tok, err := FromFiles(name, f)
		if err != nil {
			t.Fatal(err)
		}
		v, err := tok.GGUFVocabulary()
		if err != nil {
			t.Fatal(err)
		}
		if v.Pre != pre || v.Approximate != "" {
			t.Errorf("%s: pre %q, approximate %q", name, v.Pre, v.Approximate)
		}
		again, err := fromMap(name+" exported", metadata(v))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			if strings.HasPrefix(name, "sp-") && strings.Contains(text, "foo") || strings.Contains(text, "<ext1>") {
				continue // llama.cpp splits user-defined tokens off first
			}
			a, err := tok.Encode(text, EncodeOptions{})
			b, err2 := again.Encode(text, EncodeOptions{})
			if err != nil || err2 != nil || !slices.Equal(a, b) {
				t.Errorf("%s %q: %v, %v\n %v\n %v", name, text, err, err2, a, b)
			}
		}
	}
}

func TestExportRefuses(t *testing.T) {
	for _, name := range []string{"cl100k", "roberta", "kimi", "added", "normed", "nounk", "unigram-bytes", "words"} {
		tok := fromCase(t, name)
		_, err := tok.GGUFVocabulary()
		var u *formats.UnsupportedError
		if !errors.As(err, &u) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The normalizer that llama.cpp leaves out is told, not refused.
	v, err := fromCase(t, "qwen2").GGUFVocabulary()
	if err != nil || v.Pre != "qwen2" || !strings.Contains(v.Approximate, "NFC") {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestExportAgainstConverter compares with what a llama.cpp converter wrote.
func TestExportAgainstConverter(t *testing.T) {
	for _, m := range []string{"tiny-llama", "tiny-qwen3"} {
		want, err := openGGUF(t, shared(t, "models", m+"-bf16.gguf")).GGUFVocabulary()
		if err != nil {
			t.Fatal(err)
		}
		got, err := openDir(t, shared(t, "models", m), nil).GGUFVocabulary()
		if err != nil {
			t.Fatal(err)
		}
		if got.Model != want.Model || got.Pre != want.Pre || !slices.Equal(got.Tokens, want.Tokens) || !slices.Equal(got.Types, want.Types) ||
			!slices.Equal(got.Merges, want.Merges) || got.BOS != want.BOS || got.EOS != want.EOS || got.AddBOS != want.AddBOS ||
			len(want.Templates) > 0 && !maps.Equal(got.Templates, want.Templates) {
			t.Errorf("%s: %s %s bos %d eos %d addbos %v, want %s %s %d %d %v; tokens %v types %v merges %v template %v", m, got.Model, got.Pre, got.BOS, got.EOS, got.AddBOS,
				want.Model, want.Pre, want.BOS, want.EOS, want.AddBOS, slices.Equal(got.Tokens, want.Tokens), slices.Equal(got.Types, want.Types),
				slices.Equal(got.Merges, want.Merges), maps.Equal(got.Templates, want.Templates))
		}
	}
}

func TestPreTable(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range preTable {
		for _, n := range e.names {
			if seen[n] {
				t.Errorf("%q twice", n)
			}
			seen[n] = true
		}
		for _, list := range append([][]string{e.patterns}, e.also...) {
			for _, p := range list {
				if p == punctuationRun {
					continue
				}
				s, err := compile(p)
				if err != nil {
					t.Errorf("%q: %v", e.names[0], err)
				} else if s.re.MatchTimeout == regexTimeout {
					t.Errorf("%q is not known", p)
				}
			}
		}
	}
	if _, ok := preByName("no such"); ok {
		t.Error("an unknown name was found")
	}
}

func TestGGUFMalformed(t *testing.T) {
	base := func() map[string]any {
		return map[string]any{ggml + "model": "llama", ggml + "tokens": []string{"<unk>", "<s>", "</s>", "a", "b", "ab"},
			ggml + "scores": []float32{0, 0, 0, -1, -2, -3}, ggml + "token_type": []int32{2, 3, 3, 1, 1, 1}}
	}
	if _, err := fromMap("base", base()); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		key         string
		value       any
		unsupported bool
	}{
		"no tokens":         {"tokens", nil, false},
		"no model":          {"model", nil, false},
		"unknown model":     {"model", "rwkv", true},
		"tokens not string": {"tokens", []int32{1}, false},
		"scores missing":    {"scores", nil, false},
		"scores short":      {"scores", []float32{1}, false},
		"types short":       {"token_type", []int32{1}, false},
		"types of string":   {"token_type", "x", false},
		"bos outside":       {"bos_token_id", uint32(6), false},
		"bos a string":      {"bos_token_id", "1", false},
		"add_bos a number":  {"add_bos_token", 1, false},
		"not UTF-8":         {"tokens", []string{"<unk>", "<s>", "</s>", "a", "b", "\xff"}, false},
		"score not number":  {"scores", []float32{0, 0, 0, float32(nan()), 0, 0}, false},
	} {
		m := base()
		if c.value == nil {
			delete(m, ggml+c.key)
		} else {
			m[ggml+c.key] = c.value
		}
		_, err := fromMap("f.gguf", m)
		checkError(t, what, err, c.unsupported)
	}
	gpt2 := func() map[string]any {
		return map[string]any{ggml + "model": "gpt2", ggml + "pre": "gpt-2", ggml + "tokens": []string{"a", "b", "ab"}, ggml + "merges": []string{"a b"}}
	}
	for what, c := range map[string]struct {
		key         string
		value       any
		unsupported bool
	}{
		"unknown pre":   {"pre", "kimi-k2", true},
		"one piece":     {"merges", []string{"ab"}, false},
		"empty merge":   {"merges", []string{""}, false},
		"unknown piece": {"merges", []string{"a c"}, false},
		"no result":     {"merges", []string{"b a"}, false},
		"duplicate":     {"tokens", []string{"a", "a", "b"}, false},
		"bos unknown":   {"add_bos_token", true, false},
		"space prefix":  {"add_space_prefix", true, true},
	} {
		m := gpt2()
		m[ggml+c.key] = c.value
		_, err := fromMap("f.gguf", m)
		checkError(t, what, err, c.unsupported)
	}
	if _, err := fromMap("gpt2", gpt2()); err != nil {
		t.Fatal(err)
	}
}

func checkError(t *testing.T, what string, err error, unsupported bool) {
	t.Helper()
	var f *formats.FormatError
	var u *formats.UnsupportedError
	if unsupported && !errors.As(err, &u) || !unsupported && !errors.As(err, &f) {
		t.Errorf("%s: %T %v", what, err, err)
	}
}

// A tokenizer.json as Gemma 4's, whose merges no scores can say, becomes a vocabulary of
// that kind, which encodes alike, ends at turns, and shows calls of tools.
func TestGemma4Vocabulary(t *testing.T) {
	vocab, added := map[string]int{}, []map[string]any{}
	for i, s := range []string{"<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", "<|tool_call>"} {
		vocab[s] = i
		added = append(added, map[string]any{"id": i, "content": s, "special": true, "normalized": false, "single_word": false, "lstrip": false, "rstrip": false})
	}
	for b := range 256 {
		vocab[fmt.Sprintf("<0x%02X>", b)] = len(vocab)
	}
	for _, s := range []string{"\n", "\n\n", "▁", "a", "b", "c", "ab", "bc", "abc", "▁a", "▁▁"} {
		vocab[s] = len(vocab)
	}
	p, err := json.Marshal(map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added,
		"normalizer":    map[string]any{"type": "Replace", "pattern": map[string]any{"String": " "}, "content": "▁"},
		"pre_tokenizer": map[string]any{"type": "Split", "pattern": map[string]any{"String": " "}, "behavior": "MergedWithPrevious", "invert": false},
		"post_processor": map[string]any{"type": "TemplateProcessing",
			"single":         []any{map[string]any{"SpecialToken": map[string]any{"id": "<bos>", "type_id": 0}}, map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}}},
			"pair":           []any{map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}}, map[string]any{"Sequence": map[string]any{"id": "B", "type_id": 1}}},
			"special_tokens": map[string]any{"<bos>": map[string]any{"id": "<bos>", "ids": []int{2}, "tokens": []string{"<bos>"}}}},
		"decoder": map[string]any{"type": "Sequence", "decoders": []any{map[string]any{"type": "Replace", "pattern": map[string]any{"String": "▁"}, "content": " "},
			map[string]any{"type": "ByteFallback"}, map[string]any{"type": "Fuse"}}},
		"model": map[string]any{"type": "BPE", "dropout": nil, "unk_token": "<unk>", "continuing_subword_prefix": nil, "end_of_word_suffix": nil, "fuse_unk": true,
			"byte_fallback": true, "ignore_merges": false, "vocab": vocab, "merges": [][2]string{{"\n", "\n"}, {"▁", "▁"}, {"b", "c"}, {"a", "b"}, {"ab", "c"}, {"▁", "a"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := FromFiles("gemma4", Files{JSON: p, Config: []byte(`{"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"}`)})
	if err != nil {
		t.Fatal(err)
	}
	v, err := tok.GGUFVocabulary()
	if err != nil || v.Model != "gemma4" || v.Approximate != "" || !v.AddBOS || v.Types[6] != TypeUserDefined || v.Types[5] != TypeControl {
		t.Fatalf("%+v, %v", v, err)
	}
	m := metadata(v)
	m[ggml+"add_bos_token"] = false // which counts for nothing
	again, err := fromMap("again", m)
	if err != nil {
		t.Fatal(err)
	}
	if stops := again.Stops(); !slices.Equal(stops, []int32{1, 5}) {
		t.Errorf("stops at %v", stops)
	}
	for _, text := range []string{"", "abc", "a b  abc\n\n\nc", "é▁ab", "<|turn>abc<turn|>\n", "x<|tool_call>bc"} {
		a, err := tok.Encode(text, EncodeOptions{})
		b, err2 := again.Encode(text, EncodeOptions{})
		if err != nil || err2 != nil || !slices.Equal(a, b) || a[0] != 2 {
			t.Errorf("%q: %v, %v\n %v\n %v", text, err, err2, a, b)
		}
	}
	m[ggml+"add_space_prefix"] = true
	if _, err := fromMap("spaced", m); err == nil {
		t.Error("a space in front is read")
	}
}

// metadataFunc is a function as a Metadata.
type metadataFunc func(key string) (any, bool)

func (f metadataFunc) Get(key string) (any, bool) { return f(key) }
