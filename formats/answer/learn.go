package answer

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/nstf/nstf/formats/tokenizer"
)

// Made-up words that no template has in it.
const (
	probeUser   = "uquzuser"
	probeText   = "tquztext"
	probeReason = "rquzreason"
	probeNumber = "90817263"
)

var (
	probeNames  = [2]string{"fquzone", "fquztwo"}
	probeKeys   = [2]string{"kquzone", "kquztwo"}
	probeString = [2]string{"vquzone", "vquztwo"}
	probeSystem = [2]string{"squzone", "squztwo"}
)

// A prober renders conversations by one template.
type prober struct {
	ctx   context.Context
	t     *tokenizer.Template
	tools []json.RawMessage
	// gen is what a question renders to with the opening of the answer, base without.
	gen, base string
}

// Learn returns how a model writes its answers, by the chat template t, whose text is
// source. What the template does not show the Format does not have. An error is that of a
// template that does not even render a question.
func Learn(ctx context.Context, t *tokenizer.Template, source string) (*Format, error) {
	p := &prober{ctx: ctx, t: t}
	for _, name := range probeNames {
		p.tools = append(p.tools, json.RawMessage(fmt.Sprintf(`{"type":"function","function":{"name":%q,"description":"d","parameters":{"type":"object","properties":{%q:{"type":"string","description":"d"},%q:{"type":"integer","description":"d"}},"required":[%q]}}}`,
			name, probeKeys[0], probeKeys[1], probeKeys[0])))
	}
	var err error
	if p.gen, err = p.render(true); err != nil {
		p.tools = nil // a template may know no tools
		if p.gen, err = p.render(true); err != nil {
			return nil, err
		}
	}
	if p.base, err = p.render(false); err != nil {
		p.base = p.gen
	}
	f := &Format{Harmony: strings.Contains(source, "<|channel|>analysis<|message|>")}
	p.learnOrder(f)
	if f.Harmony {
		return f, nil
	}
	p.learnReasoning(f, source)
	p.learnText(f)
	if p.tools != nil {
		f.Calls = p.learnCalls(f)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return f, nil
}

// render renders the question, and what follows it.
func (p *prober) render(open bool, more ...tokenizer.Message) (string, error) {
	messages := append([]tokenizer.Message{{Role: "user", Content: probeUser}}, more...)
	r, err := p.t.Render(p.ctx, messages, tokenizer.RenderOptions{Tools: p.tools, AddGenerationPrompt: open})
	return r.Text, err
}

// learnOrder has the template write conversations that some refuse.
func (p *prober) learnOrder(f *Format) {
	say := func(role, text string) tokenizer.Message { return tokenizer.Message{Role: role, Content: text} }
	first, second := say("system", probeSystem[0]), say("system", probeSystem[1])
	question, reply := say("user", probeUser), say("assistant", probeText)
	f.System = p.writes(first, question)
	f.Systems = f.System && p.writes(first, second, question) && p.writes(first, question, reply, second, question) && p.writes(question, reply, second, question)
	f.Runs = p.writes(question, question) && p.writes(question, reply, reply, question)
	called := func(id string) []tokenizer.Message {
		call, result := say("assistant", ""), say("tool", probeText)
		call.ToolCalls = []json.RawMessage{json.RawMessage(fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":%q,"arguments":{%q:%q}}}`, id, probeNames[0], probeKeys[0], probeString[0]))}
		result.More = json.RawMessage(fmt.Sprintf(`{"tool_call_id":%q,"name":%q}`, id, probeNames[0]))
		return []tokenizer.Message{question, call, result}
	}
	short := called("abcdefgh0")
	f.AnyID = p.writes(called("call_0123456789")...) || !p.writes(short...)
	f.Interrupts = p.writes(append(short, question)...) || !p.writes(short...)
}

// writes reports whether a conversation is rendered with all its contents, in order.
func (p *prober) writes(messages ...tokenizer.Message) bool {
	r, err := p.t.Render(p.ctx, messages, tokenizer.RenderOptions{Tools: p.tools, AddGenerationPrompt: true})
	text := r.Text
	for _, m := range messages {
		var ok bool
		if _, text, ok = strings.Cut(text, m.Content); !ok {
			return false
		}
	}
	return err == nil
}

// answer renders an answer behind the question, and returns what the model has written
// of it, with what ends its turn.
func (p *prober) answer(m tokenizer.Message) (string, bool) {
	m.Role = "assistant"
	s, err := p.render(false, m)
	if err != nil {
		return "", false
	}
	n := commonPrefix(s, p.gen)
	if n < min(len(p.base), len(p.gen))/2 {
		return "", false // the answer changed what stands before it
	}
	return s[n:], true
}

var closingTag = regexp.MustCompile(`(</([A-Za-z_:-]+)>|\[/([A-Z_]+)\]|</([^<>]+)>)`)

func (p *prober) learnReasoning(f *Format, source string) {
	for _, key := range []string{"reasoning_content", "reasoning", "thinking"} {
		more := json.RawMessage(fmt.Sprintf(`{%q:%q}`, key, probeReason))
		s, ok := p.answer(tokenizer.Message{Content: probeText, More: more})
		if !ok {
			continue
		}
		at, text := strings.Index(s, probeReason), strings.Index(s, probeText)
		if at < 0 || text < at {
			continue
		}
		f.ThinkOpen, f.ThinkClose = s[:at], s[at+len(probeReason):text]
		if strings.TrimSpace(f.ThinkOpen) == "" { // it stands in the prompt
			f.ThinkOpen = opening(f.ThinkClose)
		}
		break
	}
	if strings.TrimSpace(f.ThinkOpen) == "" || strings.TrimSpace(f.ThinkClose) == "" {
		f.ThinkOpen, f.ThinkClose = "", ""
		for _, name := range []string{"<think>", "<seed:think>", "[THINK]"} {
			if closing := name[:1] + "/" + name[1:]; strings.Contains(source, name) || strings.Contains(source, closing) {
				f.ThinkOpen, f.ThinkClose = name, closing
				break
			}
		}
	}
}

// opening returns the tag that a closing one closes, "" where there is none.
func opening(text string) string {
	m := closingTag.FindString(text)
	return strings.Replace(m, "/", "", 1)
}

func (p *prober) learnText(f *Format) {
	s, ok := p.answer(tokenizer.Message{Content: probeText})
	if !ok {
		return
	}
	if at := strings.Index(s, probeText); at > 0 {
		f.TextOpen = f.withoutReasoning(s[:at])
	}
}

// withoutReasoning returns text behind the reasoning in it, which has nothing in it.
func (f *Format) withoutReasoning(text string) string {
	if end := strings.TrimSpace(f.ThinkClose); end != "" {
		if i := strings.LastIndex(text, end); i >= 0 {
			return strings.TrimLeft(text[i+len(end):], " \n")
		}
	}
	if open := strings.TrimSpace(f.ThinkOpen); open != "" {
		text = strings.ReplaceAll(text, open, "")
	}
	return text
}

// calls renders an answer that calls the first n tools.
func (p *prober) calls(n int, id func(i int) string, content string, asText bool) (string, bool) {
	m := tokenizer.Message{Content: content}
	for i := range n {
		arguments := fmt.Sprintf(`{%q:%q,%q:%s}`, probeKeys[0], probeString[i], probeKeys[1], probeNumber)
		if asText {
			quoted, _ := json.Marshal(arguments)
			arguments = string(quoted)
		}
		m.ToolCalls = append(m.ToolCalls, json.RawMessage(fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":%q,"arguments":%s}}`, id(i), probeNames[i], arguments)))
	}
	s, ok := p.answer(m)
	return s, ok && strings.Contains(s, probeNames[0]) && strings.Contains(s, probeKeys[0]) && strings.Contains(s, probeString[0])
}

// learnCalls returns how calls are written, nil where the template shows none.
func (p *prober) learnCalls(f *Format) *Calls {
	ids := []func(i int) string{
		func(i int) string { return fmt.Sprintf("functions.%s:%d", probeNames[i], i) }, // Kimi's
		func(i int) string { return fmt.Sprintf("abcdefgh%d", i) },                     // Mistral's are of nine characters
	}
	for _, id := range ids {
		for _, content := range []string{"", probeText} {
			for _, asText := range []bool{false, true} {
				one, ok := p.calls(1, id, content, asText)
				if !ok {
					continue
				}
				two, _ := p.calls(2, id, content, asText)
				text, _ := p.answer(tokenizer.Message{Content: probeText})
				if c := readCalls(one, two, text, f); c != nil {
					return c
				}
			}
		}
	}
	return nil
}

// readCalls reads one call, two (or none) and an answer without.
func readCalls(one, two, text string, f *Format) *Calls {
	c := &Calls{}
	if _, after, ok := strings.Cut(one, probeText); ok && strings.Contains(after, probeNames[0]) {
		one = after
		if _, after, ok := strings.Cut(two, probeText); ok {
			two = after
		}
	}
	name := strings.Index(one, probeNames[0])
	before, end := c.read(one, name)
	if end < 0 {
		return nil
	}
	head := strings.TrimPrefix(f.withoutReasoning(one[:before]), f.TextOpen)
	tail := one[end:]
	// What ends the turn ends an answer in text too.
	_, ends, _ := strings.Cut(text, probeText)
	tail = tail[:len(tail)-commonSuffix(tail, ends)]
	second := strings.Index(two, probeNames[1])
	var c2 Calls
	start2, end2 := -1, -1
	if second >= 0 {
		start2, end2 = c2.read(two, second)
	}
	if i := strings.Index(two, one[before:end]); i < 0 || end2 < 0 || start2 < i+end-before {
		// One call an answer.
		c.Before, c.After = head, tail
		if i := strings.IndexAny(tail, "\n"); c.Arguments == StyleTagged && i >= 0 {
			c.After = tail[:i]
		}
		return c
	} else {
		between := two[i+end-before : start2]
		n := commonSuffix(between, head)
		c.Before, c.Open = head[len(head)-n:], head[:len(head)-n]
		between = between[:len(between)-n]
		n = commonPrefix(between, tail)
		c.After, c.Between, c.Close = between[:n], between[n:], tail[n:]
	}
	if c.Behind != c2.Behind { // a call's number stands in it
		n := commonSuffix(c.Behind, c2.Behind)
		c.Behind = c.Behind[len(c.Behind)-n:]
	}
	return c
}

// read reads the call whose name stands at s[name:]. It returns where it begins, its
// opening left away, and where it ends; -1: it is of no style that is known.
func (c *Calls) read(s string, name int) (begin, end int) {
	named := name + len(probeNames[0])
	key := strings.Index(s[named:], probeKeys[0])
	if key < 0 {
		// The arguments may stand before the name.
		return c.readObject(s, name)
	}
	key += named
	if begin, end = c.readObject(s, name); end >= 0 {
		return begin, end
	}
	if open := strings.LastIndexByte(s[:key], '{'); open >= named && strings.TrimSpace(s[open+1:key]) == `"` {
		if _, n, ok := decodeObject(s[open:]); ok {
			c.Arguments, c.Behind = StyleJSON, s[named:open]
			return name, open + n
		}
	}
	return c.readTagged(s, name, key)
}

// readObject reads a JSON object that holds name and arguments.
func (c *Calls) readObject(s string, name int) (begin, end int) {
	for at := name; ; {
		at = strings.LastIndexByte(s[:at], '{')
		if at < 0 {
			return -1, -1
		}
		o, n, ok := decodeObject(s[at:])
		if !ok || at+n <= name {
			continue
		}
		if inner, ok := o["function"].(map[string]any); ok {
			o = inner
		}
		for k, v := range o {
			if text, ok := v.(string); ok && strings.HasPrefix(text, "fquz") {
				c.NameKey = k
			}
			_, isObject := v.(map[string]any)
			text, isText := v.(string)
			if isObject || isText && strings.Contains(text, probeKeys[0]) {
				c.ArgKey = k
			}
		}
		if c.NameKey == "" || c.ArgKey == "" {
			continue
		}
		c.Arguments = StyleObject
		return at, at + n
	}
}

// readTagged reads keys and values that stand for themselves.
func (c *Calls) readTagged(s string, name, key int) (begin, end int) {
	named := name + len(probeNames[0])
	value := -1
	for _, v := range probeString {
		if i := strings.Index(s[key:], v); i >= 0 && (value < 0 || key+i < value) {
			value = key + i
		}
	}
	if value < 0 {
		return -1, -1
	}
	valued := value + len(probeString[0])
	key2 := strings.Index(s[valued:], probeKeys[1])
	if key2 < 0 {
		return -1, -1
	}
	key2 += valued
	number := strings.Index(s[key2:], probeNumber)
	if number < 0 {
		return -1, -1
	}
	number += key2
	numbered := number + len(probeNumber)
	c.Arguments = StyleTagged
	ofString, ofNumber := s[key+len(probeKeys[0]):value], s[key2+len(probeKeys[1]):number]
	c.KeyClose = ofNumber
	if rest, ok := strings.CutPrefix(ofString, ofNumber); ok {
		c.Quote = rest
	} else { // an attribute tells the type
		n, m := letterPrefix(ofString, ofNumber), letterSuffix(ofString, ofNumber)
		if n == 0 || m == 0 || n+m > len(ofString) {
			return -1, -1
		}
		for m > 1 && isLetter(ofString[len(ofString)-m]) {
			m--
		}
		for n > 1 && isLetter(ofString[n-1]) {
			n--
		}
		c.KeyClose, c.StringType, c.KeyEnd = ofString[:n], ofString[n:len(ofString)-m], ofString[len(ofString)-m:]
		if end := len(ofNumber) - m; n <= end {
			c.OtherType = ofNumber[n:end]
		}
	}
	next := strings.TrimPrefix(s[valued:key2], c.Quote)
	n := commonSuffix(next, s[named:key])
	c.KeyOpen, c.ValueClose = next[len(next)-n:], next[:len(next)-n]
	c.Behind = s[named : key-n]
	rest := s[numbered:]
	if c.ValueClose != "" && strings.HasPrefix(rest, c.ValueClose) && strings.TrimSpace(c.ValueClose) != "" {
		rest = rest[len(c.ValueClose):]
		c.End = ""
		return name, numbered + len(c.ValueClose)
	}
	// Values are separated instead: f(a=1, b=2).
	if rest == "" {
		return -1, -1
	}
	c.End = rest[:1]
	return name, numbered + 1
}

// decodeObject reads a JSON object at the beginning of s, and returns its length.
func decodeObject(s string) (map[string]any, int, bool) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var o map[string]any
	if err := d.Decode(&o); err != nil {
		return nil, 0, false
	}
	return o, int(d.InputOffset()), true
}

// tag is what is not cut in two: a token that spells itself so.
var tag = regexp.MustCompile(`<[^<>\s][^<>\n]{0,60}>|\[/?[A-Z_]+\]`)

// commonPrefix returns the length of what a and b both begin with.
func commonPrefix(a, b string) int {
	n := letterPrefix(a, b)
	for _, s := range []string{a, b} {
		for _, m := range tag.FindAllStringIndex(s, -1) {
			if m[0] < n && n < m[1] {
				n = m[0]
			}
		}
	}
	return n
}

// commonSuffix returns the length of what a and b both end with.
func commonSuffix(a, b string) int {
	n := letterSuffix(a, b)
	for _, s := range []string{a, b} {
		for _, m := range tag.FindAllStringIndex(s, -1) {
			if at := len(s) - n; m[0] < at && at < m[1] {
				n = len(s) - m[1]
			}
		}
	}
	return n
}

func letterPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func letterSuffix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
