package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// withStage returns smallJSON with another stage.
func withStage(t *testing.T, name, stage string) []byte {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(smallJSON), &all); err != nil {
		t.Fatal(err)
	}
	all[name] = json.RawMessage(stage)
	out, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func repeated(n int, stage, list string) string {
	return `{"type":"Sequence","` + list + `":[` + strings.TrimSuffix(strings.Repeat(stage+",", n), ",") + `]}`
}

// Stages that would make gigabytes of a few bytes are refused when they are read, or
// with the first text that they do it to, in no time and little memory.
func TestStagesThatExplode(t *testing.T) {
	charsmap := append(binary.LittleEndian.AppendUint32(nil, 4), make([]byte, 4)...)
	charsmap = append(charsmap, strings.Repeat("x", 1<<20)+"\x00"...)
	double := `{"type":"Replace","pattern":{"String":"a"},"content":"aa"}`
	anything := `{"type":"Replace","pattern":{"Regex":"."},"content":"` + strings.Repeat("b", 100) + `"}`
	special := `{"SpecialToken":{"id":"<s>","type_id":0}}`
	for _, c := range []struct{ stage, json, text, says string }{
		{"normalizer", repeated(40, double, "normalizers"), "", "bytes of 1"},
		{"normalizer", repeated(40, `{"type":"Replace","pattern":{"Regex":"a"},"content":"aa"}`, "normalizers"), "aaaa", "makes more than 1280 bytes"},
		{"normalizer", repeated(4, anything, "normalizers"), strings.Repeat("x", 1000), "bytes of 1000"},
		{"normalizer", repeated(20000, `{"type":"NFC"}`, "normalizers"), "", "more than 16384"},
		{"normalizer", strings.Repeat(`{"type":"Sequence","normalizers":[`, 4000) + strings.Repeat(`]}`, 4000), "", "64 deep"},
		{"normalizer", `{"type":"Prepend","prepend":"` + strings.Repeat("x", 1<<20) + `"}`, "", "inserts 1048576 bytes"},
		{"normalizer", `{"type":"Replace","pattern":{"String":"a"},"content":"` + strings.Repeat("x", 1<<20) + `"}`, "", "inserts 1048576 bytes"},
		{"normalizer", `{"type":"Precompiled","precompiled_charsmap":"` + base64.StdEncoding.EncodeToString(charsmap) + `"}`, "", "replacement of 1048576 bytes"},
		{"decoder", repeated(40, double, "decoders"), "", "bytes of"},
		{"post_processor", `{"type":"TemplateProcessing","single":[` + strings.Repeat(special+",", 10000) + `{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[3],"tokens":["<s>"]}}}`, "", "more than"},
		{"post_processor", `{"type":"TemplateProcessing","single":[` + special + `,{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[3` + strings.Repeat(",3", 1<<20) + `],"tokens":[]}}}`, "", "1048577 tokens around every text"},
	} {
		t.Run(fmt.Sprintf("%s/%.60s", c.stage, c.json), func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begin := time.Now()
			tok, err := FromFiles("small", Files{JSON: withStage(t, c.stage, c.json)})
			if c.text != "" {
				if err != nil {
					t.Fatal(err)
				}
				_, err = tok.Encode(c.text, EncodeOptions{})
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.stage) || len(err.Error()) > 2000 {
				t.Errorf("%.300v", err)
			}
			runtime.ReadMemStats(&after)
			if d, n := time.Since(begin), after.TotalAlloc-before.TotalAlloc; d > 20*time.Second || n > 256<<20 {
				t.Errorf("it took %v and %d bytes", d, n)
			}
		})
	}
}

// What honest stages make of the worst text is allowed.
func TestStagesThatGrow(t *testing.T) {
	raw := withStage(t, "normalizer", `{"type":"Sequence","normalizers":[{"type":"NFKD"},{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]}`)
	tok, err := FromFiles("small", Files{JSON: raw})
	if err != nil {
		t.Fatal(err)
	}
	s := strings.Repeat("\ufdfa", 1000)
	if out, _, err := normalized(tok.norm, s, true); err != nil || len(out) < 10*len(s) {
		t.Errorf("%d bytes of %d, %v", len(out), len(s), err)
	}
}

// An expression that takes forever is told with a cut of the text.
func TestCatastrophicExpression(t *testing.T) {
	raw := withStage(t, "pre_tokenizer", `{"type":"Split","pattern":{"Regex":"(a+a+)+y"},"behavior":"Isolated","invert":false}`)
	tok, err := FromFiles("small", Files{JSON: raw})
	if err != nil {
		t.Fatal(err)
	}
	_, err = tok.Encode(strings.Repeat("a", 1<<20)+"b", EncodeOptions{})
	if err == nil || len(err.Error()) > 500 || !strings.Contains(err.Error(), "1048577 bytes that begins") {
		t.Errorf("%.600v", err)
	}
}

// A token that a user added and that lies in the byte alphabet by chance decodes to its
// text, as in llama.cpp: deepseek-llm has ü.
func TestDecodeAddedText(t *testing.T) {
	raw := strings.Replace(smallJSON, `{"type":"Fuse"}`, `{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}`, 1)
	raw = strings.Replace(raw, `"special":true}]`, `"special":true},{"id":4,"content":"ü"},{"id":5,"content":"Ġx"},{"id":6,"content":"<｜end▁of｜>"}]`, 1)
	tok, err := FromFiles("small", Files{JSON: []byte(raw)})
	if err != nil {
		t.Fatal(err)
	}
	ids := []int32{0, 4, 1, 5, 6}
	const want = "aübĠx<｜end▁of｜>"
	if got, err := tok.Decode(ids, false); err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	s, got := tok.NewStream(StreamOptions{}), ""
	for _, id := range ids {
		got += s.Next(id)
	}
	if got += s.Flush(); got != want {
		t.Errorf("streamed: %q", got)
	}
	if b := tok.TokenBytes(4); string(b) != "ü" {
		t.Errorf("bytes of ü: %q", b)
	}
}
