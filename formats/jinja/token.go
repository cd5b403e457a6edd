package jinja

// A kind is what a token is. Operators are their own spelling.
type kind string

const (
	tokData          kind = "text"
	tokVariableBegin kind = "begin of print statement"
	tokVariableEnd   kind = "end of print statement"
	tokBlockBegin    kind = "begin of statement block"
	tokBlockEnd      kind = "end of statement block"
	tokName          kind = "name"
	tokString        kind = "string"
	tokInteger       kind = "integer"
	tokFloat         kind = "float"
	tokEOF           kind = "end of template"
)

// A token of a template.
type token struct {
	kind  kind
	text  string // of data, names and operators; the value of strings
	value Value  // of numbers
	line  int
}

// is reports whether the token is the name, that is, keyword.
func (t token) is(name string) bool { return t.kind == tokName && t.text == name }

func (t token) isAny(names []string) bool {
	for _, n := range names {
		if t.is(n) {
			return true
		}
	}
	return false
}

// describe names the token for an error.
func (t token) describe() string {
	switch t.kind {
	case tokName, tokString:
		return quote(t.text)
	case tokData, tokVariableBegin, tokVariableEnd, tokBlockBegin, tokBlockEnd, tokEOF, tokInteger, tokFloat:
		return string(t.kind)
	}
	return quote(string(t.kind))
}

// operators, the longest first where one begins another.
var operators = []string{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";"}
