package generate

import (
	"context"
	"errors"
	"strings"

	"github.com/nstf/nstf/formats/tokenizer"
	"github.com/nstf/nstf/runtime/exec"
)

// A Chat is a conversation in the form of the model's chat template.
type Chat struct {
	History
	g        *Generator
	template *tokenizer.Template
}

// NewChat begins a conversation in the form of the model's chat template of a
// name, "" for its default; system may be "". It fails with a
// formats.UnsupportedError where the model has no such template, or one that
// cannot be used.
func (g *Generator) NewChat(template, system string) (*Chat, error) {
	t, err := g.tok.ChatTemplate(template)
	if err != nil {
		return nil, err
	}
	c := &Chat{g: g, template: t}
	c.SetSystem(system)
	return c, nil
}

// Send adds what the user says and generates the answer, which becomes part
// of the conversation; so does the part that was there when ctx ended. After
// any other error the conversation is what it was before.
//
// Where the conversation exceeds the context, Options.Shift forgets its
// oldest turns, as many as are needed to make room for the prompt.
func (c *Chat) Send(ctx context.Context, text string, o Options, emit func(text string) error) (*Stats, error) {
	before := c.messages
	c.gone = nil
	c.messages = append(before[:len(before):len(before)], tokenizer.Message{Role: "user", Content: text})
	prompt, err := c.prompt(ctx, o.Shift)
	if err != nil {
		c.messages, c.gone = before, nil
		return nil, err
	}
	var answer strings.Builder
	stats, err := c.g.Run(ctx, prompt, o, func(piece string) error {
		answer.WriteString(piece)
		return emit(piece)
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		c.messages, c.gone = before, nil
		return stats, err
	}
	c.messages = append(c.messages, tokenizer.Message{Role: "assistant", Content: answer.String()})
	return stats, err
}

// prompt renders the conversation, without its oldest turns where they do not
// fit and may be forgotten.
func (c *Chat) prompt(ctx context.Context, shift bool) ([]int32, error) {
	for {
		r, err := c.template.Render(ctx, c.messages, tokenizer.RenderOptions{AddGenerationPrompt: true})
		if err != nil {
			return nil, err
		}
		ids, err := c.g.tok.EncodeRendered(r)
		if err != nil {
			return nil, err
		}
		if int64(len(ids)) < c.g.Context() {
			return ids, nil
		}
		if !shift || !c.forget() {
			return nil, &exec.ContextFullError{New: int64(len(ids)), Capacity: c.g.Context()}
		}
	}
}

// forget drops the oldest question with its answer, false where only the
// newest question is left.
func (c *Chat) forget() bool {
	if len(c.messages)-c.system < 3 {
		return false
	}
	kept := append([]tokenizer.Message(nil), c.messages[:c.system]...)
	c.gone = append(c.gone, c.messages[c.system:c.system+2]...)
	c.messages = append(kept, c.messages[c.system+2:]...)
	return true
}
