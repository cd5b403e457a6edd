package hip

import (
	"fmt"

	"github.com/nstf/nstf/kernels/ops"
)

// A Matmul multiplies many rows with the matrices of up to three products of any
// formats.
//
// The default mode rounds activations and weights to halves, a power of two for
// each row keeping outliers in range, and adds up in float32 (matmul.hip states
// the tolerance). Exact, and weights that need not fit halves, keep float32
// throughout.
type Matmul struct {
	T        int
	Exact    bool
	X        Address // f32[T][K]
	Products []Product
	Scratch  Address // MatmulScratch bytes, at a multiple of 256

	// Gated writes act(P0 x) * (P1 x) for two products of one format and size to
	// Products[0].Y. Biases apply, residuals do not.
	Gated  bool
	Act    ops.Activation
	Gating ops.Gating // of SiLU

	// First and Slots, where given, make each product's W a stack of Stack
	// matrices [N][K] and of the rows T slots, listed by matrix as Route does:
	// slot s has row s/Share of X as its input and row s of Y as its output.
	First Address // i32[Stack+1]
	Slots Address // i32[T]
	Stack int
	Share int
	// Of, where given, is of how many matrices the stack is a piece, whose bits it has:
	// First begins with its first one's entry of theirs.
	Of int
	// Brought says that a product of the same X, or a [Norm], left it in Scratch.
	Brought bool

	// Send, where given, sends Y to all ranks, this one too, many numbers, instead of writing
	// it: see [Matmul.Sends]. A [Mark] has to follow.
	Send *Exchange

	// Tile overrides the choice of the launch, for measuring.
	Tile *MatmulTile
}

// Sends reports whether the launch can send what it computes: of one matrix without
// residual, in tiles that LDS holds the sums of.
func (o *Matmul) Sends(t Target) bool {
	group := o.Products
	if len(group) != 1 || o.Gated || o.Slots != 0 || group[0].Residual != 0 || group[0].W.N%32 != 0 {
		return false
	}
	exact := o.Exact || !group[0].W.Format.halves()
	tile := o.tile(t, group, exact)
	tokens, features := tile.Size(t, exact)
	s := shapeOf(t, exact)
	return features%32 == 0 && tile.Stages*tile.Parts*tokens*128 >= s.tokens*features*4
}

// MatmulScratch returns the bytes that a Matmul of so many rows of X needs.
func MatmulScratch(rows, k int) int64 {
	return int64(rescaleBytes(rows)) + int64(rows)*int64(tileStride(k, true))
}

// MostRows is how many rows of X, k wide, a Matmul takes: on AMD's cards lanes find
// them by 32 bits.
func MostRows(k int) int { return (1<<32 - 1) / tileStride(k, true) }

// rescaleBytes is the place of the rows' powers of two.
func rescaleBytes(rows int) int { return ceil(4*rows, 256) * 256 }

// tileStride is the bytes of a row of activations as tiles want it: whole pairs
// of tiles of 128 bytes.
func tileStride(k int, exact bool) int {
	size := 2
	if exact {
		size = 4
	}
	return ceil(k*size, 256) * 256
}

// Calls returns the launches: one for each format among the products, and where
// X is not in the order of tiles, one that brings it there.
func (o *Matmul) Calls(t Target) []Call {
	if k := o.Products[0].W.K; o.rows() > MostRows(k) {
		panic(fmt.Sprintf("hip: %d rows of %d numbers in one product", o.rows(), k))
	}
	var calls []Call
	brought := map[bool]bool{}
	for _, group := range (&Matvec{Products: o.Products, Gated: o.Gated}).groups(3, 3) {
		k := group[0].W.K
		exact := o.Exact || !group[0].W.Format.halves()
		stride, x := tileStride(k, exact), o.X
		if !exact || stride != 4*k {
			x = o.Scratch + Address(rescaleBytes(o.rows()))
			if !brought[exact] && !o.Brought {
				calls = append(calls, o.halve(x, k, stride, exact))
				brought = map[bool]bool{exact: true}
			}
		}
		calls = append(calls, o.call(t, group, x, stride, exact))
	}
	return calls
}

