package tokenizer

import "fmt"

// postProcessor holds what a single text gets before and behind.
type postProcessor struct {
	prefix, suffix []int32
}

// parsePost reads the post-processor of a tokenizer.json object.
func parsePost(raw []byte) (postProcessor, error) {
	p, err := parsePostStage(raw)
	if n := len(p.prefix) + len(p.suffix); err == nil && n > maxAddedIDs {
		err = fmt.Errorf("puts %d tokens around every text, more than %d", n, maxAddedIDs)
	}
	return p, err
}

func parsePostStage(raw []byte) (postProcessor, error) {
	typ, err := typeOf(raw)
	if err != nil || typ == "" {
		return postProcessor{}, err
	}
	switch typ {
	case "ByteLevel": // concerns offsets only
		return postProcessor{}, nil
	case "TemplateProcessing":
		return parseTemplatePost(raw)
	case "BertProcessing", "RobertaProcessing":
		return parseBertPost(raw)
	case "Sequence":
		var c struct {
			Type       string
			Processors []rawJSON
		}
		if err := strict(raw, &c); err != nil {
			return postProcessor{}, err
		}
		var out postProcessor
		for _, r := range c.Processors {
			p, err := parsePost(r)
			if err != nil {
				return out, err
			}
			out.prefix = append(append([]int32(nil), p.prefix...), out.prefix...)
			out.suffix = append(out.suffix, p.suffix...)
		}
		return out, nil
	}
	return postProcessor{}, unsupported("post_processor %q", typ)
}

func parseTemplatePost(raw []byte) (postProcessor, error) {
	type ref struct {
		ID     string `json:"id"`
		TypeID int    `json:"type_id"`
	}
	var c struct {
		Type   string
		Single []struct {
			SpecialToken, Sequence *ref
		}
		Pair          rawJSON // a single text is all that this package encodes
		SpecialTokens map[string]struct {
			ID     string
			IDs    []int32
			Tokens []string
		}
	}
	var p postProcessor
	if err := strict(snake(raw), &c); err != nil {
		return p, err
	}
	seen := false
	for _, s := range c.Single {
		switch {
		case s.Sequence != nil:
			if seen || s.Sequence.ID != "A" {
				return p, unsupported("TemplateProcessing with sequence %q in its single template", s.Sequence.ID)
			}
			seen = true
		case s.SpecialToken != nil:
			t, ok := c.SpecialTokens[s.SpecialToken.ID]
			if !ok {
				return p, fmt.Errorf("TemplateProcessing: special token %q is not listed", s.SpecialToken.ID)
			}
			for _, id := range t.IDs {
				if id < 0 {
					return p, fmt.Errorf("TemplateProcessing: special token %q has id %d", s.SpecialToken.ID, id)
				}
			}
			if seen {
				p.suffix = append(p.suffix, t.IDs...)
			} else {
				p.prefix = append(p.prefix, t.IDs...)
			}
		default:
			return p, fmt.Errorf("TemplateProcessing: a piece is neither SpecialToken nor Sequence")
		}
	}
	if !seen {
		return p, unsupported("TemplateProcessing without the text in its single template")
	}
	return p, nil
}

func parseBertPost(raw []byte) (postProcessor, error) {
	var c struct {
		Type                        string
		Sep, Cls                    []any
		TrimOffsets, AddPrefixSpace bool // concern offsets only
	}
	var p postProcessor
	if err := strict(snake(raw), &c); err != nil {
		return p, err
	}
	for _, t := range []struct {
		pair []any
		to   *[]int32
	}{{c.Cls, &p.prefix}, {c.Sep, &p.suffix}} {
		if len(t.pair) != 2 {
			return p, fmt.Errorf("%s: cls and sep must be [token, id]", c.Type)
		}
		id, ok := t.pair[1].(float64)
		if !ok || id < 0 || id > 1<<31-1 || id != float64(int32(id)) {
			return p, fmt.Errorf("%s: %v is not an id", c.Type, t.pair[1])
		}
		*t.to = []int32{int32(id)}
	}
	return p, nil
}
