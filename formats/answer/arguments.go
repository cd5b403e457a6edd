package answer

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode"
)

// An object scans a JSON object as it comes.
type object struct {
	begun, inString, escaped bool
	depth                    int
}

// scan returns how many bytes of s belong to the object, and whether it ends there.
func (o *object) scan(s string) (n int, end bool) {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case o.escaped:
			o.escaped = false
		case o.inString && c == '\\':
			o.escaped = true
		case c == '"':
			o.inString = !o.inString
		case o.inString:
		case c == '{' || c == '[':
			o.begun = true
			o.depth++
		case c == '}' || c == ']':
			if o.depth--; o.depth <= 0 {
				return i + 1, true
			}
		}
	}
	return len(s), false
}

// head returns the name in an object's beginning and where its arguments begin, where
// the name stands first and an object of arguments second: ok; more: that may come.
func (r *Reader) head(text string) (name string, n int, ok, more bool) {
	c := r.f.Calls
	at := 0
	// next goes on to behind one of the texts, and white space in front of it.
	next := func(texts ...string) bool {
		for at < len(text) && strings.IndexByte(" \t\r\n", text[at]) >= 0 {
			at++
		}
		rest := text[at:]
		for _, t := range texts {
			if strings.HasPrefix(rest, t) {
				at += len(t)
				return true
			}
			more = more || strings.HasPrefix(t, rest) && !r.closed
		}
		return false
	}
	if !next("{") || !next(`"`+c.NameKey+`"`) || !next(":") || !next(`"`) {
		return "", 0, false, more
	}
	end := strings.IndexAny(text[at:], `"\`)
	if end < 0 {
		return "", 0, false, !r.closed
	}
	if name = text[at : at+end]; name == "" || text[at+end] != '"' {
		return "", 0, false, false
	}
	at += end + 1
	if more = false; !next(",") || !next(`"`+c.ArgKey+`"`, `"arguments"`, `"parameters"`) || !next(":") || !next("{") {
		return "", 0, false, more
	}
	return name, at - 1, true, false
}

// readObject reads an object that holds name and arguments. Where they stand in this order
// the arguments are given out as they come; else when the object is whole.
func (r *Reader) readObject() bool {
	rest := strings.TrimLeftFunc(r.buf, unicode.IsSpace)
	if rest == "" && !r.closed {
		return false
	}
	if !strings.HasPrefix(rest, "{") {
		return r.fail()
	}
	lead := len(r.buf) - len(rest)
	if name, n, ok, more := r.head(rest); more {
		return false
	} else if _, known := r.tools[name]; ok && (known || r.f.Calls.Trigger() != "") {
		r.hold(lead + n)
		r.beginCall(name)
		r.object, r.state = object{}, inArguments
		return true
	}
	var o object
	n, end := o.scan(rest)
	if !end {
		if r.closed {
			return r.fail()
		}
		return false
	}
	c := r.f.Calls
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(rest[:n]), &fields) != nil {
		return r.fail()
	}
	if inner, ok := fields["function"]; ok && fields[c.NameKey] == nil {
		fields = nil
		if json.Unmarshal(inner, &fields) != nil {
			return r.fail()
		}
	}
	var name string
	if json.Unmarshal(fields[c.NameKey], &name) != nil || name == "" {
		return r.fail()
	}
	if _, ok := r.tools[name]; !ok && c.Trigger() == "" {
		return r.fail()
	}
	arguments := fields[c.ArgKey]
	for _, key := range []string{"arguments", "parameters"} { // models mistake one for the other
		if arguments == nil {
			arguments = fields[key]
		}
	}
	var text string
	if json.Unmarshal(arguments, &text) == nil && text != "" {
		arguments = json.RawMessage(text)
	}
	if len(arguments) == 0 || string(arguments) == "null" {
		arguments = json.RawMessage("{}")
	}
	r.hold(lead + n)
	r.beginCall(name)
	r.emit(Arguments, string(arguments))
	r.endCall()
	return true
}

// tagged reads one argument that stands by itself, or the end of all.
func (r *Reader) tagged() bool {
	c := r.f.Calls
	if r.object.begun {
		return r.value()
	}
	if r.fields > 0 && c.End != "" { // what separates values
		n, more := r.find(c.ValueClose)
		if more {
			return false
		}
		r.take(n)
	}
	if c.End != "" {
		n, more := r.find(c.End)
		if more {
			return false
		}
		if n > 0 {
			r.take(n)
			return r.endTagged()
		}
	} else {
		n, more := r.find(c.KeyOpen)
		if more {
			return false
		}
		if n == 0 {
			return r.endTagged()
		}
		// The key's opening is taken with the key, when that is whole.
	}
	lead, _ := r.find(c.KeyOpen)
	i := strings.Index(r.buf[lead:], strings.TrimSpace(c.KeyClose))
	if i < 0 {
		if r.closed {
			return r.endTagged()
		}
		return false
	}
	key := strings.Trim(strings.TrimSpace(r.buf[lead:lead+i]), `"'`)
	n := lead + i + len(strings.TrimSpace(c.KeyClose))
	isString := false
	if c.KeyEnd != "" {
		j := strings.Index(r.buf[n:], c.KeyEnd)
		if j < 0 {
			if r.closed {
				return r.endTagged()
			}
			return false
		}
		isString = r.buf[n:n+j] == c.StringType
		n += j + len(c.KeyEnd)
	}
	r.take(n)
	quoted, _ := json.Marshal(key)
	head := "{"
	if r.fields > 0 {
		head = ","
	}
	r.emit(Arguments, head+string(quoted)+":")
	r.fields++
	r.object = object{begun: true, inString: isString}
	r.key = key
	return true
}

// value reads the value of the key in held.
func (r *Reader) value() bool {
	c := r.f.Calls
	key, isString := r.key, r.object.inString
	done := func(value string, n int) bool {
		r.take(n)
		r.emit(Arguments, value)
		r.object = object{}
		return true
	}
	if c.Quote != "" {
		rest := strings.TrimLeftFunc(r.buf, unicode.IsSpace)
		lead := len(r.buf) - len(rest)
		if rest == "" && !r.closed {
			return false
		}
		n, ok := literal(rest, c)
		if !ok && !r.closed {
			return false
		}
		return done(toJSON(rest[:n], c.Quote), lead+n)
	}
	end := strings.TrimSpace(c.ValueClose)
	i := strings.Index(r.buf, end)
	n := i + len(end)
	if i < 0 {
		if !r.closed {
			return false
		}
		i, n = len(r.buf), len(r.buf)
	}
	text := r.buf[:i]
	// Line breaks belong to the format where the template writes them.
	if strings.HasSuffix(c.KeyClose+c.KeyEnd, "\n") {
		text = strings.TrimPrefix(text, "\n")
	}
	if strings.HasPrefix(c.ValueClose, "\n") {
		text = strings.TrimSuffix(text, "\n")
	}
	kind, known := r.tools[r.name].Parameters[key]
	switch {
	case c.KeyEnd != "" && isString, known && kind == "string":
	case json.Valid([]byte(text)):
		return done(strings.TrimSpace(text), n)
	default:
		if v := toJSON(strings.TrimSpace(text), `'`); kind != "" && json.Valid([]byte(v)) && v != quote(strings.TrimSpace(text)) {
			return done(v, n)
		}
	}
	return done(quote(text), n)
}

func (r *Reader) endTagged() bool {
	if r.fields == 0 {
		r.emit(Arguments, "{}")
	} else {
		r.emit(Arguments, "}")
	}
	r.endCall()
	return true
}

func quote(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(text)
	return strings.TrimSuffix(b.String(), "\n")
}

// literal returns the length of the value at the beginning of s, which ends in front of
// what separates values or ends them, outside strings and brackets.
func literal(s string, c *Calls) (n int, ok bool) {
	depth := 0
	sep := strings.TrimSpace(c.ValueClose)
	for n < len(s) {
		rest := s[n:]
		if depth == 0 && (strings.HasPrefix(rest, sep) || strings.HasPrefix(rest, c.End)) {
			return n, true
		}
		if q := quoteAt(rest, c.Quote); q != "" {
			end := closing(rest[len(q):], q)
			if end < 0 {
				return len(s), false
			}
			n += len(q) + end + len(q)
			continue
		}
		switch rest[0] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		}
		n++
	}
	return n, false
}

