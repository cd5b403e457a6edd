package answer

import (
	"encoding/json"
	"strings"
	"unicode"
)

// A Tool is what a Reader knows of a tool: the JSON types of its parameters, "" where
// the schema does not tell.
type Tool struct {
	Name       string
	Parameters map[string]string
}

// ParseTool reads {"type": "function", "function": {"name", "parameters"}}.
func ParseTool(raw []byte) (Tool, bool) {
	var t struct {
		Function struct {
			Name       string `json:"name"`
			Parameters struct {
				Properties map[string]struct {
					Type json.RawMessage `json:"type"`
				} `json:"properties"`
			} `json:"parameters"`
		} `json:"function"`
	}
	if json.Unmarshal(raw, &t) != nil || t.Function.Name == "" {
		return Tool{}, false
	}
	tool := Tool{t.Function.Name, map[string]string{}}
	for name, p := range t.Function.Parameters.Properties {
		var kind string
		json.Unmarshal(p.Type, &kind) // a list of types is none
		tool.Parameters[name] = kind
	}
	return tool, true
}

// A Reader reads one answer. It is used by one goroutine.
type Reader struct {
	f       *Format
	tools   map[string]Tool
	calling bool // calls are looked for

	buf      string
	specials []span // within buf
	held     string // of a call that may turn out to be none
	before   string // white space in front of that
	went     bool   // text came before that
	state    state
	begun    bool // something was given out
	blank    string
	skip     int // bytes of buf that begin no call
	closed   bool

	calls  int
	name   string
	key    string // of an argument
	object object
	fields int
	body   kindOfBody
	parts  []Part
}

type span struct{ start, end int }

type state int

const (
	inText state = iota
	inReasoning
	atOpen
	atBefore
	inName
	atBehind
	inArguments
	inRest
	atAfter
	atNext
	inHeader
	inBody
)

// NewReader returns a reader of the answer behind a prompt. Calls are read of the given
// tools' kind; where there are none, what looks like a call is text.
func (f *Format) NewReader(prompt string, tools []Tool) *Reader {
	r := &Reader{f: f, tools: map[string]Tool{}, calling: len(tools) > 0 && (f.Calls != nil || f.Harmony)}
	for _, t := range tools {
		r.tools[t.Name] = t
	}
	open := strings.TrimSpace(f.ThinkOpen)
	switch {
	case f.Harmony:
		r.state = inHeader
	case open != "" && strings.HasSuffix(strings.TrimSpace(prompt), open):
		r.state = inReasoning
	}
	return r
}

// Push takes more of the answer; special says that it is the spelling of a special token,
// which stands in nothing that is given out.
func (r *Reader) Push(text string, special bool) []Part {
	if special {
		r.specials = append(r.specials, span{len(r.buf), len(r.buf) + len(text)})
	}
	r.buf += text
	return r.run()
}

// Close takes the end of the answer, and gives the rest.
func (r *Reader) Close() []Part {
	r.closed = true
	return r.run()
}

// Calls returns how many calls there were.
func (r *Reader) Calls() int { return r.calls }

func (r *Reader) run() []Part {
	r.parts = nil
	for r.step() {
	}
	return r.parts
}

// step goes on by something, or returns false where more text is needed.
func (r *Reader) step() bool {
	switch r.state {
	case inText:
		return r.text()
	case inReasoning:
		return r.reasoning()
	case atOpen:
		return r.literal(r.f.Calls.Open, atBefore)
	case atBefore:
		return r.literal(r.f.Calls.Before, inName)
	case inName:
		if r.f.Calls.Arguments == StyleObject {
			return r.readObject()
		}
		return r.readName()
	case atBehind:
		return r.behind()
	case inArguments:
		if r.f.Calls.Arguments == StyleTagged {
			return r.tagged()
		}
		return r.jsonArguments()
	case inRest:
		return r.rest()
	case atAfter:
		return r.after()
	case atNext:
		return r.next()
	case inHeader:
		return r.header()
	}
	return r.harmonyBody()
}

// take removes n bytes of buf, and returns them without special tokens.
func (r *Reader) take(n int) string {
	var out strings.Builder
	at := 0
	var left []span
	for _, s := range r.specials {
		if s.start >= n {
			left = append(left, span{s.start - n, s.end - n})
			continue
		}
		out.WriteString(r.buf[at:s.start])
		at = min(s.end, n)
	}
	out.WriteString(r.buf[at:n])
	r.buf, r.specials = r.buf[n:], left
	r.skip = max(0, r.skip-n)
	return out.String()
}

// hold removes n bytes that are part of what may turn out to be no call.
func (r *Reader) hold(n int) { r.held += r.buf[:n]; r.take(n) }

