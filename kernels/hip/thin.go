package hip

import (
	"fmt"

	"github.com/nstf/nstf/kernels/ops"
)

// A ThinProduct is one matrix of few columns with the input that it alone reads.
type ThinProduct struct {
	Product
	X Address // f32[T][K]
}

// Thin is the second step of products by thin factors: it multiplies up to MaxRows
// rows with matrices of few columns, of any formats but rotated ones, each reading
// an input of its own. Activations stay float32 in both modes.
type Thin struct {
	T        int
	Products []ThinProduct

	// Gated writes act(P0) * (P1), each with its bias and residual, for two
	// products of one format and size to Products[0].Y.
	Gated  bool
	Act    ops.Activation
	Gating ops.Gating // of SiLU
}

// rowsFrom returns a product of rows from one on.
func (p ThinProduct) rowsFrom(from int) ThinProduct {
	p.Product, p.X = p.Product.rowsFrom(from), rowsFrom(p.X, from, p.W.K)
	return p
}

func (p Product) rowsFrom(from int) Product {
	p.Y, p.Residual = rowsFrom(p.Y, from, p.W.N), rowsFrom(p.Residual, from, p.W.N)
	return p
}

// rowsFrom is where row `from` of n floats each lies; 0 stays none.
func rowsFrom(a Address, from, n int) Address {
	if a == 0 {
		return 0
	}
	return a + Address(from*n*4)
}

// Calls returns the launches, one for up to three products of one format and eight
// rows.
func (o *Thin) Calls(t Target) (calls []Call) {
	if step := rowsAtOnce(max(o.T, 1)); step < o.T {
		for from := 0; from < o.T; from += step {
			part := *o
			part.T, part.Products = min(step, o.T-from), nil
			for _, p := range o.Products {
				part.Products = append(part.Products, p.rowsFrom(from))
			}
			calls = append(calls, part.Calls(t)...)
		}
		return calls
	}
	if o.Gated {
		return []Call{o.call(t, o.Products)}
	}
	groups := together(o.Products, func(group []ThinProduct, p ThinProduct) bool {
		return group[0].W.Format == p.W.Format && len(group) < 3
	})
	for _, g := range groups {
		calls = append(calls, o.call(t, g))
	}
	return calls
}

// call is the launch for products of one format.
func (o *Thin) call(t Target, group []ThinProduct) Call {
	f := group[0].W.Format
	units := 1
	for _, p := range group {
		units = max(units, p.W.K/f.unit)
	}
	lanes := 1
	for lanes < t.Wave && 2*lanes <= units {
		lanes *= 2
	}
	blocks := 0
	var args []Arg
	for i, p := range group {
		if i == 0 || !o.Gated {
			blocks += ceil(p.W.N, 256/lanes)
		}
		args = append(args, Ptr(p.W.Data), Ptr(p.X), Ptr(p.Y), Ptr(p.Bias), Ptr(p.Residual), I32(p.W.N), I32(p.W.K))
	}
	defines := fmt.Sprintf("%s THIN_T=%d THIN_LANES=%d THIN_MATRICES=%d THIN_GATED=%d", f.defines, o.T, lanes, len(group), digit(o.Gated))
	if o.Gated {
		defines += " " + activation(o.Act, o.Gating)
	}
	return Call{
		Unit: Unit{"thin.hip", defines}, Symbol: "nstf_thin_" + f.Name(), Early: true,
		Grid: [3]uint32{uint32(blocks), 1, 1}, Block: [3]uint32{256, 1, 1}, Args: args,
	}
}

// Mix combines what matrices that experts share made of an input:
//
//	Y[s] = (Y[s] +) Bias[e] + sum over b of C[e][b] * Z[s/Share][b],  e = Experts[s]
type Mix struct {
	T       int     // slots
	Experts Address // i32[T]
	Share   int     // slots of a row of Z
	B, N    int
	Z       Address // f32[T/Share][B][N]
	C       Address // f32[experts][B]
	Bias    Address // f32[experts][N]; 0: none
	Add     bool    // to what Y holds
	Y       Address // f32[T][N]
}

// Calls returns the launch.
func (o *Mix) Calls(Target) []Call {
	return []Call{{
		Unit: Unit{File: "mix.hip"}, Symbol: "nstf_mix", Early: true,
		Grid: [3]uint32{uint32(ceil(o.N, 256)), uint32(o.T), 1}, Block: [3]uint32{256, 1, 1},
		Args: []Arg{Ptr(o.Z), Ptr(o.C), Ptr(o.Experts), I32(max(o.Share, 1)), I32(o.B), I32(o.N), I32(digit(o.Add)), Ptr(o.Bias), Ptr(o.Y)},
	}}
}
