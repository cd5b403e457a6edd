package tokenizer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/jinja"
)

// A Message is one turn of a conversation.
type Message struct {
	Role    string // "system", "user", "assistant" or "tool"
	Content string
	// ToolCalls are JSON objects, as templates expect them:
	// {"type": "function", "function": {"name": ..., "arguments": {...}}}.
	ToolCalls []json.RawMessage
	// More is a JSON object of further fields, nil for none: "name",
	// "tool_call_id", "reasoning_content" ... A field here replaces one above;
	// where it has a "role", and Content and ToolCalls are empty, it is the
	// whole message.
	More json.RawMessage
}

// RenderOptions are the choices of [Template.Render].
type RenderOptions struct {
	Tools               []json.RawMessage // JSON schemas of functions; nil for none
	AddGenerationPrompt bool              // end with the opening of the assistant's turn
	// Extra are further variables as JSON, such as "enable_thinking": false.
	Extra map[string]json.RawMessage
	Now   time.Time // what strftime_now tells; the zero time means the present
}

// Rendered is a prompt that remembers which of its bytes came from messages
// and tools rather than from the template.
type Rendered struct {
	Text string
	// Plain are the ranges where special tokens are not recognised, in order.
	// They cover every spelling of one that a message or tool brought in.
	Plain []Span
	// Exact says that Text is what transformers renders. It is false only when
	// a template takes apart a special token's spelling within a message; the
	// spelling then stays as the user wrote it.
	Exact bool
}

// A Template is a chat template, compiled. It is immutable and safe for
// concurrent use.
type Template struct {
	t        *Tokenizer
	def      *jinja.Template
	tools    *jinja.Template // template "tool_use", or nil
	sources  string          // all sources, to choose marks that none has
	specials matcher         // spellings of special tokens
}

// ChatTemplate compiles the model's chat template of a name. A model without
// it is an [formats.UnsupportedError], as is a template that uses what is not
// implemented; one that is no template is a [formats.FormatError]. The name ""
// stands for the default one, and for "tool_use" when tools are given and
// there is such a template, as in transformers.
func (t *Tokenizer) ChatTemplate(name string) (*Template, error) {
	if _, ok := t.templates[cmp.Or(name, "default")]; !ok {
		return nil, t.noTemplate(name)
	}
	tp := &Template{t: t}
	var err error
	if tp.def, err = t.compile(cmp.Or(name, "default"), &tp.sources); err != nil {
		return nil, err
	}
	if _, ok := t.templates["tool_use"]; ok && name == "" {
		if tp.tools, err = t.compile("tool_use", &tp.sources); err != nil {
			return nil, err
		}
	}
	for _, a := range t.added.byID {
		if a.Special {
			tp.specials.add(a.Content, a)
			tp.specials.add(a.decoded, a)
		}
	}
	return tp, nil
}

// compile parses the template of a name and appends its source to sources.
func (t *Tokenizer) compile(name string, sources *string) (*jinja.Template, error) {
	*sources += t.templates[name]
	c, err := jinja.Parse(name, t.templates[name], jinja.DefaultLimits)
	return c, t.templateError(err)
}

// templateError makes one of the two families of errors of a template's, which
// names the template and its line.
func (t *Tokenizer) templateError(err error) error {
	var e *jinja.Error
	if !errors.As(err, &e) {
		return err // nil, or the context's
	}
	if e.Unsupported {
		return formats.Unsupportedf(t.name, "chat_template", "template %v", e)
	}
	return formats.Errorf(t.name, "chat_template", "template %v", e)
}

// noTemplate is the error for a template that is not among the model's.
func (t *Tokenizer) noTemplate(name string) error {
	if len(t.templates) == 0 {
		return formats.Unsupportedf(t.name, "chat_template", "the model has no chat template")
	}
	return formats.Unsupportedf(t.name, "chat_template", "no %q among the chat templates %q",
		cmp.Or(name, "default"), slices.Sorted(maps.Keys(t.templates)))
}

// ChatTemplates returns the sources of the chat templates by name. A single
// one is "default".
func (t *Tokenizer) ChatTemplates() map[string]string { return maps.Clone(t.templates) }

