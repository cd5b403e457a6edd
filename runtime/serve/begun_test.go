package serve

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nstf/nstf/runtime/schedule"
)

// An answer that the last message begins is gone on with: what comes is what would come behind the same text.
func TestBegunAnswers(t *testing.T) {
	thinks := `{% for m in messages %}{{ m.role }}: {% if m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}
{% endfor %}{% if add_generation_prompt %}assistant: <think>
{% endif %}`
	for name, template := range map[string]string{"plain": "", "behind reasoning": thinks} {
		h, _, _ := servingAs(t, Options{}, schedule.Options{}, template)
		messages := `"messages": [{"role": "user", "content": "Tell me."}, {"role": "assistant", "content": "Once <|im_end|> upon"}]`
		code, v, _ := post(t, h.URL+"/apply-template", `{`+messages+`}`)
		prompt, _ := v["prompt"].(string)
		if code != 200 || !strings.HasSuffix(prompt, "Once <|im_end|> upon") || name != "plain" && !strings.Contains(prompt, "</think>") {
			t.Fatalf("%s: %d %v", name, code, v)
		}
		var tokens []any
		_, v, _ = post(t, h.URL+"/tokenize", `{"content": "Once <|im_end|> upon", "parse_special": false}`)
		tokens = v["tokens"].([]any)
		_, v, _ = post(t, h.URL+"/tokenize", `{"content": `+quote(strings.TrimSuffix(prompt, "Once <|im_end|> upon"))+`}`)
		all, _ := json.Marshal(append(v["tokens"].([]any), tokens...))
		_, v, _ = post(t, h.URL+"/v1/completions", `{"prompt": `+string(all)+`, "max_tokens": 8, "temperature": 0}`)
		want := lookUp(v, "choices.0.text")
		for path, c := range map[string][2]string{
			"/v1/chat/completions": {`"max_tokens": 8, "temperature": 0`, "choices.0.message.content"},
			"/v1/messages":         {`"max_tokens": 8, "temperature": 0`, "content.0.text"},
			"/api/chat":            {`"stream": false, "options": {"num_predict": 8, "temperature": 0}`, "message.content"},
		} {
			code, v, _ := post(t, h.URL+path, `{`+messages+`, `+c[0]+`}`)
			if got := lookUp(v, c[1]); code != 200 || want == "" || strings.TrimSpace(got) != strings.TrimSpace(want) {
				t.Errorf("%s, %s: %d %q, and %q behind the same text", name, path, code, got, want)
			}
		}
		code, v, _ = post(t, h.URL+"/apply-template", `{`+messages+`, "continue_final_message": false}`)
		if p, _ := v["prompt"].(string); code != 200 || strings.HasSuffix(p, "upon") {
			t.Errorf("%s: %q is gone on with", name, p)
		}
		for _, wrong := range []string{messages + `, "continue_final_message": true, "add_generation_prompt": true`, `"messages": [{"role": "user", "content": "a"}], "continue_final_message": true`,
			`"messages": [{"role": "assistant", "content": "a"}]`} {
			if code, v, _ := post(t, h.URL+"/v1/chat/completions", `{`+wrong+`}`); code != 400 {
				t.Errorf("%s: %d %v", wrong, code, v)
			}
		}
	}
}

func quote(s string) string { p, _ := json.Marshal(s); return string(p) }
