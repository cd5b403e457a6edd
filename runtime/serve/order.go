package serve

import (
	"crypto/sha256"
	"encoding/json"
	"math/big"
	"slices"

	"github.com/nstf/nstf/formats/answer"
	"github.com/nstf/nstf/formats/tokenizer"
)

// order returns a conversation as the model's template writes it. Programs send messages
// of the role system anywhere, several of a role in a row, and ids of calls as others made
// them; many templates refuse one of these, or leave it out. What a template does not
// write where it stands goes into the message before.
func order(messages []tokenizer.Message, can answer.Order) []tokenizer.Message {
	messages = slices.Clone(messages)
	if !can.Systems {
		messages = systems(messages, can.System)
	}
	if !can.Runs || !can.Interrupts {
		messages = joined(messages, can)
	}
	if !can.AnyID {
		for i := range messages {
			shortIDs(&messages[i])
		}
	}
	return messages
}

// systems puts what messages of the role system say into the first of them, or in front
// of what the user says first.
func systems(messages []tokenizer.Message, first bool) []tokenizer.Message {
	text, n := "", 0
	rest := slices.DeleteFunc(slices.Clone(messages), func(m tokenizer.Message) bool {
		if m.Role == "system" {
			text, n = paragraphs(text, m.Content), n+1
		}
		return m.Role == "system"
	})
	switch i := slices.IndexFunc(rest, func(m tokenizer.Message) bool { return m.Role == "user" }); {
	case n == 0 || first && n == 1 && messages[0].Role == "system":
		return messages
	case first:
		return append([]tokenizer.Message{{Role: "system", Content: text}}, rest...)
	case i >= 0:
		rest[i].Content = paragraphs(text, rest[i].Content)
		return rest
	}
	return messages
}

// joined makes one message of several that the template does not write one behind the other.
func joined(messages []tokenizer.Message, can answer.Order) []tokenizer.Message {
	var out []tokenizer.Message
	for _, m := range messages {
		if n := len(out); n > 0 {
			last := &out[n-1]
			again := m.Role == last.Role && (m.Role == "user" || m.Role == "assistant" && len(last.ToolCalls) == 0)
			if !can.Runs && again || !can.Interrupts && m.Role == "user" && last.Role == "tool" {
				last.Content = paragraphs(last.Content, m.Content)
				last.ToolCalls = m.ToolCalls
				if m.More != nil && again {
					last.More = m.More
				}
				continue
			}
		}
		out = append(out, m)
	}
	return out
}

func paragraphs(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n\n" + b
}

// shortIDs gives calls and results ids of nine letters and digits, which follow from those
// they had. Source: chat templates of Mistral's, which refuse others.
func shortIDs(m *tokenizer.Message) {
	shorten := func(raw json.RawMessage, key string) json.RawMessage {
		var fields map[string]json.RawMessage
		var id string
		if json.Unmarshal(raw, &fields) != nil || json.Unmarshal(fields[key], &id) != nil {
			return raw
		}
		fields[key], _ = json.Marshal(shortID(id))
		raw, _ = json.Marshal(fields)
		return raw
	}
	m.ToolCalls = slices.Clone(m.ToolCalls)
	for i := range m.ToolCalls {
		m.ToolCalls[i] = shorten(m.ToolCalls[i], "id")
	}
	m.More = shorten(m.More, "tool_call_id")
}

// shortID is an id itself where it is short already.
func shortID(id string) string {
	if len(id) == 9 && !slices.ContainsFunc([]byte(id), func(c byte) bool {
		return !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z')
	}) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return new(big.Int).SetBytes(append([]byte{1}, sum[:8]...)).Text(36)[:9]
}
