// Package answer reads what a model writes in a conversation: text, reasoning and
// calls of tools, each as it is certain.
//
// No table of models says how: [Learn] renders the model's own chat template with
// conversations of made-up names and values and sees where they come to stand. In: a
// [Renderer]. Out: a [Format], the strings between which reasoning, a call's name and its
// arguments lie. A [Reader] goes through one answer.
//
// Invariants: a Format is immutable. What a Reader gives does not depend on how the
// answer was cut into pieces; arguments are a JSON object in the end, whatever the
// model's own way of writing them. An answer that breaks off or keeps to no format is
// never lost: what cannot be a call is text.
//
// Compatibility: experimental.
package answer

// A Kind says what a [Part] is.
type Kind int

// The kinds.
const (
	Text Kind = iota
	Reasoning
	Call      // a call begins; Part.Text is the tool's name
	Arguments // more of a call's arguments, as JSON
	CallEnd   // a call is complete
)

// A Part is a piece of an answer.
type Part struct {
	Kind Kind
	Text string
	// Index counts calls from 0.
	Index int
}
