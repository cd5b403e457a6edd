package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/nstf/nstf/formats/answer"
	"github.com/nstf/nstf/runtime/generate"
	"github.com/nstf/nstf/runtime/grammar"
)

// A demand is what an answer has to be.
type demand struct {
	format *format // of its text; nil: any
	tools  []tool  // that may be called
	force  bool    // one of them has to be
	single bool    // one call at most
}

// lazy reports whether text is free, and calls alone are held to something.
func (d *demand) lazy() bool {
	if d.format != nil || d.force {
		return false
	}
	for _, t := range d.tools {
		if t.Strict {
			return true
		}
	}
	return false
}

// A hold is what keeps answers to a demand.
type hold struct {
	compiled *grammar.Compiled
	// until ends the reasoning that the prompt has opened, and that is free: "" for none.
	until string
	// trigger begins what is held, "" where all of it is; lead is what the grammar has
	// in front of it.
	trigger, lead string
}

// hold returns what keeps answers behind a prompt to what is demanded, nil where they are
// free.
func (m *Model) hold(d *demand, f *answer.Format, prompt string) (*hold, error) {
	known := f.Harmony || f.Calls != nil
	switch {
	case d.force && len(d.tools) == 0:
		return nil, invalid("tool_choice", "a tool has to be called, and there is none")
	case d.force && !known:
		return nil, invalid("tool_choice", "how this model calls tools is not known: no call can be forced")
	case !known:
		d = &demand{format: d.format}
	}
	h := &hold{until: opened(prompt, f.ThinkOpen, f.ThinkClose)}
	switch {
	case d.format == nil && !d.force && !d.lazy():
		return nil, nil
	case d.lazy() && f.Harmony:
		h.trigger = "to=functions."
	case d.lazy():
		if h.trigger = f.Calls.Trigger(); h.trigger == "" {
			return nil, nil // nothing tells a call from text before it is one
		}
		open := f.Calls.Open
		if strings.TrimSpace(open) == "" {
			open += f.Calls.Before
		}
		h.lead = open[:len(open)-len(strings.TrimLeft(open, " \n\t"))]
	}
	think := !f.Harmony && h.until == "" && h.trigger == "" && !closed(prompt, f.ThinkClose)
	shape, _ := json.Marshal(d.tools)
	key := "text "
	if d.format != nil {
		key = d.format.key + "\x00"
	}
	whole := &format{key: fmt.Sprintf("%s%v %v %v %s", key, d.force, d.single, think, shape), part: func() (grammar.Part, error) {
		c, d := &caller{f, m.specials}, *d
		d.tools = slices.Clone(d.tools)
		return bounded(d.tools, func() (grammar.Part, error) {
			if f.Harmony {
				return c.channels(&d)
			}
			return c.answer(&d, think)
		})
	}}
	if d.format != nil && len(d.tools) == 0 && !f.Harmony && (!think || f.ThinkOpen == "") {
		whole = d.format
	}
	var err error
	h.compiled, err = m.compile(whole)
	return h, err
}

// answer is an answer as demanded: with reasoning before it, where the model may begin to.
func (c *caller) answer(d *demand, think bool) (grammar.Part, error) {
	var each []grammar.Part
	if d.format != nil && !d.force {
		p, err := d.format.part()
		if err != nil {
			return p, err
		}
		each = append(each, grammar.Sequence(grammar.Many(c.text(c.f.TextOpen), 0, 1), p))
	}
	if len(d.tools) > 0 {
		p, err := c.calls(d.tools, d.single)
		if err != nil {
			return p, err
		}
		each = append(each, p)
	}
	all := grammar.Either(each...)
	if open, shut := strings.TrimSpace(c.f.ThinkOpen), strings.TrimSpace(c.f.ThinkClose); think && open != "" && shut != "" {
		all = grammar.Sequence(grammar.Many(grammar.Sequence(c.text(open), c.until(shut), grammar.Blank(2)), 0, 1), all)
	}
	return all, nil
}

