package serve

import (
	"encoding/json"
	"slices"

	"github.com/nstf/nstf/runtime/generate"
	"github.com/nstf/nstf/runtime/grammar"
)

// A format is what an answer has to obey.
type format struct {
	key  string // of its compiled form
	part func() (grammar.Part, error)
}

// grammarBytes bounds what a model keeps of compiled grammars.
const grammarBytes = 256 << 20

// compile returns what a format is in the model's vocabulary.
func (m *Model) compile(f *format) (*grammar.Compiled, error) {
	m.grammars.Do(func() {
		var v *grammar.Vocabulary
		if v, m.grammarErr = generate.Vocabulary(m.Tokenizer); m.grammarErr == nil {
			m.compiled, m.specials = grammar.NewCache(v, grammarBytes), generate.Specials(m.Tokenizer)
		}
	})
	if m.grammarErr != nil {
		return nil, m.grammarErr
	}
	return m.compiled.Get(f.key, func() (*grammar.Grammar, error) {
		p, err := f.part()
		if err != nil {
			return nil, err
		}
		return grammar.Compose(p)
	})
}

// schemaFormat is a JSON schema.
func schemaFormat(raw json.RawMessage) *format {
	return &format{"schema " + string(raw), func() (grammar.Part, error) { return grammar.Schema(raw) }}
}

func jsonFormat() *format {
	return &format{"json", func() (grammar.Part, error) { return grammar.Object(), nil }}
}

func gbnfFormat(text string) *format {
	return &format{"gbnf " + text, func() (grammar.Part, error) { return grammar.GBNF(text) }}
}

func regexFormat(pattern string) *format {
	return &format{"regex " + pattern, func() (grammar.Part, error) { return grammar.Regex(pattern) }}
}

func choiceFormat(texts []string) *format {
	key, _ := json.Marshal(texts)
	return &format{"choice " + string(key), func() (grammar.Part, error) { return grammar.Choice(texts) }}
}

// structured are the fields by which programs ask for a format: OpenAI's, those of
// llama.cpp's server (grammar, json_schema) and those of vLLM.
type structured struct {
	ResponseFormat *struct {
		Type       string          `json:"type"`
		Schema     json.RawMessage `json:"schema"` // llama.cpp's
		JSONSchema *struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	} `json:"response_format"`
	Grammar    string            `json:"grammar"`
	JSONSchema json.RawMessage   `json:"json_schema"`
	Outputs    *structuredOutput `json:"structured_outputs"`

	also []*format // what a protocol asks for in words of its own
}

type structuredOutput struct {
	JSON    json.RawMessage `json:"json"`
	Regex   string          `json:"regex"`
	Choice  []string        `json:"choice"`
	Grammar string          `json:"grammar"`
	Object  bool            `json:"json_object"`
}

func said(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// format returns what is asked for, nil where nothing is.
func (q *structured) format() (*format, error) {
	all := slices.Clone(q.also)
	if r := q.ResponseFormat; r != nil {
		switch {
		case r.Type == "text" || r.Type == "":
		case r.Type == "json_object" && said(r.Schema):
			all = append(all, schemaFormat(r.Schema))
		case r.Type == "json_object":
			all = append(all, jsonFormat())
		case r.Type == "json_schema" && r.JSONSchema != nil && said(r.JSONSchema.Schema):
			all = append(all, schemaFormat(r.JSONSchema.Schema))
		case r.Type == "json_schema" && said(r.Schema):
			all = append(all, schemaFormat(r.Schema))
		case r.Type == "json_schema":
			return nil, invalid("response_format", "response_format has no json_schema.schema")
		default:
			return nil, invalid("response_format", "response_format is of type %q", r.Type)
		}
	}
	if q.Grammar != "" {
		all = append(all, gbnfFormat(q.Grammar))
	}
	if said(q.JSONSchema) {
		all = append(all, schemaFormat(q.JSONSchema))
	}
	if o := q.Outputs; o != nil {
		if said(o.JSON) {
			raw := o.JSON
			var text string
			if json.Unmarshal(raw, &text) == nil {
				raw = json.RawMessage(text)
			}
			all = append(all, schemaFormat(raw))
		}
		if o.Regex != "" {
			all = append(all, regexFormat(o.Regex))
		}
		if len(o.Choice) > 0 {
			all = append(all, choiceFormat(o.Choice))
		}
		if o.Grammar != "" {
			all = append(all, gbnfFormat(o.Grammar))
		}
		if o.Object {
			all = append(all, jsonFormat())
		}
	}
	switch len(all) {
	case 0:
		return nil, nil
	case 1:
		return all[0], nil
	}
	return nil, invalid("response_format", "an answer obeys one format, and %d are asked for", len(all))
}
