package serve

import (
	"encoding/json"
	"fmt"
	"slices"
)

// A toolChoice is tool_choice where it is no word: one function, as chat completions and
// responses write it, or some of those that there are.
type toolChoice struct {
	Name     string `json:"name"`
	Function struct {
		Name string `json:"name"`
	} `json:"function"`
	Type    string  `json:"type"`
	allowed         // of responses
	Allowed allowed `json:"allowed_tools"`
}

type allowed struct {
	Mode  string `json:"mode"`
	Tools []struct {
		Name     string `json:"name"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
}

// choose sets which tools the model is told of, and whether it has to call one.
func (c *conversation) choose(tools []json.RawMessage, choice json.RawMessage, parallel *bool) error {
	for i, raw := range tools {
		t, ok := readTool(raw)
		if !ok {
			return invalid(fmt.Sprintf("tools[%d]", i), "tool %d is no function with a name", i)
		}
		c.tools = append(c.tools, t)
	}
	all := c.tools
	c.single = parallel != nil && !*parallel
	if !said(choice) {
		return nil
	}
	var mode string
	if json.Unmarshal(choice, &mode) == nil {
		return c.mode(mode)
	}
	var q toolChoice
	if err := json.Unmarshal(choice, &q); err != nil {
		return invalid("tool_choice", "tool_choice is neither a word nor a tool")
	}
	names := []string{q.Name + q.Function.Name}
	if q.Type == "allowed_tools" {
		some := q.Allowed
		if some.Mode == "" {
			some = q.allowed
		}
		names = nil
		for _, t := range some.Tools {
			names = append(names, t.Name+t.Function.Name)
		}
		if err := c.mode(some.Mode); err != nil {
			return err
		}
	} else {
		c.force, c.single = true, true
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(t tool) bool { return t.Name == name }) {
			return invalid("tool_choice", "tool_choice names %q, which is no tool of the request", name)
		}
	}
	c.tools = slices.DeleteFunc(all, func(t tool) bool { return !slices.Contains(names, t.Name) })
	return nil
}

func (c *conversation) mode(word string) error {
	switch word {
	case "auto":
	case "none":
		c.tools = nil
	case "required", "any":
		c.force = true
	default:
		return invalid("tool_choice", "tool_choice is %q", word)
	}
	return nil
}
