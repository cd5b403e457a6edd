package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
)

// A Form is how matrices make up a tensor.
type Form string

// Forms of a recipe. That of the zero Recipe is "": the tensor is kept.
const (
	FormDense     Form = "dense"     // W in a scheme
	FormLowRank   Form = "lowrank"   // W = A B
	FormCorrected Form = "corrected" // W = Q + A B
	FormShared    Form = "shared"    // W_e = Q_e + a mixture of matrices that all experts share
	FormTrain     Form = "train"     // a tensor train of two cores
)

// A Code is how the numbers of one matrix are stored. Codes are comparable; the
// zero Code is none.
type Code struct {
	Scheme *scheme.Scheme // a row of the table
	Bits   int            // of trellis codes, whose scheme has no size without; else 0
}

// A Recipe says how a tensor is stored. Recipes are comparable; the zero Recipe
// keeps the tensor as it is in the source.
type Recipe struct {
	Form Form
	Code Code // of W or Q; none for factors alone
	Rank int  // columns of A and rows of B, or shared matrices; 0 for [FormDense]
	A, B Code // of the factors, the same for forms that have no two; none for [FormDense]
}

// keep is how the zero Recipe is spelled.
const keep = "keep"

// maxRank bounds a rank: no matrix of any model has a larger one.
const maxRank = 1 << 20

// Kept reports whether the tensor stays as it is.
func (r Recipe) Kept() bool { return r == Recipe{} }

// Is reports whether the recipe is a scheme of that name and no more.
func (r Recipe) Is(scheme string) bool { return r.Form == FormDense && r.Code.String() == scheme }

// Whole reports whether a tensor is fitted as a whole, and not matrix by matrix.
func (r Recipe) Whole() bool { return r.Form == FormShared || r.Form == FormTrain }

// Codes lists the codes of all parts, each once.
func (r Recipe) Codes() []Code {
	var out []Code
	for _, c := range []Code{r.A, r.B, r.Code} {
		if c != (Code{}) && (len(out) == 0 || c != out[len(out)-1]) {
			out = append(out, c)
		}
	}
	return out
}

// Dense is the recipe of a code alone.
func Dense(c Code) Recipe { return Recipe{Form: FormDense, Code: c} }

// Trellis is the trellis code of so many bits. It panics outside
// scheme.TCQMinBits to TCQMaxBits.
func Trellis(bits int) Code { return MustCode("tcq" + strconv.Itoa(bits)) }

// String returns the name of the scheme, "tcq2" to "tcq6" for trellis codes, ""
// for none.
func (c Code) String() string {
	switch {
	case c.Scheme == nil:
		return ""
	case c.Bits > 0:
		return c.Scheme.Name + strconv.Itoa(c.Bits)
	}
	return c.Scheme.Name
}

// ParseCode reads what [Code.String] writes. Errors are those of [ParseRecipe].
func ParseCode(s string) (Code, error) { return parseCode(s, s) }

// MustCode is [ParseCode] for names that stand in the program; it panics at others.
func MustCode(s string) Code {
	c, err := ParseCode(s)
	if err != nil {
		panic(err)
	}
	return c
}

// MustRecipe is [ParseRecipe] for recipes that stand in the program; it panics at
// others.
func MustRecipe(s string) Recipe {
	r, err := ParseRecipe(s)
	if err != nil {
		panic(err)
	}
	return r
}

