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
	// From, where given, is what other ranks sent of the rows, T*D numbers, which are added to
	// Rows in the order of ranks; of many numbers Rows is what was sent to itself. With Whole
	// the sum has the hidden state in it: one of the ranks added it to its part.
	From  *Exchange
	Whole bool
}

// Norm adds up to two branches to the hidden state X[T][D], in place, and
// writes what Next makes of the sum:
//
//	a = post(A); b = post(B); X = (X + a + b) * Scale; Out = next(X)
//
// Any of A, B and Next may be missing, B without A excepted. All
// normalisations are of one kind. Of A alone other ranks may have parts.
type Norm struct {
	T, D int
	X    Address // f32[T][D]
	A, B Branch
	Next Normal
	Out  Address // f32[T][D]; may be X
	// Scale is a factor on the sum, f32[1]; 0: none. There is an A then.
	Scale Address
	// Few gives Out the bits that Matvec's Norm has, whose squares are added in float32,
	// or in float64 where Exact is set. It has no meaning but for an RMSNorm that
	// NormFits allows.
	Few, Exact bool
	// Halves, where given, is Scratch of a [Matmul] whose X Out is, and which is not Exact: the
	// rows go there instead, and it is Brought.
	Halves Address
}

// HalvesFit reports whether Norm brings rows of d numbers to the order of tiles: LDS holds a row.
func HalvesFit(t Target, d int) bool { return tileStride(d, false) <= t.LDS/2 }

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
	runs := 0
	if o.Few && vec == 4 && o.Next.Weight != 0 && o.Next.Kind == RMSNorm {
		runs = 1 + digit(o.Exact)
	}
	lds, stride := 0, tileStride(o.D, false)
	if o.Halves != 0 {
		lds = stride
	}
	args := []Arg{I32(o.D), Ptr(o.X), Ptr(o.A.Rows)}
	args = append(args, o.A.Post.args()...)
	args = append(append(args, Ptr(o.B.Rows)), o.B.Post.args()...)
	args = append(append(args, o.Next.args()...), Ptr(o.Out))
	if o.Scale != 0 {
		args = append(args, Ptr(o.Scale))
	}
	ranks := ""
	if x := o.A.From; x != nil {
		from := 1
		if x.Many {
			from = 2
		}
		ranks = fmt.Sprintf(" NORM_FROM=%d NORM_WHOLE=%d %s", from, flag(o.A.Whole), x.defines())
		x.holds(o.T, o.D)
		args = append(args, x.receives()...)
	} else {
		ranks = " NORM_FROM=0 NORM_WHOLE=0"
	}
	if o.Halves != 0 {
		args = append(args, Ptr(o.Halves+Address(rescaleBytes(o.T))), Ptr(o.Halves), I32(stride))
	}
	return []Call{{
		Early: true, Unit: Unit{"norm.hip", fmt.Sprintf("NORM_VEC=%d NORM_STEPS=%d NORM_THREADS=%d NORM_KIND=%d NORM_RUNS=%d NORM_SCALE=%d NORM_HALVES=%d NSTF_EXACT=0%s",
			vec, ceil(o.D, vec*threads), threads, kind, runs, flag(o.Scale != 0), flag(o.Halves != 0), ranks)},
		LDS: uint32(lds), Symbol: "nstf_norm", Grid: [3]uint32{uint32(o.T), 1, 1}, Block: [3]uint32{uint32(threads), 1, 1}, Args: args,
	}}
}
