package hip

import (
	"fmt"
	"slices"

	"github.com/nstf/nstf/kernels/ops"
)

// MaxRows is the largest T that [Matvec] multiplies: rows that are few, each with the
// bits that it has alone (docs/decisions/0014-width-independence.md).
const MaxRows = 64

// launchRows is how many of them one launch takes.
const launchRows = 8

// rowsAtOnce divides rows evenly among launches and returns those of one.
func rowsAtOnce(rows int) int { return ceil(rows, ceil(rows, launchRows)) }

// A Product is one matrix of a group that shares an input, and where its output
// goes: Y[T][N] = W x + Bias + Residual[T][N]. Y may be Residual.
//
// A matrix of the scheme tcq gives products of its codewords, without bias and
// residual: see [Rotate].
type Product struct {
	W              Weight
	Y              Address // f32[T][N]
	Bias, Residual Address // f32[N], f32[T][N]; 0: none

	// A and Z, where given, correct W in Matvec: Y = W x + A Z + ..., A of what
	// Format.Corrects lists and its own number of columns, Z f32[T][columns] at a
	// multiple of 16 bytes, already computed. With Gated they go before activations.
	A Weight
	Z Address
}

// Matvec multiplies up to MaxRows rows with the matrices of its products,
// decoding weights in registers.
//
// The default mode rounds activations to bytes where a matrix's format has
// integer products (Format.Integer): Acts or Fine, where that is given which the
// format takes (Format.Fine), or else X, rounded on the way. Exact keeps float32 throughout.
type Matvec struct {
	T     int
	Exact bool
	X     Address // f32[T][K]
	Acts  Acts    // X rounded in groups of 32; without Data: not given
	Fine  Acts    // the same in groups of 16
	// Norm, where it has a weight, is applied to X on the way; it is RMSNorm and
	// NormFits says so. Its squares are added in float32, or in float64 where ExactNorm
	// is set: see [Norm].
	Norm      Normal
	ExactNorm bool
	Products  []Product

	// Gated writes act(P0 x) * (P1 x) for two products of one format, without
	// residual, to Products[0].Y or, without bias, rounded to Rounded in groups of 32. More
	// than two rows are rounded by a launch of their own, for which Y has to be there:
	// registers do not hold sums of whole blocks of outputs.
	Gated   bool
	Act     ops.Activation
	Gating  ops.Gating // of SiLU
	Rounded Acts
	apart   bool // they are about to be

	// Experts, where given, makes each product's W a stack of Stack matrices
	// [N][K], its Bias one of vectors [N], and each of T slots one row: slot s is
	// multiplied with matrix Experts[s], row s/Share of X being its input. T has no
	// limit then.
	Experts Address // i32[T]
	Stack   int
	Share   int

	// Send, where given, sends Y to the other ranks, few numbers: see [Matvec.Sends].
	Send *Exchange
	// From, where given, is what other ranks sent of X, which is this rank's part. The sum,
	// which Norm reads, goes to Settled[T][K] too.
	From    *Exchange
	Settled Address

	// Shape overrides the choice of the launch, for measuring.
	Shape *MatvecShape
}

// Sends reports whether the launches can send what they compute: of one matrix without
// residual, whose rows of activations are few enough to be multiplied in registers.
func (o *Matvec) Sends(t Target) bool {
	return len(o.Products) == 1 && o.Products[0].Residual == 0 && !o.Gated && o.Experts == 0 && !o.Products[0].W.Format.Rotated() &&
		!o.readsOnce(t, o.Products, !o.Exact && o.Products[0].W.Format.integer)
}

// A MatvecShape is how a launch divides the work; see matvec.hip.
type MatvecShape struct {
	Rows, Lanes, Waves, Split, Steps int
	Blocks                           int  // resident blocks of a unit that registers are limited for
	Grid                             int  // blocks of a unit that are launched at most; 0: as many as there are tiles
	Ahead                            int  // tiles of a block that are fetched to the L2 cache before the input is there
	Pipe                             bool // the next batch is loaded while one is multiplied
	Direct                           bool // activations rounded beforehand are read from memory, not brought to LDS
	// Features, where not 0, has matrows.hip multiply: Waves are then teams, each of which
	// takes 16 * Features rows of weights at once, Rows the parts of a wave, and Steps the
	// units of a row that it takes together. Lanes, Split, Grid, Ahead and Pipe mean nothing.
	Features int
	// Depth, where not 0, has matrowsraw.hip multiply: steps of weights of a wave, those included
	// that are on their way. Split of Waves share a tile; the others mean nothing.
	Depth int
}