// ParseRecipe reads a recipe:
//
//	keep                   as in the source
//	SCHEME                 a scheme's name, or tcq2 to tcq6
//	lowrank:R:FACTORS      a product of rank R, its factors in the scheme FACTORS
//	SCHEME+lr:R:FACTORS    a scheme, and what it got wrong as a product of rank R
//	shared:B:FACTORS       experts as mixtures of B matrices in the scheme FACTORS
//	SCHEME+shared:B:FACTORS  and what they leave in a scheme
//	train:R:FACTORS        a tensor train of two cores with the rank R between
//
// FACTORS of the products are a scheme or two with a comma, those of A and B. A
// spelling that is none of these is a [formats.FormatError], an unknown
// scheme or form a [formats.UnsupportedError]. Whether a tensor can be stored
// so is not asked here.
func ParseRecipe(s string) (r Recipe, err error) {
	if s == keep {
		return Recipe{}, nil
	}
	for _, f := range []struct {
		mark string
		form Form
	}{{"+lr:", FormCorrected}, {"+shared:", FormShared}} {
		if name, rest, ok := strings.Cut(s, f.mark); ok {
			if r.Code, err = parseCode(s, name); err != nil {
				return Recipe{}, err
			}
			r.Form = f.form
			return r.product(s, rest)
		}
	}
	if form, rest, ok := strings.Cut(s, ":"); ok {
		if r.Form = Form(form); r.Form != FormLowRank && !r.Whole() {
			return Recipe{}, formats.Unsupportedf("", "", "recipe %q: form %q", s, form)
		}
		return r.product(s, rest)
	}
	if r.Code, err = parseCode(s, s); err != nil {
		return Recipe{}, err
	}
	r.Form = FormDense
	return r, nil
}

// product reads "R:FACTORS".
func (r Recipe) product(whole, s string) (Recipe, error) {
	rank, factors, ok := strings.Cut(s, ":")
	n, err := strconv.Atoi(rank)
	if !ok || err != nil || n < 1 || n > maxRank || strconv.Itoa(n) != rank {
		return Recipe{}, formats.Errorf("", "", "recipe %q: %q is no rank and scheme of factors", whole, s)
	}
	r.Rank = n
	a, b, two := strings.Cut(factors, ",")
	if !two {
		b = a
	}
	if r.A, err = parseCode(whole, a); err != nil {
		return Recipe{}, err
	}
	if r.B, err = parseCode(whole, b); err != nil {
		return Recipe{}, err
	}
	if two && r.Whole() {
		return Recipe{}, formats.Errorf("", "", "recipe %q: two schemes of factors", whole)
	}
	return r, nil
}

// String spells a recipe as [ParseRecipe] reads it.
func (r Recipe) String() string {
	factors := r.A.String()
	if r.A != r.B {
		factors += "," + r.B.String()
	}
	switch r.Form {
	case FormLowRank, FormTrain:
		return fmt.Sprintf("%s:%d:%s", r.Form, r.Rank, factors)
	case FormShared:
		whole := fmt.Sprintf("%s:%d:%s", r.Form, r.Rank, factors)
		if r.Code != (Code{}) {
			whole = r.Code.String() + "+" + whole
		}
		return whole
	case FormCorrected:
		return fmt.Sprintf("%s+lr:%d:%s", r.Code, r.Rank, factors)
	case FormDense:
		return r.Code.String()
	}
	return keep
}

// MarshalText implements encoding.TextMarshaler.
func (r Recipe) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Recipe) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRecipe(string(text))
	return err
}

// parseCode refuses what is no scheme that a recipe can name. The trellis
// scheme has no size without its bits.
func parseCode(whole, name string) (Code, error) {
	if name == "" {
		return Code{}, formats.Errorf("", "", "recipe %q names no scheme", whole)
	}
	const trellis = "tcq"
	if s, ok := scheme.ByName(name); ok && name != trellis {
		return Code{Scheme: s}, nil
	}
	if digits, ok := strings.CutPrefix(name, trellis); ok && len(digits) == 1 {
		if bits := int(digits[0]) - '0'; bits >= scheme.TCQMinBits && bits <= scheme.TCQMaxBits {
			s, _ := scheme.ByName(trellis)
			return Code{s, bits}, nil
		}
	}
	e := formats.Unsupportedf("", "", "recipe %q: scheme %q", whole, name)
	e.Hint = `recipes are "keep", a scheme such as "q4_k" or "tcq3", "lowrank:RANK:SCHEME", "SCHEME+lr:RANK:SCHEME", "shared:COUNT:SCHEME", "SCHEME+shared:COUNT:SCHEME" and "train:RANK:SCHEME"`
	return Code{}, e
}
