package generate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nstf/nstf/formats/tokenizer"
)

// A History is a conversation as it was so far, whoever answers.
type History struct {
	messages []tokenizer.Message
	system   int // messages at the beginning that are never forgotten
	gone     []tokenizer.Message
}

// Messages returns the conversation so far. The caller must not change it.
func (c *History) Messages() []tokenizer.Message { return c.messages }

// Forgotten returns what the last Send made room with, oldest first; see Options.Shift.
func (c *History) Forgotten() []tokenizer.Message { return c.gone }

// Clear forgets the conversation, but for its system message.
func (c *History) Clear() { c.messages, c.gone = c.messages[:c.system:c.system], nil }

// Undo forgets the last question with its answer, false where there is none.
func (c *History) Undo() bool {
	for i := len(c.messages) - 1; i >= c.system; i-- {
		if c.messages[i].Role == "user" {
			c.messages, c.gone = c.messages[:i:i], nil
			return true
		}
	}
	return false
}

// SetSystem begins anew with a system message, none where it is "".
func (c *History) SetSystem(text string) {
	c.messages, c.system, c.gone = nil, 0, nil
	if text != "" {
		c.messages, c.system = []tokenizer.Message{{Role: "system", Content: text}}, 1
	}
}

// Resume goes on with a conversation from elsewhere: perhaps a system message, then
// questions and answers in turns, an answer last. It fails where it is none.
func (c *History) Resume(messages []tokenizer.Message) error {
	system := 0
	if len(messages) > 0 && messages[0].Role == "system" {
		system = 1
	}
	for i, m := range messages[system:] {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want {
			return fmt.Errorf("message %d is of %q, and one of %q should follow", system+i+1, m.Role, want)
		}
	}
	if (len(messages)-system)%2 != 0 {
		return errors.New("the last message has no answer")
	}
	c.messages, c.system, c.gone = slices.Clone(messages), system, nil
	return nil
}

// Add adds a question and its answer.
func (c *History) Add(question, answer string) {
	n := len(c.messages)
	c.messages = append(c.messages[:n:n], tokenizer.Message{Role: "user", Content: question}, tokenizer.Message{Role: "assistant", Content: answer})
	c.gone = nil
}
