// Package form lists how the stored parts of a tensor recompose into a
// weight matrix W[N][K].
//
// A scheme (formats/scheme) says how one matrix is coded in bytes; a form
// says which matrices, its factors, are stored and how W follows from them.
// Each factor has a scheme of its own. A [formats.Tensor] of a form other
// than dense goes in; its factors, or the reference decode of its rows, come
// out. Nothing here chooses factors (decompose does), and nothing is fast.
//
// A package names a form by its name; ids are for tables in memory and binary
// files. Names and ids are never reused and never change their meaning: each
// row's page under docs/forms is its specification, and decoding a stored
// tensor gives the same bits in every release. The table is constant; it and
// everything made here is immutable and safe for concurrent use, but for a
// [Matrix], which serves one goroutine at a time.
package form

// An ID is a form's number.
type ID uint8

// The forms.
const (
	Dense     ID = 1
	LowRank   ID = 2
	Corrected ID = 3
	Shared    ID = 4
	Train     ID = 5
)

// A Form is a row of the table.
type Form struct {
	ID      ID
	Name    string // as packages spell it
	Page    string // specification, from the repository's root
	Formula string // W in terms of what is stored

	layout layout
}

// table holds all forms by ascending ID.
func table() []Form {
	return []Form{
		{ID: Dense, Name: "dense", Page: "docs/forms/dense.md", Formula: "W = Decode(parts)"},
		{ID: LowRank, Name: "lowrank", Page: "docs/forms/lowrank.md", Formula: "W = A B", layout: lowRank{}},
		{ID: Corrected, Name: "corrected", Page: "docs/forms/corrected.md", Formula: "W = Q + A B", layout: corrected{}},
		{ID: Shared, Name: "shared", Page: "docs/forms/shared.md", Formula: "W_e = Q_e + sum over b of C[e][b] U_b", layout: shared{}},
		{ID: Train, Name: "train", Page: "docs/forms/train.md", Formula: "W[v][j] = G_1[v_1][j_1] G_2[v_2][j_2] ... G_d[v_d][j_d]", layout: train{}},
	}
}

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