// halves reports whether weights of the format fit halves: integers and small
// floats in themselves, and zero points of wide integers, need not.
func (f Format) halves() bool {
	if f.Name() == "plain" {
		return f.Scheme == "f16" || f.Scheme == "bf16" || f.Scheme == "f32"
	}
	switch (Unit{Defines: f.defines}).Define("AFFINE_ZERO") {
	case "", "0", "1", "2", "3", "9": // none, float32, float16, bfloat16, byte
		return true
	}
	return false
}

// Halves reports whether products with a matrix take rows of halves, of k numbers by fours: see [Norm].
func (w *Weight) Halves() bool { return w.Format.halves() && w.K%4 == 0 }

// whole is the number of matrices of the whole stack.
func (o *Matmul) whole() int { return max(o.Of, o.Stack) }

// rows is the number of rows of X.
func (o *Matmul) rows() int { return o.T / max(o.Share, 1) }

// halve is the launch that brings X into the order of tiles, from to on.
func (o *Matmul) halve(to Address, k, stride int, exact bool) Call {
	return Call{
		Unit:   Unit{"halve.hip", fmt.Sprintf("NSTF_EXACT=%d", digit(exact))},
		Early:  true,
		Symbol: "nstf_halve", Grid: [3]uint32{uint32(o.rows()), 1, 1}, Block: [3]uint32{256, 1, 1},
		Args: []Arg{Ptr(o.X), Ptr(to), Ptr(o.Scratch), I32(k), I32(stride)},
	}
}

// digit is how defines write a condition.
func digit(on bool) int {
	if on {
		return 1
	}
	return 0
}

// call is the launch for products of one format.
func (o *Matmul) call(t Target, group []Product, x Address, stride int, exact bool) Call {
	f := group[0].W.Format
	features := 0
	tile := o.tile(t, group, exact)
	tokens, height := tile.Size(t, exact)
	if o.Gated {
		height /= 2
	}
	for i, p := range group {
		if i == 0 || !o.Gated {
			features += ceil(p.W.N, height)
		}
	}
	blocks := ceil(o.T, tokens)
	if o.Slots != 0 {
		blocks = o.T/tokens + o.Stack
	}
	symbol := "nstf_matmul_" + f.Name() + "_f16"
	if exact {
		symbol = "nstf_matmul_" + f.Name() + "_f32"
	}
	gated := ""
	if o.Gated {
		gated = " " + activation(o.Act, o.Gating)
	}
	return Call{
		Unit: Unit{"matmul.hip", fmt.Sprintf("%s NSTF_EXACT=%d MATMUL_GATED=%d MATMUL_EXPERTS=%d %s%s",
			f.defines, digit(exact), digit(o.Gated), digit(o.Slots != 0), tile.defines(), gated) + o.sending()},
		Symbol: symbol, LDS: uint32(tile.lds(t, exact)),
		Grid:  [3]uint32{uint32(blocks), uint32(features), 1},
		Block: [3]uint32{uint32(tile.Waves * tile.Parts * t.Wave), 1, 1}, Early: true,
		Args: o.args(group, x, stride),
	}
}

// sending are the defines of who sends.
func (o *Matmul) sending() string {
	if o.Send == nil {
		return ""
	}
	return " MATMUL_SEND=1 " + o.Send.defines()
}

// args are the arguments of matmul.hip's kernel.
func (o *Matmul) args(group []Product, x Address, stride int) []Arg {
	args := []Arg{Ptr(x), Ptr(o.Scratch), I32(o.T), I32(group[0].W.K), I32(stride),
		Ptr(o.First), Ptr(o.Slots), I32(max(o.Stack, 1)), I32(max(o.Share, 1))}
	if o.Send != nil {
		o.Send.holds(o.T, group[0].W.N)
		args = append(args, o.Send.sends()...)
	}
	for i := range 3 {
		var p Product
		if i < len(group) {
			p = group[i]
		}
		args = append(args, Ptr(p.W.Data), Ptr(p.Y), Ptr(p.Bias), Ptr(p.Residual), I32(p.W.N))
	}
	return args
}
