package answer

import "strings"

// A kindOfBody is what a message of harmony holds.
type kindOfBody int

const (
	bodyText kindOfBody = iota
	bodyReasoning
	bodyCall
)

// mostHeader bounds the header of a message: an answer without one is text.
const mostHeader = 256

// header reads what stands before a message: <|channel|>NAME [to=functions.TOOL] ... <|message|>.
func (r *Reader) header() bool {
	const end = "<|message|>"
	at := strings.Index(r.buf, end)
	blank := strings.TrimSpace(r.buf) == ""
	switch {
	case blank && !r.closed:
		return false
	case blank:
		r.take(len(r.buf))
		return false
	case !headed(r.buf) || at > mostHeader || at < 0 && len(r.buf) > mostHeader+len(end):
		r.turn(inBody)
		r.body = bodyText
		return true
	case at < 0 && r.closed: // it broke off
		r.take(len(r.buf))
		return false
	case at < 0:
		return false
	}
	head := r.buf[:at]
	r.take(at + len(end))
	_, channel, _ := strings.Cut(head, "<|channel|>")
	r.turn(inBody)
	r.body = bodyText
	if strings.HasPrefix(strings.TrimSpace(channel), "analysis") {
		r.body = bodyReasoning
	}
	if _, to, ok := strings.Cut(head, "to=functions."); ok && r.calling {
		n := 0
		for n < len(to) && inNameChar(to[n]) {
			n++
		}
		if n > 0 {
			r.body = bodyCall
			r.beginCall(to[:n])
		}
	}
	return true
}

// headed reports whether text may be the beginning of a header.
func headed(text string) bool {
	text = strings.TrimSpace(text)
	for _, h := range []string{"<|channel|>", "<|start|>", "to=", "assistant"} {
		if strings.HasPrefix(text, h) || strings.HasPrefix(h, text) {
			return true
		}
	}
	return false
}

var bodyEnds = []string{"<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"}

func (r *Reader) harmonyBody() bool {
	kind := map[kindOfBody]Kind{bodyText: Text, bodyReasoning: Reasoning, bodyCall: Arguments}[r.body]
	at, mark := len(r.buf), ""
	for _, e := range bodyEnds {
		if i := strings.Index(r.buf, e); i >= 0 && i < at {
			at, mark = i, e
		}
	}
	if mark == "" && !r.closed {
		for _, e := range bodyEnds {
			at = min(at, len(r.buf)-heldBack(r.buf, e))
		}
	}
	r.emit(kind, r.take(at))
	if mark == "" && !r.closed {
		return false
	}
	if r.body == bodyCall {
		r.emit(CallEnd, "")
	}
	if mark != "<|channel|>" && mark != "<|start|>" {
		r.take(len(mark))
	}
	r.turn(inHeader)
	return mark != ""
}
