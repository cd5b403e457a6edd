package serve

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/nstf/nstf/formats/answer"
	"github.com/nstf/nstf/formats/tokenizer"
	"github.com/nstf/nstf/runtime/sample"
)

// A conversation is what a request asks to be answered, whatever the protocol.
type conversation struct {
	messages []tokenizer.Message
	tools    []tool
	extra    map[string]json.RawMessage // variables of the template
	force    bool                       // a tool has to be called
	single   bool                       // one call at most
	anew     bool                       // an assistant's message at the end is not gone on with

	reasoning string // in front of the answer that comes next, where a protocol has it apart
}

// A request names a model and asks it something.
type request interface{ name() string }

// A chat is a request whose protocol's words become a conversation.
type chat interface {
	request
	conversation(s *Server, m *Model) (*conversation, settings, error)
}

// named is the field by which requests name their model.
type named struct {
	Model string `json:"model"`
}

func (q *named) name() string { return q.Model }

// open reads a request into q, and returns its model with what gives it back.
func (s *Server) open(r *http.Request, q request) (*Model, func(), error) {
	if err := readJSON(r, q); err != nil {
		return nil, nil, err
	}
	return s.model(r.Context(), q.name())
}

// ask reads a request into q, and returns the turn that it asks for with what gives its
// model back.
func (s *Server) ask(r *http.Request, q chat) (*turn, func(), error) {
	m, release, err := s.open(r, q)
	if err != nil {
		return nil, nil, err
	}
	t, err := m.asked(r, s, q)
	if err != nil {
		release()
		return nil, nil, err
	}
	return t, release, nil
}

// count reads a request into q, and returns the tokens of its prompt.
func (s *Server) count(r *http.Request, q chat) (int, error) {
	t, release, err := s.ask(r, q)
	if err != nil {
		return 0, err
	}
	defer release()
	return len(t.prompt), nil
}

// countInput answers with the tokens that a request of OpenAI's would read.
func (s *Server) countInput(w http.ResponseWriter, r *http.Request, q chat) error {
	n, err := s.count(r, q)
	if err != nil {
		return err
	}
	return writeJSON(w, map[string]any{"object": "response.input_tokens", "input_tokens": n})
}

func (s *Server) countResponse(w http.ResponseWriter, r *http.Request) error {
	return s.countInput(w, r, new(responsesRequest))
}

func (s *Server) countChat(w http.ResponseWriter, r *http.Request) error {
	return s.countInput(w, r, new(chatRequest))
}

// asked returns the turn that q asks for.
func (m *Model) asked(r *http.Request, s *Server, q chat) (*turn, error) {
	c, o, err := q.conversation(s, m)
	if err != nil {
		return nil, err
	}
	return m.turn(r.Context(), c, o)
}

// turn renders a conversation and encodes it.
func (m *Model) turn(ctx context.Context, c *conversation, o settings) (*turn, error) {
	template, format, err := m.conversation(ctx)
	if err != nil {
		return nil, err
	}
	if len(c.messages) == 0 {
		return nil, invalid("messages", "there are no messages")
	}
	messages, begun := order(c.messages, format.Order), ""
	if last := messages[len(messages)-1]; !c.anew && !format.Harmony && last.Role == "assistant" && len(last.ToolCalls) == 0 {
		messages, begun = messages[:len(messages)-1], last.Content
	}
	if len(messages) == 0 {
		return nil, invalid("messages", "nothing stands before the answer that is to be gone on with")
	}
	var raw []json.RawMessage
	var read []answer.Tool
	for _, t := range c.tools {
		raw, read = append(raw, t.raw), append(read, t.read)
	}
	r, err := template.Render(ctx, messages, tokenizer.RenderOptions{Tools: raw, AddGenerationPrompt: true, Extra: c.extra})
	if err != nil {
		return nil, err
	}
	if begun != "" {
		if opened(r.Text, format.ThinkOpen, format.ThinkClose) != "" { // what was said came behind the reasoning
			r.Text += format.ThinkClose
		}
		r.Plain = append(r.Plain, tokenizer.Span{Start: len(r.Text), End: len(r.Text) + len(begun)})
		r.Text += begun
	}
	ids, err := m.Tokenizer.EncodeRendered(r)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, invalid("messages", "the model's chat template makes nothing of the messages")
	}
	t := &turn{model: m, prompt: ids, settings: o, single: c.single}
	d := demand{format: o.format, tools: c.tools, force: c.force, single: c.single}
	if t.hold, err = m.hold(&d, format, r.Text); err != nil {
		return nil, err
	}
	t.reader = func() *answer.Reader { return format.NewReader(r.Text, read) }
	return t, nil
}

