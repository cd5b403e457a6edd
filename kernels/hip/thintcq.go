package hip

import (
	"fmt"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/ops"
)

// A ThinRotated is one matrix of few columns of the scheme tcq with what it reads
// and completes:
//
//	Y = W outside(X) + outside(Codes) + Bias + Residual
//
// X is what codewords of XFrom gave, Codes what those of From gave, both before
// their output sides; without a format in XFrom X is rotated back already.
type ThinRotated struct {
	Product // Y may be Residual
	X       Address
	XFrom   Weight
	Codes   Address // f32[T][N]; 0: none; may be Y
	From    Weight
}

// ThinTCQ is [Thin] for matrices of the scheme tcq. Activations stay float32 in both
// modes.
type ThinTCQ struct {
	T        int
	Products []ThinRotated

	// Gated writes act(P0) * (P1), each with what is added, for two products of one
	// size, of which Alike says that one launch takes them, to Products[0].Y.
	Gated  bool
	Act    ops.Activation
	Gating ops.Gating // of SiLU

	To   Weight  // with a format: what reads the outputs, whose input side is written
	Z    Address // f32[T][N], in place of Y
	Acts Acts    // the same rounded, in place of Z; without Data: not rounded
}

// alike is what products of one launch have in common.
type alike struct {
	defines              string
	in, out, x, rotation int
}

func (p *ThinRotated) alike() alike {
	a := alike{p.W.Format.defines, p.W.Format.In, p.W.Format.Out, p.XFrom.Format.Out, 0}
	if p.Codes != 0 {
		a.rotation = p.From.Format.Out
	}
	return a
}

// Alike reports whether one launch takes both products.
func (p *ThinRotated) Alike(o *ThinRotated) bool { return p.alike() == o.alike() }

// rowsFrom returns a product of rows from one on.
func (p ThinRotated) rowsFrom(from int) ThinRotated {
	p.Product, p.X, p.Codes = p.Product.rowsFrom(from), rowsFrom(p.X, from, p.W.K), rowsFrom(p.Codes, from, p.W.N)
	return p
}

// Calls returns the launches, one for up to three products that are alike and eight
// rows.
func (o *ThinTCQ) Calls(t Target) (calls []Call) {
	if step := rowsAtOnce(max(o.T, 1)); step < o.T {
		n := o.Products[0].W.N
		for from := 0; from < o.T; from += step {
			part := *o
			part.T, part.Products, part.Z = min(step, o.T-from), nil, rowsFrom(o.Z, from, n)
			if part.Acts.Data != 0 {
				part.Acts.Data += Address(ActsSize(from, n))
			}
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
	groups := together(o.Products, func(group []ThinRotated, p ThinRotated) bool {
		return group[0].Alike(&p) && len(group) < 3
	})
	for _, g := range groups {
		calls = append(calls, o.call(t, g))
	}
	return calls
}

// thinTile is the rows of a block, which hold whole rotated blocks.
const thinTile = scheme.TCQMaxRotate

// call is the launch for products that are alike.
func (o *ThinTCQ) call(t Target, group []ThinRotated) Call {
	a, lanes, blocks, lds := group[0].alike(), 1, 0, 0
	var args []Arg
	for i := range group {
		p := &group[i]
		for lanes < 4 && 2*lanes <= p.W.K/scheme.TCQTile {
			lanes *= 2
		}
		if size := o.T * p.W.K * 4; o.Gated {
			lds += size
		} else {
			lds = max(lds, size)
		}
		if i == 0 || !o.Gated {
			blocks += ceil(p.W.N, thinTile)
		}
		args = append(args, p.args()...)
	}
	to := o.To.Format.Hadamard
	if to.In > 0 {
		in, _ := o.To.sideScales(1)
		signs, z := scheme.NewTCQSigns(to.Seed), o.Z
		if o.Acts.Data != 0 {
			z = o.Acts.Data
		}
		args = append(args, Ptr(in), I64(int64(signs[0])), I64(int64(signs[1])), Ptr(z))
	}
	defines := fmt.Sprintf("%s THIN_T=%d THIN_LANES=%d THIN_MATRICES=%d THIN_IN=%d THIN_OUT=%d THIN_X=%d THIN_CODES=%d THIN_TO=%d THIN_ROUND=%d THIN_GATED=%d",
		a.defines, o.T, lanes, len(group), a.in, a.out, a.x, a.rotation, to.In, digit(o.Acts.Data != 0), digit(o.Gated))
	if o.Gated {
		defines += " " + activation(o.Act, o.Gating)
	}
	return Call{
		Unit: Unit{"thintcq.hip", defines}, Symbol: "nstf_thin_tcq", Early: true, LDS: uint32(lds),
		Grid: [3]uint32{uint32(blocks), 1, 1}, Block: [3]uint32{uint32(thinTile * lanes), 1, 1}, Args: args,
	}
}

// args are the arguments for one product.
func (p *ThinRotated) args() []Arg {
	var xOut, codesOut Address
	if p.XFrom.Format.Rotated() {
		_, xOut = p.XFrom.sideScales(1)
	}
	if p.Codes != 0 {
		_, codesOut = p.From.sideScales(1)
	}
	in, out := p.W.sideScales(1)
	args := []Arg{Ptr(p.W.Data), Ptr(p.X), Ptr(p.Codes), Ptr(p.Bias), Ptr(p.Residual), Ptr(p.Y), Ptr(xOut), Ptr(in), Ptr(out), Ptr(codesOut)}
	x, own, codes := scheme.NewTCQSigns(p.XFrom.Format.Seed), scheme.NewTCQSigns(p.W.Format.Seed), scheme.NewTCQSigns(p.From.Format.Seed)
	for _, words := range [][]uint64{x[2:4], own[0:2], own[2:4], codes[2:4]} {
		args = append(args, I64(int64(words[0])), I64(int64(words[1])))
	}
	return append(args, I32(p.W.N), I32(p.W.K))
}
