package answer

import "strings"

// A Format is how a model writes answers.
type Format struct {
	// Reasoning lies between ThinkOpen and ThinkClose; both are "" where the model has
	// none. ThinkOpen may stand in the prompt already, see Reader.
	ThinkOpen, ThinkClose string
	// TextOpen stands before text, where the model writes something there.
	TextOpen string
	// Calls is nil where the model calls no tools.
	Calls *Calls
	// Harmony says that the model writes messages with channels, as gpt-oss does
	// (https://cookbook.openai.com/articles/openai-harmony); the rest is not used then.
	Harmony bool
	Order
}

// An Order is which conversations a template writes. It fails with others, or leaves
// something out.
type Order struct {
	// System is of a first message of the role system, Systems of any others, where they
	// stand.
	System, Systems bool
	// Runs is of several messages of the user's, or of answers, in a row, Interrupts of a
	// message of the user's behind a tool's result.
	Runs, Interrupts bool
	// AnyID is of calls whose ids are not of nine letters and digits.
	AnyID bool
}

// Calls says how calls of tools are written:
//
//	Open Before NAME Behind ARGUMENTS After [Between Before NAME Behind ARGUMENTS After]... Close
//
// Of StyleObject, Before and After stand around the object.
type Calls struct {
	Open, Close    string
	Before, Behind string
	After, Between string
	Arguments      Style

	// Of StyleObject: the keys of the name and of the arguments.
	NameKey, ArgKey string

	// Of StyleTagged, for each argument: KeyOpen KEY KeyClose VALUE ValueClose, or,
	// where KeyEnd is not "", KEY KeyClose TYPE KeyEnd VALUE, the type of strings being
	// StringType and that of numbers OtherType.
	KeyOpen, KeyClose, ValueClose string
	KeyEnd, StringType, OtherType string
	// Quote stands around values that are strings, "" where nothing does.
	Quote string
	// End ends the arguments, where ValueClose only separates them.
	End string
}

// A Style is how arguments are written.
type Style int

// The styles.
const (
	StyleJSON   Style = iota // a JSON object behind the name
	StyleObject              // a JSON object that holds name and arguments
	StyleTagged              // each key and value by itself
)

// Trigger returns what begins a call, without the white space around it: models are
// careless with that. It is "" where an object or a list stands for itself.
func (c *Calls) Trigger() string {
	if t := strings.TrimSpace(c.Open); t != "" {
		return t
	}
	return strings.TrimSpace(c.Before)
}