// samplingFields are what the protocols call alike. Pointers tell what was not said.
type samplingFields struct {
	Temperature       *float64 `json:"temperature"`
	TopP              *float64 `json:"top_p"`
	TopK              *int     `json:"top_k"`
	MinP              *float64 `json:"min_p"`
	RepetitionPenalty *float64 `json:"repetition_penalty"`
	RepeatPenalty     *float64 `json:"repeat_penalty"`
	RepeatLastN       *int     `json:"repeat_last_n"`
	Seed              *int64   `json:"seed"`
	PresencePenalty   float32  `json:"presence_penalty"`
	FrequencyPenalty  float32  `json:"frequency_penalty"`
}

// settings returns what a request says over what the model's makers recommend.
func (f *samplingFields) settings(m *Model) (settings, error) {
	o := settings{n: 1, sampling: m.Sampling, presence: f.PresencePenalty, frequency: f.FrequencyPenalty}
	set := func(to *float64, from *float64) {
		if from != nil {
			*to = *from
		}
	}
	set(&o.sampling.Temperature, f.Temperature)
	set(&o.sampling.TopP, f.TopP)
	set(&o.sampling.MinP, f.MinP)
	set(&o.sampling.RepetitionPenalty, f.RepeatPenalty)
	set(&o.sampling.RepetitionPenalty, f.RepetitionPenalty)
	if f.TopK != nil {
		o.sampling.TopK = max(0, *f.TopK)
	}
	if f.RepeatLastN != nil {
		o.sampling.RepetitionWindow = max(0, *f.RepeatLastN)
	}
	o.sampling.Seed = seed(f.Seed)
	if _, err := sample.New(o.sampling); err != nil {
		return o, invalid("", "%v", err)
	}
	for _, p := range []struct {
		name  string
		value float32
	}{{"presence_penalty", f.PresencePenalty}, {"frequency_penalty", f.FrequencyPenalty}} {
		if !(p.value >= -2 && p.value <= 2) {
			return o, invalid(p.name, "%s is %v, and lies between -2 and 2", p.name, p.value)
		}
	}
	return o, nil
}

// stopStrings are one string or several.
type stopStrings []string

// UnmarshalJSON implements json.Unmarshaler.
func (s *stopStrings) UnmarshalJSON(p []byte) error {
	var one string
	if json.Unmarshal(p, &one) == nil {
		if *s = nil; one != "" {
			*s = stopStrings{one}
		}
		return nil
	}
	var all []string
	if err := json.Unmarshal(p, &all); err != nil {
		return err
	}
	*s = slices.DeleteFunc(all, func(t string) bool { return t == "" })
	return nil
}

// mostStops bounds the stop strings of a request.
const mostStops = 64

func (s stopStrings) check() error {
	if len(s) > mostStops {
		return invalid("stop", "there are %d stop strings, and %d at most", len(s), mostStops)
	}
	return nil
}

// A toolCall is a call as OpenAI writes it.
type toolCall struct {
	Index    *int   `json:"index,omitempty"`
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// forTemplate returns a call as chat templates take it, its arguments an object.
func forTemplate(id, name string, arguments json.RawMessage) json.RawMessage {
	var text string
	if json.Unmarshal(arguments, &text) == nil {
		if arguments = json.RawMessage(text); !json.Valid(arguments) {
			arguments, _ = json.Marshal(text)
		}
	}
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	p, _ := json.Marshal(map[string]any{"id": id, "type": "function", "function": map[string]any{"name": name, "arguments": arguments}})
	return p
}

// textOf returns the text of the parts of a kind.
func textOf(parts []answer.Part, kind answer.Kind) string {
	text := ""
	for _, p := range parts {
		if p.Kind == kind {
			text += p.Text
		}
	}
	return text
}

// gathered puts the pieces of a turn together, for answers that are not streamed.
type gathered struct {
	text, reasoning string
	calls           []toolCall
	tokens          []tokenLogprob
	end, stopped    string
}

func (g *gathered) add(p *piece) {
	for _, part := range p.parts {
		switch part.Kind {
		case answer.Text:
			g.text += part.Text
		case answer.Reasoning:
			g.reasoning += part.Text
		case answer.Call:
			c := toolCall{ID: identifier("call_"), Type: "function"}
			c.Function.Name = part.Text
			g.calls = append(g.calls, c)
		case answer.Arguments:
			g.calls[part.Index].Function.Arguments += part.Text
		}
	}
	g.tokens = append(g.tokens, p.tokens...)
	if p.end != "" {
		g.end, g.stopped = p.end, p.stopped
	}
}
