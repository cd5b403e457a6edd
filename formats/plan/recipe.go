package plan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
)

// Keep is the recipe of a tensor that stays as it is in the source.
const Keep = "keep"

// Forms of a recipe.
const (
	FormDense     = "dense"     // W in a scheme
	FormLowRank   = "lowrank"   // W = A B
	FormCorrected = "corrected" // W = Q + A B
	FormShared    = "shared"    // W_e = Q_e + a mixture of matrices that all experts share
	FormTrain     = "train"     // a tensor train of two cores
)

// A Recipe says how a tensor is stored.
type Recipe struct {
	Form    string
	Scheme  string // of W or Q: "tcq3", "q4_k", ..., [Keep]; "" for factors alone
	Rank    int    // columns of A and rows of B, or shared matrices; 0 for [FormDense]
	Factors string // scheme of the factors, "" for [FormDense]; two with a comma are those of A and B
}

// maxRank bounds a rank: no matrix of any model has a larger one.
const maxRank = 1 << 20

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
// A spelling that is none of these is a [formats.FormatError], an unknown
// scheme or form a [formats.UnsupportedError]. Whether a tensor can be stored
// so is not asked here.
func ParseRecipe(s string) (Recipe, error) {
	if s == Keep {
		return Recipe{Form: FormDense, Scheme: Keep}, nil
	}
	for _, f := range []struct{ mark, form string }{{"+lr:", FormCorrected}, {"+shared:", FormShared}} {
		if name, rest, ok := strings.Cut(s, f.mark); ok {
			r := Recipe{Form: f.form, Scheme: name}
			if err := knownScheme(s, name); err != nil {
				return Recipe{}, err
			}
			err := r.product(s, rest)
			return r, err
		}
	}
	if form, rest, ok := strings.Cut(s, ":"); ok {
		if form != FormLowRank && form != FormShared && form != FormTrain {
			return Recipe{}, formats.Unsupportedf("", "", "recipe %q: form %q", s, form)
		}
		r := Recipe{Form: form}
		err := r.product(s, rest)
		return r, err
	}
	return Recipe{Form: FormDense, Scheme: s}, knownScheme(s, s)
}

// product reads "R:FACTORS".
func (r *Recipe) product(whole, s string) error {
	rank, factors, ok := strings.Cut(s, ":")
	n, err := strconv.Atoi(rank)
	if !ok || err != nil || n < 1 || n > maxRank || strconv.Itoa(n) != rank {
		*r = Recipe{}
		return formats.Errorf("", "", "recipe %q: %q is no rank and scheme of factors", whole, s)
	}
	r.Rank, r.Factors = n, factors
	a, b, two := strings.Cut(factors, ",")
	if !two {
		b = a
	}
	for _, name := range []string{a, b} {
		if err := knownScheme(whole, name); err != nil {
			*r = Recipe{}
			return err
		}
	}
	if two && r.Form != FormLowRank && r.Form != FormCorrected {
		*r = Recipe{}
		return formats.Errorf("", "", "recipe %q: two schemes of factors", whole)
	}
	return nil
}

// String spells a recipe as [ParseRecipe] reads it.
func (r Recipe) String() string {
	switch r.Form {
	case FormLowRank, FormTrain:
		return fmt.Sprintf("%s:%d:%s", r.Form, r.Rank, r.Factors)
	case FormShared:
		whole := fmt.Sprintf("%s:%d:%s", r.Form, r.Rank, r.Factors)
		if r.Scheme != "" {
			whole = r.Scheme + "+" + whole
		}
		return whole
	case FormCorrected:
		return fmt.Sprintf("%s+lr:%d:%s", r.Scheme, r.Rank, r.Factors)
	}
	return r.Scheme
}

// TrellisBits returns 2 to 6 for tcq2 to tcq6, 0 for another name.
func TrellisBits(name string) int {
	digits, ok := strings.CutPrefix(name, "tcq")
	if !ok || len(digits) != 1 {
		return 0
	}
	if bits := int(digits[0]) - '0'; bits >= scheme.TCQMinBits && bits <= scheme.TCQMaxBits {
		return bits
	}
	return 0
}

// knownScheme refuses what is no scheme that a recipe can name. The trellis
// scheme has no size without its bits.
func knownScheme(whole, name string) error {
	if name == "" {
		return formats.Errorf("", "", "recipe %q names no scheme", whole)
	}
	if _, ok := scheme.ByName(name); (ok && name != "tcq") || TrellisBits(name) > 0 {
		return nil
	}
	e := formats.Unsupportedf("", "", "recipe %q: scheme %q", whole, name)
	e.Hint = `recipes are "keep", a scheme such as "q4_k" or "tcq3", "lowrank:RANK:SCHEME", "SCHEME+lr:RANK:SCHEME", "shared:COUNT:SCHEME", "SCHEME+shared:COUNT:SCHEME" and "train:RANK:SCHEME"`
	return e
}