// fail gives what looked like a call out as text.
func (r *Reader) fail() bool {
	text := r.before + r.held + r.buf
	r.skip = len(r.before) + 1
	r.held, r.before, r.buf, r.specials = "", "", text, nil
	r.state, r.begun = inText, r.went
	return true
}

func (r *Reader) emit(kind Kind, text string) {
	if text == "" && kind != Call && kind != CallEnd {
		return
	}
	if kind == Text || kind == Reasoning {
		// White space at the beginning and end of a part is the format's.
		text = r.blank + text
		r.blank = ""
		trimmed := strings.TrimRightFunc(text, unicode.IsSpace)
		text, r.blank = trimmed, text[len(trimmed):]
		if !r.begun {
			text = strings.TrimLeftFunc(text, unicode.IsSpace)
		}
		if text == "" {
			if !r.begun {
				r.blank = ""
			}
			return
		}
		r.begun = true
	}
	r.parts = append(r.parts, Part{kind, text, max(0, r.calls-1)})
}

// turn goes on with something else.
func (r *Reader) turn(s state) { r.state, r.begun, r.blank = s, false, "" }

type marker struct {
	text string
	to   state
	keep bool // it is read again
}

// text reads up to the next thing that is none.
func (r *Reader) text() bool {
	var marks []marker
	add := func(text string, to state, keep bool) {
		if text = strings.TrimSpace(text); text != "" {
			marks = append(marks, marker{text, to, keep})
		}
	}
	add(r.f.ThinkOpen, inReasoning, false)
	add(r.f.TextOpen, inText, false)
	if r.calls == 0 && !r.begun { // behind reasoning
		_, rest := firstTag(strings.TrimSpace(r.f.ThinkClose))
		add(strings.TrimSuffix(rest, strings.TrimSpace(r.f.TextOpen)), inText, false)
		end, _ := firstTag(strings.TrimSpace(r.f.ThinkClose)) // of reasoning that was left out
		add(end, inText, false)
	}
	if r.calling {
		t := r.f.Calls.Trigger()
		if t != "" {
			add(t, atOpen, true)
		} else if r.bare() {
			return r.state != inText
		}
	}
	at, hit := len(r.buf), marker{}
	for _, m := range marks {
		from := 0
		if m.keep {
			from = min(r.skip, len(r.buf))
		}
		if i := strings.Index(r.buf[from:], m.text); i >= 0 && from+i < at {
			at, hit = from+i, m
		}
	}
	if hit.text == "" {
		n := len(r.buf)
		if !r.closed {
			for _, m := range marks {
				n = min(n, len(r.buf)-heldBack(r.buf, m.text))
			}
		}
		r.emit(Text, r.take(n))
		if r.closed && r.begun && r.buf == "" && r.blank != "" {
			r.parts, r.blank = append(r.parts, Part{Kind: Text, Text: r.blank}), ""
		}
		return false
	}
	r.emit(Text, r.take(at))
	if !hit.keep {
		r.take(len(hit.text))
	}
	if hit.keep {
		r.before, r.went = r.blank, r.begun
	}
	r.turn(hit.to)
	return true
}

// bare looks for a call that nothing announces: an object that is the whole answer.
func (r *Reader) bare() bool {
	if r.begun || r.skip > 0 {
		return false
	}
	t := strings.TrimSpace(r.buf)
	if t == "" {
		return !r.closed
	}
	if t[0] == '{' && r.f.Calls.Arguments == StyleObject {
		r.before, r.went = "", false
		r.turn(inName)
		return true
	}
	return false
}

// heldBack returns how many bytes at the end of text may begin mark.
func heldBack(text, mark string) int {
	for n := min(len(mark)-1, len(text)); n > 0; n-- {
		if strings.HasSuffix(text, mark[:n]) {
			return n
		}
	}
	return 0
}

// firstTag cuts text behind its first tag.
func firstTag(text string) (first, rest string) {
	if m := tag.FindStringIndex(text); m != nil {
		return text[:m[1]], text[m[1]:]
	}
	return text, ""
}

func (r *Reader) reasoning() bool {
	end, _ := firstTag(strings.TrimSpace(r.f.ThinkClose))
	if end == "" {
		r.turn(inText)
		return true
	}
	if open := strings.TrimSpace(r.f.ThinkOpen); !r.begun { // a model may open again what the prompt has opened
		if strings.HasPrefix(strings.TrimSpace(r.buf), open) {
			r.take(strings.Index(r.buf, open) + len(open))
			return true
		}
		if !r.closed && strings.HasPrefix(open, strings.TrimSpace(r.buf)) {
			return false
		}
	}
	if i := strings.Index(r.buf, end); i >= 0 {
		r.emit(Reasoning, r.take(i))
		r.take(len(end))
		r.turn(inText)
		return true
	}
	n := len(r.buf)
	if !r.closed {
		n -= heldBack(r.buf, end)
	}
	r.emit(Reasoning, r.take(n))
	return false
}