// quoteAt returns the quotation mark at the beginning of s, "" where there is none.
func quoteAt(s, q string) string {
	for _, m := range []string{q, `"`, `'`} {
		if strings.HasPrefix(s, m) && (m == q || len(q) == 1) {
			return m
		}
	}
	return ""
}

// closing returns where a string ends that began with q; -1: it does not.
func closing(s, q string) int {
	for i := 0; i < len(s); i++ {
		if len(q) == 1 && s[i] == '\\' {
			i++
			continue
		}
		if strings.HasPrefix(s[i:], q) {
			return i
		}
	}
	return -1
}

var bareKey = regexp.MustCompile(`^[A-Za-z_][\w.-]*`)

// toJSON writes a value as JSON: one of Python's, or one whose strings stand in marks
// of the model's own and whose keys in none. What is no such value is a string.
func toJSON(s, q string) string {
	var b strings.Builder
	for rest := s; rest != ""; {
		if m := quoteAt(rest, q); m != "" {
			end := closing(rest[len(m):], m)
			if end < 0 {
				return quote(s)
			}
			text, whole := rest[len(m):len(m)+end], rest[:2*len(m)+end]
			rest = rest[2*len(m)+end:]
			if m == `"` && json.Valid([]byte(whole)) {
				b.WriteString(whole)
				continue
			}
			if len(m) == 1 {
				text = unescape(text)
			}
			b.WriteString(quote(text))
			continue
		}
		if word := bareKey.FindString(rest); word != "" {
			switch word {
			case "True", "true":
				b.WriteString("true")
			case "False", "false":
				b.WriteString("false")
			case "None", "null":
				b.WriteString("null")
			default:
				b.WriteString(quote(word))
			}
			rest = rest[len(word):]
			continue
		}
		if n := numberLength(rest); n > 0 {
			b.WriteString(rest[:n])
			rest = rest[n:]
			continue
		}
		switch c := rest[0]; c {
		case '(':
			b.WriteByte('[')
		case ')':
			b.WriteByte(']')
		default:
			b.WriteByte(c)
		}
		rest = rest[1:]
	}
	if out := b.String(); json.Valid([]byte(out)) {
		return out
	}
	return quote(s)
}

func numberLength(s string) int {
	n := 0
	for n < len(s) && strings.IndexByte("+-.0123456789eE", s[n]) >= 0 {
		n++
	}
	return n
}

var escapes = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t", `\r`, "\r", `\"`, `"`, `\'`, `'`)

func unescape(s string) string { return escapes.Replace(s) }
