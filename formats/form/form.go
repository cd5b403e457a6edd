// Package form lists how the stored parts of a tensor recompose into a
// weight matrix W[N][K].
//
// A scheme (formats/scheme) says how one matrix is coded in bytes; a form
// says which matrices are stored and how W follows from them. A package names
// a form by its name; ids are for tables in memory and binary files. Names
// and ids are never reused and never change their meaning: each row's page is
// its specification. The table is constant and safe for concurrent use.
package form

// An ID is a form's number.
type ID uint8

// The forms.
const (
	Dense ID = 1
)

// A Form is a row of the table.
type Form struct {
	ID      ID
	Name    string // as packages spell it
	Page    string // specification, from the repository's root
	Formula string // W in terms of what is stored
}

// table holds all forms by ascending ID.
func table() []Form {
	return []Form{
		{ID: Dense, Name: "dense", Page: "docs/forms/dense.md", Formula: "W = Decode(parts)"},
	}
}

// All returns every form by ascending ID.
func All() []Form { return table() }

// ByName returns the form that a package calls name.
func ByName(name string) (Form, bool) {
	for _, f := range table() {
		if f.Name == name {
			return f, true
		}
	}
	return Form{}, false
}

// ByID returns the form with this number.
func ByID(id ID) (Form, bool) {
	for _, f := range table() {
		if f.ID == id {
			return f, true
		}
	}
	return Form{}, false
}
