package serve

import (
	"strings"
	"testing"

	"github.com/nstf/nstf/runtime/schedule"
)

// What programs send is put as the model's template writes it: messages of the role system
// between others (Claude Code 2.1, Codex 0.169), several of a role in a row (Codex,
// opencode 1.18), text behind a tool's result (Claude Code), ids of 29 characters.
func TestOrder(t *testing.T) {
	const open = `{% if add_generation_prompt %}A:{% endif %}`
	strict := `{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('System message must be at the beginning') }}{% endif %}{% if not loop.first and m.role == messages[loop.index0 - 1].role %}{{ raise_exception('roles must alternate') }}{% endif %}{% if m.role == 'user' and not loop.first and messages[loop.index0 - 1].role == 'tool' %}{{ raise_exception('roles must alternate') }}{% endif %}{{ m.role[0] }}:{{ m.content or '' }}{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}{{ raise_exception('ids are of 9') }}{% endif %}<call>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</call>{% endfor %};{% endfor %}` + open
	silent := `{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{{ m.role[0] }}:{{ m.content or '' }};{% endfor %}` + open
	free := `{% for m in messages %}{{ m.role[0] }}:{{ m.content or '' }};{% endfor %}` + open
	systems := `{"role": "system", "content": "one"}, {"role": "developer", "content": "two"}, {"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}, {"role": "system", "content": "three"}, {"role": "user", "content": "go"}`
	runs := `{"role": "user", "content": "a"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}, {"role": "assistant", "content": "d"}, {"role": "user", "content": "e"}`
	calls := `{"role": "user", "content": "a"}, {"role": "assistant", "content": null, "tool_calls": [{"id": "call_0123456789abcdef01234567", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "call_0123456789abcdef01234567", "content": "b"}, {"role": "user", "content": "c"}`
	for _, c := range []struct{ template, messages, want string }{
		{free, systems, "s:one;s:two;u:hi;a:ho;s:three;u:go;A:"},
		{strict, systems, "s:one\n\ntwo\n\nthree;u:hi;a:ho;u:go;A:"},
		{silent, systems, "u:one\n\ntwo\n\nthree\n\nhi;a:ho;u:go;A:"},
		{free, runs, "u:a;u:b;a:c;a:d;u:e;A:"},
		{strict, runs, "u:a\n\nb;a:c\n\nd;u:e;A:"},
		{strict, calls, `u:a;a:<call>{"name": "f", "arguments": {}}</call>;t:b` + "\n\nc;A:"},
	} {
		h, _, _ := servingAs(t, Options{}, schedule.Options{}, c.template)
		code, v, _ := post(t, h.URL+"/apply-template", `{"messages": [`+c.messages+`], "tools": [{"type": "function", "function": {"name": "f"}}]}`)
		if got, _ := v["prompt"].(string); code != 200 || strings.TrimPrefix(got, "<|begin_of_text|>") != c.want {
			t.Errorf("%s\ngives %v\nwant %q", c.messages, v, c.want)
		}
	}
}