// find looks for lit at the beginning of buf, whatever white space is around it: n is
// what it takes, 0 where it is not there; more: it may come.
func (r *Reader) find(lit string) (n int, more bool) {
	lit = strings.TrimSpace(lit)
	rest := strings.TrimLeftFunc(r.buf, unicode.IsSpace)
	lead := len(r.buf) - len(rest)
	switch {
	case strings.HasPrefix(rest, lit):
		return lead + len(lit), false
	case strings.HasPrefix(lit, rest) && !r.closed:
		return 0, true
	}
	return 0, false
}

func (r *Reader) literal(lit string, to state) bool {
	if strings.TrimSpace(lit) == "" {
		r.state = to
		return true
	}
	n, more := r.find(lit)
	switch {
	case n > 0:
		r.hold(n)
		r.state = to
		return true
	case more:
		return false
	}
	return r.fail()
}

func inNameChar(c byte) bool {
	return isLetter(c) || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.' || c >= 0x80
}

func (r *Reader) readName() bool {
	lead := len(r.buf) - len(strings.TrimLeftFunc(r.buf, unicode.IsSpace))
	n := lead
	for n < len(r.buf) && inNameChar(r.buf[n]) {
		n++
	}
	if n == len(r.buf) && !r.closed {
		return false
	}
	if n == lead || n == len(r.buf) {
		return r.fail()
	}
	r.name = r.buf[lead:n]
	if _, ok := r.tools[r.name]; !ok && r.f.Calls.Trigger() == "" {
		return r.fail()
	}
	r.hold(n)
	r.state = atBehind
	return true
}

// mostBehind bounds what stands between a name and its arguments, such as a number.
const mostBehind = 64

func (r *Reader) behind() bool {
	if lit := strings.TrimSpace(r.f.Calls.Behind); lit != "" {
		i := strings.Index(r.buf, lit)
		if i < 0 || i > mostBehind {
			if len(r.buf) > mostBehind+len(lit) || r.closed {
				return r.fail()
			}
			return false
		}
		r.hold(i + len(lit))
	}
	r.beginCall(r.name)
	r.object, r.fields = object{}, 0
	r.state = inArguments
	return true
}

func (r *Reader) beginCall(name string) {
	r.held, r.name = "", name
	r.calls++
	r.blank = ""
	r.emit(Call, name)
}

func (r *Reader) endCall() {
	r.emit(CallEnd, "")
	r.begun = false
	r.state = atAfter
}

// jsonArguments gives an object's bytes as they come.
func (r *Reader) jsonArguments() bool {
	if !r.object.begun {
		rest := strings.TrimLeftFunc(r.buf, unicode.IsSpace)
		if rest == "" && !r.closed {
			return false
		}
		if !strings.HasPrefix(rest, "{") { // none
			r.emit(Arguments, "{}")
			r.endCall()
			return true
		}
		r.take(len(r.buf) - len(rest))
	}
	n, end := r.object.scan(r.buf)
	r.emit(Arguments, r.buf[:n])
	r.take(n)
	if end || r.closed {
		r.endCall()
		if r.f.Calls != nil && r.f.Calls.Arguments == StyleObject {
			r.object, r.state = object{depth: 1}, inRest
		}
		return true
	}
	return false
}

// rest reads what an object holds behind the arguments.
func (r *Reader) rest() bool {
	n, end := r.object.scan(r.buf)
	r.take(n)
	if end || r.closed {
		r.state = atAfter
		return true
	}
	return false
}

func (r *Reader) after() bool {
	lit := r.f.Calls.After
	if strings.TrimSpace(lit) != "" {
		n, more := r.find(lit)
		if more {
			return false
		}
		r.take(n)
	}
	r.state = atNext
	return true
}

// next reads what stands behind a call: another one, or what ends them.
func (r *Reader) next() bool {
	c := r.f.Calls
	for _, m := range []struct {
		lit string
		to  state
	}{{c.Close, inText}, {c.Between, atBefore}, {c.Before, inName}} {
		if strings.TrimSpace(m.lit) == "" {
			continue
		}
		n, more := r.find(m.lit)
		if more {
			return false
		}
		if n > 0 {
			r.hold(n)
			if m.to == inText {
				r.held = ""
			}
			r.state = m.to
			return true
		}
	}
	if rest := strings.TrimSpace(r.buf); c.Arguments == StyleObject && strings.TrimSpace(c.Before+c.Between) == "" && strings.HasPrefix(rest, "{") {
		r.state = inName // objects follow one another
		return true
	}
	if strings.TrimSpace(c.Before) == "" && strings.TrimSpace(c.Between) != "" || r.closed || strings.TrimSpace(r.buf) != "" {
		r.turn(inText)
		return true
	}
	return false
}
