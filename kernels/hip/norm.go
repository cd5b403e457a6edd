package hip

import "fmt"

// A NormKind is how a [Normal] normalises.
type NormKind uint8

// The kinds, as in formats/model.
const (
	RMSNorm   NormKind = iota // x / sqrt(mean(x^2) + eps) * weight
	LayerNorm                 // (x - mean) / sqrt(variance + eps) * weight + bias
)

// A Normal is a normalisation's parameters: f32 weights with their offset
// added, of one row or one head. Without a weight it is none.
type Normal struct {
	Kind         NormKind
	Weight, Bias Address // no bias: 0
	Eps          float32
}

func (n *Normal) args() []Arg { return []Arg{Ptr(n.Weight), Ptr(n.Bias), F32(n.Eps)} }

// A Branch is rows [T][D] that are added to the hidden state, each normalised
// first where Post has a weight. Without rows it is none.
type Branch struct {
	Rows Address
	Post Normal
}

// Norm adds up to two branches to the hidden state X[T][D], in place, and
// writes what Next makes of the sum:
//
//	a = post(A); b = post(B); X += a + b; Out = next(X)
//
// Any of A, B and Next may be missing, B without A excepted. All
// normalisations are of one kind.
type Norm struct {
	T, D int
	X    Address // f32[T][D]
	A, B Branch
	Next Normal
	Out  Address // f32[T][D]; may be X
}

// Calls returns the launch.
func (o *Norm) Calls(t Target) []Call {
	kind := o.Next.Kind
	if o.Next.Weight == 0 {
		kind = o.A.Post.Kind
	}
	threads := min(max(ceil(o.D, 8*t.Wave)*t.Wave, 64), 1024)
	vec := 1
	if o.D%4 == 0 {
		vec = 4
	}
	args := []Arg{I32(o.D), Ptr(o.X), Ptr(o.A.Rows)}
	args = append(args, o.A.Post.args()...)
	args = append(append(args, Ptr(o.B.Rows)), o.B.Post.args()...)
	args = append(append(args, o.Next.args()...), Ptr(o.Out))
	return []Call{{
		Early: true, Unit: Unit{"norm.hip", fmt.Sprintf("NORM_VEC=%d NORM_STEPS=%d NORM_THREADS=%d NORM_KIND=%d", vec, ceil(o.D, vec*threads), threads, kind)},
		Symbol: "nstf_norm", Grid: [3]uint32{uint32(o.T), 1, 1}, Block: [3]uint32{uint32(threads), 1, 1}, Args: args,
	}}
}