// String writes the shape as the tables of measurements do.
func (s MatvecShape) String() string {
	more := ""
	if s.Direct {
		more = " direct"
	}
	if s.Features > 0 {
		return fmt.Sprintf("f%d t%d p%d u%d b%d", s.Features, s.Waves, s.Rows, s.Steps, s.Blocks) + more
	}
	if s.Depth > 0 {
		return fmt.Sprintf("w%d s%d d%d", s.Waves, s.Split, s.Depth)
	}
	if s.Ahead > 0 {
		more += fmt.Sprintf(" a%d", s.Ahead)
	}
	if s.Pipe {
		more += " pipe"
	}
	return fmt.Sprintf("r%d l%d w%d s%d u%d b%d g%d", s.Rows, s.Lanes, s.Waves, s.Split, s.Steps, s.Blocks, s.Grid) + more
}

// NormFits reports whether Matvec can normalise its input by itself.
func NormFits(t Target, rows, k int, exact bool) bool {
	return rows <= MaxRows && k%4 == 0 && inputBytes(rows, k, !exact, true) <= t.LDS/2
}

// inputBytes is the LDS that rows of activations take.
func inputBytes(rows, k int, integer, fine bool) int {
	switch {
	case integer && fine:
		return int(FineActsSize(rows, k))
	case integer:
		return int(ActsSize(rows, k))
	}
	return rows * k * 4
}

// Calls returns the launches, one for each format among the products and eight rows.
// Where LDS does not hold so many, fewer are multiplied at a time. A row's bits do not
// depend on how many there are: how K is divided among lanes and waves does not.
func (o *Matvec) Calls(t Target) []Call {
	if o.Rounded.Data != 0 && o.T > 2 && o.Experts == 0 {
		first := *o
		first.Rounded, first.apart = Acts{}, true
		return append(first.Calls(t), (&Quantize{X: o.Products[0].Y, Acts: o.Rounded}).Calls(t)...)
	}
	var calls []Call
	for _, group := range o.groups(o.together(), tcqMatrices) {
		if group[0].W.Format.Rotated() {
			calls = append(calls, o.tcqCalls(t, group)...)
			continue
		}
		integer := !o.Exact && group[0].W.Format.integer
		k := group[0].W.K
		if o.readsOnce(t, group, integer) {
			calls = append(calls, o.rowsCalls(t, group)...)
			continue
		}
		rows := 1
		if o.Experts == 0 {
			rows = rowsAtOnce(o.T)
		}
		for integer && rows > 1 && inputBytes(rows, k, true, group[0].W.Format.fine) > t.LDS-matvecStatic {
			rows = (rows + 1) / 2
		}
		if o.Experts != 0 {
			calls = append(calls, o.call(t, group, integer, 0, 1))
			continue
		}
		for from := 0; from < o.T; from += rows {
			calls = append(calls, o.call(t, group, integer, from, min(rows, o.T-from)))
		}
	}
	return calls
}

// matvecStatic is what a launch takes of LDS beside its input, at most.
const matvecStatic = 24 << 10

// sameKernel reports whether one launch multiplies with both: rotations are another's.
func (f Format) sameKernel(o Format) bool {
	return f == o || f.Rotated() && o.Rotated() && f.defines == o.defines
}

// together is how many matrices share a launch: with one row four, of exact products, whose
// waves share rows by what a launch has of outputs, three whatever the rows.
func (o *Matvec) together() int {
	if o.T == 1 && !o.Exact {
		return 4
	}
	return 3
}

// groups divides the products by format, so many to a launch, in order of first
// appearance. Of trellis codes a launch may have more.
func (o *Matvec) groups(usual, trellis int) [][]Product {
	if o.Gated {
		return [][]Product{o.Products}
	}
	return together(o.Products, func(group []Product, p Product) bool {
		most := usual
		if !p.W.Format.integer {
			most = min(most, 3)
		}
		if p.W.Format.Rotated() {
			most = trellis
		}
		return group[0].W.Format.sameKernel(p.W.Format) && len(group) < most
	})
}

// together divides products into launches, in order of first appearance: each goes
// to the first group that takes it, else it begins one.
func together[P any](products []P, takes func(group []P, p P) bool) (groups [][]P) {
next:
	for _, p := range products {
		for i, g := range groups {
			if takes(g, p) {
				groups[i] = append(g, p)
				continue next
			}
		}
		groups = append(groups, []P{p})
	}
	return groups
}