// channels is an answer of gpt-oss as demanded: any number of messages of reasoning, and a
// last one. Source: https://cookbook.openai.com/articles/openai-harmony.
func (c *caller) channels(d *demand) (grammar.Part, error) {
	const message = "<|message|>"
	var each []grammar.Part
	kind := grammar.Many(grammar.Sequence(grammar.Text(" "), c.text("<|constrain|>"), grammar.Either(grammar.Text("json"), grammar.Text("JSON"))), 0, 1)
	if d.format != nil && !d.force {
		p, err := d.format.part()
		if err != nil {
			return p, err
		}
		each = append(each, grammar.Sequence(c.text("<|channel|>final"), kind, c.text(message), p))
	}
	for i := range d.tools {
		p, err := d.tools[i].schema()
		if err != nil {
			return p, err
		}
		name := grammar.Text("to=functions." + d.tools[i].Name)
		if !d.lazy() { // else what stands before it is free
			name = grammar.Sequence(grammar.Many(c.text("<|channel|>commentary"), 0, 1), grammar.Text(" "), name)
		}
		each = append(each, grammar.Sequence(name, grammar.Many(c.text("<|channel|>commentary"), 0, 1), kind, c.text(message), p))
	}
	last := grammar.Either(each...)
	if d.lazy() {
		return last, nil
	}
	analysis := grammar.Sequence(c.text("<|channel|>analysis"+message), c.until("<|end|>"), c.text("<|start|>assistant"))
	return grammar.Sequence(grammar.Many(analysis, 0, -1), last), nil
}

// A constraint holds one answer to its format: schedule.Constraint. What is free comes
// first, as the model likes.
type constraint struct {
	hold     // until and trigger are "" where they have come
	m        *generate.Guide
	bytes    func(token int32) []byte
	spell    *strings.Replacer
	tail     []byte
	finished atomic.Bool // nothing may follow
}

// newConstraint returns the constraint of one answer of t.
func (t *turn) newConstraint() *constraint {
	tok := t.model.Tokenizer
	spelled := func(id int32) []byte {
		if tok.IsSpecial(id) {
			text, _ := tok.Piece(id)
			return []byte(text)
		}
		return tok.TokenBytes(id)
	}
	return &constraint{hold: *t.hold, m: generate.NewGuide(t.hold.compiled, tok), bytes: spelled, spell: t.model.specials}
}

// Mask implements schedule.Constraint.
func (c *constraint) Mask(bits []uint32) (bool, error) {
	if c.until != "" || c.trigger != "" {
		return false, nil
	}
	return c.m.Mask(bits)
}

// Forced implements schedule.Constraint.
func (c *constraint) Forced() []int32 {
	if c.until != "" || c.trigger != "" {
		return nil
	}
	return c.m.Forced()
}

// Accept implements schedule.Constraint.
func (c *constraint) Accept(token int32) error {
	switch {
	case c.until != "":
		if _, ok := c.passed(token, c.until); ok {
			c.until = ""
		}
		return nil
	case c.trigger != "":
		rest, ok := c.passed(token, c.trigger)
		if !ok {
			return nil
		}
		// Where the model has gone on otherwise within the token, it is left alone.
		if err := c.m.AcceptBytes([]byte(c.spell.Replace(c.lead + c.trigger + rest))); err == nil {
			c.trigger = ""
		}
		return nil
	}
	err := c.m.Accept(token)
	if c.m.IsDone() {
		c.finished.Store(true)
	}
	return err
}

// passed reports whether text stands in what came, and returns what stands behind it.
func (c *constraint) passed(token int32, text string) (rest string, ok bool) {
	c.tail = append(c.tail, c.bytes(token)...)
	if i := bytes.Index(c.tail, []byte(text)); i >= 0 {
		rest = string(c.tail[i+len(text):])
		c.tail = nil
		return rest, true
	}
	if n := len(c.tail) - len(text); n > 0 {
		c.tail = c.tail[n:]
	}
	return "", false
}

// opened returns what ends the reasoning that a prompt has opened, "" where it has not.
func opened(prompt, open, end string) string {
	open, end = strings.TrimSpace(open), strings.TrimSpace(end)
	if open == "" || end == "" || !strings.HasSuffix(strings.TrimSpace(prompt), open) {
		return ""
	}
	return end
}

// closed reports whether a prompt has ended the reasoning already.
func closed(prompt, end string) bool {
	end = strings.TrimSpace(end)
	return end != "" && strings.HasSuffix(strings.TrimSpace(prompt), end)
}
