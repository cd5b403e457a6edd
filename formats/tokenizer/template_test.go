package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type goldens struct {
	Contexts map[string]json.RawMessage
	Cases    []struct {
		Template, Context string
		Text              *string
		Error             *string
	}
}

// the special tokens of the tokenizer that renders the goldens
var goldenSpecials = []string{"<s>", "</s>", "<unk>", "<pad>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "[INST]", "[/INST]",
	"<start_of_turn>", "<end_of_turn>", "<|start_header_id|>", "<|end_header_id|>"}

// goldenTokenizer is a byte-level tokenizer with those special tokens.
func goldenTokenizer(t testing.TB, template string) *Tokenizer {
	var pieces []string
	for _, r := range byteRunes {
		pieces = append(pieces, string(r))
	}
	tokens := []addedToken{}
	for i, s := range goldenSpecials {
		tokens = append(tokens, addedToken{ID: int32(256 + i), Content: s, Special: true})
	}
	s := byteLevelStages([]string{llama3Pattern})
	raw := mustJSON(tokenizerJSON{AddedTokens: tokens, PreTokenizer: s.PreTokenizer, Decoder: s.Decoder, Model: bpeJSON(pieces, nil, "", bpeOptions{}, false)})
	tok, err := FromFiles("golden", Files{JSON: raw, ChatTemplate: []byte(template),
		Config: []byte(`{"bos_token":"<s>","eos_token":{"content":"</s>"},"unk_token":"<unk>","pad_token":"<pad>"}`)})
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func goldenContext(t testing.TB, raw json.RawMessage) ([]Message, RenderOptions) {
	var c struct {
		Messages            json.RawMessage
		Tools               []json.RawMessage
		AddGenerationPrompt bool            `json:"add_generation_prompt"`
		EnableThinking      json.RawMessage `json:"enable_thinking"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	m, err := ParseMessages(c.Messages)
	if err != nil {
		t.Fatal(err)
	}
	o := RenderOptions{Tools: c.Tools, AddGenerationPrompt: c.AddGenerationPrompt, Now: time.Date(2026, 3, 7, 14, 5, 9, 0, time.UTC)}
	if c.EnableThinking != nil {
		o.Extra = map[string]json.RawMessage{"enable_thinking": c.EnableThinking}
	}
	return m, o
}

// checkTemplates renders a folder's templates and compares with what Python's
// jinja2 made of them; it returns how many cases agreed, of how many.
func checkTemplates(t *testing.T, dir string, known map[string]bool) (agree, all int) {
	var g goldens
	if err := json.Unmarshal(mustRead(t, filepath.Join(dir, "goldens.json")), &g); err != nil {
		t.Fatal(err)
	}
	for _, c := range g.Cases {
		tok := goldenTokenizer(t, string(mustRead(t, filepath.Join(dir, c.Template))))
		m, o := goldenContext(t, g.Contexts[c.Context])
		what := c.Template + "/" + c.Context
		var r Rendered
		tp, err := tok.ChatTemplate()
		if err == nil {
			r, err = tp.Render(m, o)
		}
		if c.Text == nil {
			continue // the library is lenient: see TestTemplateRefuses
		}
		all++
		if err != nil || r.Text != *c.Text {
			if !known[what] {
				t.Errorf("%s: exact %v, %v\n got %q\nwant %q", what, r.Exact, err, r.Text, *c.Text)
			}
			continue
		}
		agree++
		checkPlain(t, tok, what, r, c.Context == "nasty")
	}
	if all == 0 {
		t.Fatal("no cases")
	}
	return agree, all
}

// checkPlain holds a rendering to its promise: the text is what its ids say,
// and the special tokens among them are no more than the template writes when
// the messages spell none.
func checkPlain(t *testing.T, tok *Tokenizer, what string, r Rendered, nasty bool) {
	ids, err := tok.EncodeRendered(r)
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := tok.Decode(ids, false); text != r.Text {
		t.Errorf("%s: decoded to %q", what, text)
	}
	if !nasty {
		return
	}
	text := 0
	for _, id := range ids {
		if tok.IsSpecial(id) {
			s, _ := tok.Piece(id)
			text += strings.Count(s, "im_start")
		}
	}
	if spelled := strings.Count(r.Text, "<|im_start|>"); text > spelled-2 {
		t.Errorf("%s: %d of %d <|im_start|> are special, two are a user's", what, text, spelled)
	}
}

func TestForeignTemplates(t *testing.T) {
	dir := os.Getenv("TPLDIR")
	if dir == "" {
		t.Skip()
	}
	a, n := checkTemplates(t, dir, nil)
	t.Logf("%d of %d", a, n)
}