// call is the launch for rows [from, from+rows) and products of one format.
func (o *Matvec) call(t Target, products []Product, integer bool, from, rows int) Call {
	w := &products[0].W
	source, x := "MATVEC_X", o.X+Address(from*w.K*4)
	switch {
	case o.Norm.Weight != 0:
		source = "MATVEC_NORM"
	case integer && o.rounded(w.Format).Data != 0:
		source, x = "MATVEC_ACTS", o.rounded(w.Format).Data
	}
	slots := 1
	if o.Experts != 0 {
		slots = o.T
	}
	least := products[0].W.N
	for _, p := range products {
		least = min(least, p.W.N)
	}
	s := o.shape(t, w, integer, rows, o.outputs(products)*slots)
	s.Rows = min(s.Rows, least)
	if o.From != nil { // what others sent is awaited for a microsecond
		s.Ahead = 1
	}
	direct := s.Direct && source == "MATVEC_ACTS"
	flag := func(on bool) int {
		if on {
			return 1
		}
		return 0
	}
	defines := fmt.Sprintf("%s MATVEC_T=%d MATVEC_ROWS=%d MATVEC_LANES=%d MATVEC_WAVES=%d MATVEC_SPLIT=%d MATVEC_STEPS=%d MATVEC_RESIDENT=%d"+
		" MATVEC_K=%d MATVEC_PIPE=%d MATVEC_AHEAD=%d MATVEC_DIRECT=%d MATVEC_INT=%d MATVEC_EXACT_NORM=%d MATVEC_SOURCE=%s MATVEC_MATRICES=%d MATVEC_GATED=%d MATVEC_QUANTIZE=%d MATVEC_EXPERTS=%d MATVEC_GROUP=%d MATVEC_THIN=%d %s",
		w.Format.defines, rows, s.Rows, s.Lanes, s.Waves, s.Split, s.Steps, s.Blocks,
		w.K, flag(s.Pipe), s.Ahead, flag(direct), flag(integer), flag(o.ExactNorm), source, len(products), flag(o.Gated), flag(o.Rounded.Data != 0), flag(o.Experts != 0), group(w.Format.fine), flag(corrected(products)), activation(o.Act, o.Gating))
	if o.Gated && (products[0].Bias != 0 || products[1].Bias != 0) {
		defines += " MATVEC_BIASED=1"
	}
	switch {
	case o.From != nil:
		defines += " MATVEC_FROM=1 " + o.From.defines()
	case o.Send != nil:
		defines += " MATVEC_SEND=1 " + o.Send.defines()
	}
	symbol := "nstf_matvec_" + w.Format.Name() + "_f32"
	lds := 0
	if integer {
		symbol = "nstf_matvec_" + w.Format.Name() + "_i8"
	}
	if (integer || o.Norm.Weight != 0) && !direct {
		lds = inputBytes(rows, w.K, integer, w.Format.fine)
	}
	tile := s.Waves / s.Split * (t.Wave / s.Lanes) * s.Rows
	tiles := 0
	for i, p := range products {
		if i == 0 || !o.Gated {
			tiles += ceil(p.W.N, tile)
		}
	}
	grid := tiles
	if s.Grid > 0 {
		grid = min(tiles, max(s.Grid*t.Units/slots, 1))
	}
	return Call{
		Unit: Unit{"matvec.hip", defines}, Symbol: symbol, LDS: uint32(lds),
		Grid: [3]uint32{uint32(grid), uint32(slots), 1}, Block: [3]uint32{uint32(s.Waves * t.Wave), 1, 1}, Early: true,
		Args: o.args(products, x, from),
	}
}

// outputs counts the outputs of a row that a launch's tiles cover.
func (o *Matvec) outputs(products []Product) (n int) {
	for _, p := range products {
		n += p.W.N
	}
	if o.Gated {
		n /= 2
	}
	return n
}

// usual is the shape of a launch of all products, which are of one format, where
// nothing else is asked for.
func (o *Matvec) usual(t Target) MatvecShape {
	plain, w := *o, &o.Products[0].W
	plain.Shape = nil
	return plain.shape(t, w, !o.Exact && w.Format.integer, rowsAtOnce(o.T), plain.outputs(o.Products))
}

// corrected reports whether any of the products is.
func corrected(products []Product) bool {
	return slices.ContainsFunc(products, func(p Product) bool { return p.Z != 0 })
}

// Corrects reports whether Matvec adds products with matrices of the format, as the A
// of a correction, to its own.
func (f Format) Corrects() bool { return f.Scheme == "q8_0" }

// rounded returns the rounded input that products of a format take.
func (o *Matvec) rounded(f Format) Acts {
	if f.fine {
		return o.Fine
	}
	return o.Acts
}

// args are the arguments of matvec.hip's kernel. from is the first row.
func (o *Matvec) args(group []Product, x Address, from int) []Arg {
	w := &group[0].W
	args := []Arg{Ptr(x), Ptr(o.Norm.Weight), F32(o.Norm.Eps), Ptr(o.Experts), I32(max(o.Share, 1)),
		I64(int64(o.Stack) * int64(w.N)), Ptr(o.Rounded.Data), I32(from)}
	switch {
	case o.From != nil:
		o.From.holds(o.T, w.K)
		args = append(append(args, Ptr(o.Settled)), o.From.receives()...)
	case o.Send != nil:
		o.Send.holds(o.T, w.N)
		args = append(args, o.Send.sends()...)
	}
	offset := func(a Address, n int) Address {
		if a == 0 {
			return 0
		}
		return a + Address(from*n*4)
	}
	for _, p := range group {
		args = append(args, Ptr(p.W.Data), Ptr(offset(p.Y, p.W.N)), Ptr(p.Bias), Ptr(offset(p.Residual, p.W.N)), I32(p.W.N))
		if corrected(group) {
			args = append(args, Ptr(p.A.Data), Ptr(offset(p.Z, p.A.K)), I32(p.A.K))
		}
	}
	return args
}