// Render writes the conversation in the model's format. The error is a
// [formats.FormatError] where the template refuses the conversation
// (raise_exception), fails, or exceeds one of [jinja.DefaultLimits], and for
// JSON that is none; a [formats.UnsupportedError] where it uses what is not
// implemented; and ctx's where that has ended.
func (tp *Template) Render(ctx context.Context, messages []Message, o RenderOptions) (Rendered, error) {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	c, err := tp.conversation(messages, o)
	if err != nil {
		return Rendered{}, err
	}
	want, err := c.render(ctx, tp, unmarked)
	if err != nil {
		return Rendered{}, err
	}
	// Marks around whole contents say most, but a template may look at the
	// beginning or end of a content; marks within spelled-out special tokens
	// disturb next to nothing.
	for _, how := range []marking{aroundContent, withinSpecials} {
		got, err := c.render(ctx, tp, how)
		if ctx.Err() != nil {
			return Rendered{}, ctx.Err()
		}
		if err != nil {
			continue
		}
		if text, plain, ok := c.marks.strip(got); ok && text == want {
			return Rendered{text, plain, true}, nil
		}
	}
	return c.inexact(ctx, tp, want)
}

// inexact is the way out when marks change what the template does: what is
// rendered of the marked messages stands, with the marked parts plain. Should
// even that fail, no special token is recognised beyond the reference's.
func (c *conversation) inexact(ctx context.Context, tp *Template, want string) (Rendered, error) {
	got, err := c.render(ctx, tp, withinSpecials)
	if err != nil {
		return Rendered{}, err
	}
	text, plain, ok := c.marks.strip(got)
	if !ok {
		return Rendered{Text: want, Plain: []Span{{0, len(want)}}}, nil
	}
	return Rendered{Text: text, Plain: plain}, nil
}

// EncodeRendered returns the ids of a rendered conversation. Special tokens
// count where the template wrote them and nowhere else: what a user types
// stays text. No BOS or EOS is added, for templates write their own.
func (t *Tokenizer) EncodeRendered(r Rendered) ([]int32, error) {
	return t.encode(nil, r.Text, guard{plain: r.Plain})
}

// A conversation is what a template sees.
type conversation struct {
	messages []*jinja.Dict
	tools    []any
	vars     map[string]any
	now      time.Time
	marks    marks
}

func (tp *Template) conversation(messages []Message, o RenderOptions) (*conversation, error) {
	c := &conversation{now: o.Now, vars: map[string]any{}}
	var seen strings.Builder
	seen.WriteString(tp.sources)
	for i, m := range messages {
		v, err := m.object()
		if err != nil {
			return nil, located(tp.t.name, fmt.Sprintf("message %d", i), err)
		}
		c.messages = append(c.messages, v)
		collect(&seen, v)
	}
	for i, raw := range o.Tools {
		v, err := parseOrdered(raw)
		if err != nil {
			return nil, located(tp.t.name, fmt.Sprintf("tool %d", i), err)
		}
		c.tools = append(c.tools, v)
		collect(&seen, v)
	}
	for k, raw := range o.Extra {
		v, err := parseOrdered(raw)
		if err != nil {
			return nil, located(tp.t.name, k, err)
		}
		c.vars[k] = v
		collect(&seen, v)
	}
	for name, id := range map[string]int32{"bos_token": tp.t.bos, "eos_token": tp.t.eos, "unk_token": tp.t.unk, "pad_token": tp.t.pad, "sep_token": tp.t.sep} {
		if s, ok := tp.t.Piece(id); ok {
			c.vars[name] = s
		}
	}
	c.vars["add_generation_prompt"] = o.AddGenerationPrompt
	var ok bool
	c.marks, ok = chooseMarks(seen.String())
	if !ok {
		return nil, formats.Unsupportedf(tp.t.name, "messages", "text that uses up all private characters")
	}
	return c, nil
}

// render runs the template with the given marking of texts.
func (c *conversation) render(ctx context.Context, tp *Template, how marking) (string, error) {
	m := marker{c.marks, how, &tp.specials}
	vars := map[string]any{"messages": m.messages(c.messages), "tools": nil, "documents": nil}
	t := tp.def
	if len(c.tools) > 0 {
		vars["tools"] = m.value(c.tools)
		if tp.tools != nil {
			t = tp.tools
		}
	}
	for k, v := range c.vars {
		vars[k] = v
	}
	s, err := t.Render(ctx, vars, jinja.Options{Now: c.now, Verbatim: c.marks.open + c.marks.close})
	return s, tp.t.templateError(err)
}
