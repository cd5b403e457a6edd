package serve

import (
	"encoding/json"
	"net/http"

	"github.com/nstf/nstf/formats/tokenizer"
)

// Filling in what stands between two texts, as editors ask: suffix of completions and of
// Ollama's generate, and llama.cpp's /infill.
// Sources: https://arxiv.org/abs/2207.14255 (prefix, suffix, middle), section 3.2 of
// https://arxiv.org/abs/2409.12186 (repositories), tools/server/README.md of llama.cpp
// (POST /infill), read 2026-11.

// fillTokens are the tokens that models know for it: in front of the prefix, the suffix
// and the middle, of a repository's name and of a file's; "" for none.
var fillTokens = [][5]string{
	{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"}, // Qwen2.5-Coder and later, CodeGemma, Granite 4
	{"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>"},           // StarCoder, Granite
	{"<fim-prefix>", "<fim-suffix>", "<fim-middle>", "", ""},                                // SantaCoder
	{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", "", ""},                                // DeepSeek-Coder
	{"▁<PRE>", "▁<SUF>", "▁<MID>", "", ""},                                                  // Code Llama
	{"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", "", ""},                       // GLM-4.5
}

// A gap is what is to be filled in.
type gap struct {
	prefix, suffix string
	begun          string // of the middle's text
	files          []gapFile
	// cut has the texts cut to what the context holds beside what is to be answered.
	cut bool
}

// A gapFile is what else lies in the repository.
type gapFile struct {
	Text string `json:"text"`
	Name string `json:"filename"`
}

// usualMiddle is what a middle takes of the context that says no more.
const usualMiddle = 256

// fill returns the turn that fills in a gap; param is the field that asks for it.
func (m *Model) fill(g *gap, param string, o settings) (*turn, error) {
	var known [5]int32
	found := false
	for _, names := range fillTokens {
		found = true
		for i, name := range names {
			id, ok := int32(-1), false
			if name != "" {
				id, ok = m.Tokenizer.ID(name)
			}
			if known[i] = id; !ok {
				known[i], found = -1, found && i > 2
			}
		}
		if found {
			break
		}
	}
	if !found {
		return nil, invalid(param, "this model fills in no texts: its vocabulary has no tokens for prefix, suffix and middle")
	}
	var err error
	plain := func(text string) []int32 {
		ids, e := m.Tokenizer.Encode(text, tokenizer.EncodeOptions{NoSpecial: true, NoParseSpecial: true})
		if e != nil {
			err = e
		}
		return ids
	}
	prefix, suffix, begun := plain(g.prefix), plain(g.suffix), plain(g.begun)
	repository, file := known[3], known[4]
	var files [][2][]int32 // what begins each, and its text
	for _, f := range g.files {
		if file >= 0 {
			files = append(files, [2][]int32{append([]int32{file}, plain(f.Name+"\n")...), plain(f.Text)})
		} else {
			files = append(files, [2][]int32{nil, plain(f.Text + "\n\n")})
		}
	}
	var first, own []int32 // of the repository, and of the file that has the gap: nobody says what they are called
	if len(files) > 0 && repository >= 0 {
		first = append([]int32{repository}, plain("repository\n")...)
	}
	if len(files) > 0 && file >= 0 {
		own = append([]int32{file}, plain("file\n")...)
	}
	if err != nil {
		return nil, err
	}
	if g.cut {
		answer := o.maxTokens
		if answer == 0 {
			answer = usualMiddle
		}
		room := max(16, int(m.Context)-answer-len(begun)-8)
		// A name that leaves too little goes.
		if room < 4*(len(first)+len(own)) {
			first, own, files = nil, nil, nil
		}
		room -= len(first) + len(own)
		// A quarter is the suffix's, what either leaves the other's and then the files'.
		n := min(len(suffix), max(room/4, room-len(prefix)))
		suffix = suffix[:n]
		prefix = prefix[max(0, len(prefix)-(room-n)):]
		if files = latest(files, room-n-len(prefix)); files == nil {
			first, own = nil, nil
		}
	}
	var ids []int32
	if bos, ok := m.Tokenizer.BOS(); ok && m.Tokenizer.AddsBOS() {
		ids = append(ids, bos)
	}
	ids = append(ids, first...)
	for _, f := range files {
		ids = append(append(ids, f[0]...), f[1]...)
	}
	ids = append(append(ids, own...), known[0])
	ids = append(append(ids, prefix...), known[1])
	ids = append(append(ids, suffix...), known[2])
	t, err := m.completes(append(ids, begun...), o)
	if err != nil {
		return nil, err
	}
	for _, id := range known { // where a model goes on with another file, the middle is over
		if id >= 0 {
			t.ends = append(t.ends, id)
		}
	}
	if pad, ok := m.Tokenizer.ID("<|fim_pad|>"); ok {
		t.ends = append(t.ends, pad)
	}
	return t, nil
}

// latest returns as many of the last files as so many tokens hold, the first of these without its beginning where
// it is too long, but with its name.
func latest(files [][2][]int32, room int) [][2][]int32 {
	for i := len(files) - 1; i >= 0; i-- {
		head, text := files[i][0], files[i][1]
		if room -= len(head) + len(text); room >= 0 {
			continue
		}
		if left := len(text) + room; left > 0 {
			return append([][2][]int32{{head, text[len(text)-left:]}}, files[i+1:]...)
		}
		if i++; i == len(files) {
			return nil
		}
		return files[i:]
	}
	return files
}

// fill returns the turn of a completion with a suffix.
func (q *completionRequest) fill(m *Model, o settings) ([]*turn, error) {
	var prefix string
	if json.Unmarshal(q.Prompt, &prefix) != nil {
		return nil, invalid("prompt", "with a suffix, the prompt is one text")
	}
	t, err := m.fill(&gap{prefix: prefix, suffix: q.Suffix}, "suffix", o)
	return []*turn{t}, err
}

// infill is llama.cpp's path: of the texts as much as the context holds.
func (s *Server) infill(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		nativeRequest
		Prefix string    `json:"input_prefix"`
		Suffix string    `json:"input_suffix"`
		Files  []gapFile `json:"input_extra"`
	}
	m, release, err := s.open(r, &q)
	if err != nil {
		return err
	}
	defer release()
	o, err := q.read(s, m)
	if err != nil {
		return err
	}
	g := &gap{prefix: q.Prefix, suffix: q.Suffix, files: q.Files, cut: true}
	if said(q.Prompt) && json.Unmarshal(q.Prompt, &g.begun) != nil {
		return invalid("prompt", "prompt is the middle's beginning, a text")
	}
	t, err := m.fill(g, "input_prefix", o)
	if err != nil {
		return err
	}
	return s.complete(w, r, &q.nativeRequest, []*turn{t})
}
