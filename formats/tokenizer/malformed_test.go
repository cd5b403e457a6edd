package tokenizer

import (
	"strings"
	"testing"
)

const smallJSON = `{"version":"1.0","added_tokens":[{"id":3,"content":"<s>","special":true}],"normalizer":null,
"pre_tokenizer":{"type":"Split","pattern":{"String":" "},"behavior":"Isolated","invert":false},
"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[3],"tokens":["<s>"]}}},
"decoder":{"type":"Fuse"},
"model":{"type":"BPE","dropout":null,"unk_token":null,"vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}`

func TestMalformedJSON(t *testing.T) {
	if _, err := FromFiles("small", Files{JSON: []byte(smallJSON)}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		old, new    string
		unsupported bool
	}{
		{`"1.0"`, `"2.0"`, true},
		{`{"version"`, `{version`, false},
		{`"ab":2`, `"ab":1`, false},
		{`"ab":2`, `"ab":-2`, false},
		{`"ab":2`, `"ab":2000000000`, false},
		{`"ab":2`, `"ab":99999999999`, false},
		{`["a b"]`, `["ab"]`, false},
		{`["a b"]`, `["a b c"]`, false},
		{`["a b"]`, `[["a","b","c"]]`, false},
		{`["a b"]`, `[["a","c"]]`, false},
		{`["a b"]`, `["b a"]`, false},
		{`["a b"]`, `7`, false},
		{`"merges"`, `"mergers"`, true},
		{`"merges":["a b"]`, `"fuse_unk":true`, false},
		{`"dropout":null`, `"dropout":0.1`, true},
		{`"unk_token":null`, `"unk_token":"z"`, false},
		{`"type":"BPE"`, `"type":"WordPiece"`, true},
		{`"type":"Fuse"`, `"type":"CTC"`, true},
		{`"type":"Fuse"`, `"typ":"Fuse"`, false},
		{`"type":"Fuse"`, `"type":"Fuse","more":1`, true},
		{`"type":"Split"`, `"type":"UnicodeScripts"`, true},
		{`"Isolated"`, `"isolated"`, true},
		{`{"String":" "}`, `{}`, false},
		{`{"String":" "}`, `{"Regex":"(?m:x)"}`, true},
		{`{"String":" "}`, `{"Regex":"[["}`, true},
		{`,"invert":false`, ``, false},
		{`"normalizer":null`, `"normalizer":{"type":"Odd"}`, true},
		{`"normalizer":null`, `"normalizer":{"type":"Strip"}`, false},
		{`"normalizer":null`, `"normalizer":{"type":"Precompiled","precompiled_charsmap":"AAAA"}`, false},
		{`"normalizer":null`, `"normalizer":{"type":"Precompiled","precompiled_charsmap":"/////wAA"}`, false},
		{`"normalizer":null`, `"normalizer":7`, false},
		{`"ids":[3]`, `"ids":[4]`, false},
		{`"ids":[3]`, `"ids":[-1]`, false},
		{`{"Sequence":{"id":"A","type_id":0}}`, `{"Sequence":{"id":"B","type_id":0}}`, true},
		{`{"SpecialToken":{"id":"<s>","type_id":0}}`, `{"SpecialToken":{"id":"<x>","type_id":0}}`, false},
		{`"id":3,"content"`, `"id":9,"content"`, false},
		{`"content":"<s>"`, `"content":"ab"`, false},
	} {
		bad := strings.Replace(smallJSON, c.old, c.new, 1)
		if bad == smallJSON {
			t.Fatalf("%q is not in the file", c.old)
		}
		_, err := FromFiles("small", Files{JSON: []byte(bad)})
		checkError(t, c.old+" -> "+c.new, err, c.unsupported)
		if err != nil && !strings.HasPrefix(err.Error(), "small: ") {
			t.Errorf("%q does not name the file", err)
		}
	}
	for i := range smallJSON {
		_, err := FromFiles("cut", Files{JSON: []byte(smallJSON[:i])})
		checkError(t, "cut", err, false)
	}
	for what, f := range map[string]Files{
		"nothing":    {},
		"config":     {JSON: []byte(smallJSON), Config: []byte(`[`)},
		"special":    {JSON: []byte(smallJSON), Special: []byte(`7`)},
		"bos":        {JSON: []byte(smallJSON), Config: []byte(`{"bos_token": 7}`)},
		"template":   {JSON: []byte(smallJSON), Config: []byte(`{"chat_template": 7}`)},
		"templates":  {JSON: []byte(smallJSON), Config: []byte(`{"chat_template": ["x"]}`)},
		"nameless":   {JSON: []byte(smallJSON), Config: []byte(`{"chat_template": [{"template": "x"}]}`)},
		"generation": {JSON: []byte(smallJSON), Generation: []byte(`{"eos_token_id": "x"}`)},
		"model":      {Model: []byte("\x0a\xff")},
		"empty":      {Model: []byte{}},
	} {
		_, err := FromFiles("f", f)
		checkError(t, what, err, false)
	}
}

func TestRolesOfTokens(t *testing.T) {
	tok, err := FromFiles("roles", Files{JSON: []byte(smallJSON), Config: []byte(`{"eos_token": {"content": "ab"}}`),
		ConfigJSON: []byte(`{"text_config": {"bos_token_id": 3, "eos_token_id": [1, 2]}}`), Generation: []byte(`{"eos_token_id": [0, 2]}`)})
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := tok.BOS(); id != 3 || !ok {
		t.Errorf("BOS %d %v", id, ok)
	}
	if id, ok := tok.EOS(); id != 2 || !ok || !tok.IsSpecial(2) {
		t.Errorf("EOS %d %v", id, ok)
	}
	if s := tok.Stops(); len(s) != 3 || s[0] != 2 {
		t.Errorf("stops %v", s)
	}
	if _, ok := tok.PAD(); ok {
		t.Error("PAD")
	}
	if !tok.AddsBOS() || tok.AddsEOS() || tok.VocabSize() != 4 {
		t.Error("post-processor")
	}
	llama, err := FromFiles("llama", Files{JSON: []byte(smallJSON), Config: []byte(`{"tokenizer_class": "LlamaTokenizerFast",
		"add_bos_token": false, "add_eos_token": true, "bos_token": "<s>", "eos_token": "b"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if llama.AddsBOS() || !llama.AddsEOS() {
		t.Error("add_bos_token and add_eos_token do not count")
	}
}
