package hip

import (
	"fmt"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/ops"
)

// A Hadamard is what stands between a matrix of the scheme tcq and the codewords
// that [Matvec] and [Matmul] multiply with (docs/schemes/tcq.md): W x is the output
// side of C times the input side of x, and [Rotate] computes both sides. The zero
// value belongs to all other schemes.
type Hadamard struct {
	In, Out             int // columns and rows of a rotated block, 1 for none
	Seed                int64
	InScales, OutScales bool
}

// tcq fills in the format of trellis codes.
func (f *Format) tcq(params map[string]int64) {
	p := scheme.ParseTCQ(params)
	f.unit, f.integer = scheme.TCQTile, true
	f.Hadamard = Hadamard{p.RotateIn, p.RotateOut, p.Seed, p.InScales, p.OutScales}
	factor, addend, paired := p.Codebook.Hash()
	f.define("TCQ_BITS=%d TCQ_FACTOR=%#xu TCQ_ADDEND=%#xu TCQ_PAIRED=%d", p.Bits, factor, addend, digit(paired))
}

// bits returns the bits of a format of trellis codes.
func (f Format) bits() (n int) {
	fmt.Sscan(Unit{Defines: f.defines}.Define("TCQ_BITS"), &n)
	return n
}

// Rotated reports whether Matvec and Matmul multiply with codewords only.
func (f Format) Rotated() bool { return f.In > 0 }

// SameInput reports whether the input side of both is one and the same, whatever
// the matrix.
func (h Hadamard) SameInput(o Hadamard) bool {
	return !h.InScales && !o.InScales && h.In == o.In && h.Seed == o.Seed
}

// sideScales returns where the scales of rows and columns of a stack of so many
// matrices lie, 0 for none.
func (w *Weight) sideScales(stack int) (in, out Address) {
	at := w.Data
	take := func(bytes int) (a Address) {
		a = at
		at += Address(ceil(bytes, partAlign) * partAlign)
		return a
	}
	rows := w.N * max(stack, 1)
	take(rows / scheme.TCQTile * (w.K / scheme.TCQTile) * 32 * w.Format.bits())
	take(rows / scheme.TCQTile * 2)
	if w.Format.OutScales {
		out = take(rows * 2)
	}
	if w.Format.InScales {
		in = take(w.K * 2)
	}
	return in, out
}

// A Rotate computes the output side of products with matrices of the scheme tcq,
// or the input side of the next ones, or both at once:
//
//	y = outputside(X) + Bias + Residual;  z = inputside(y)
//
// From without a format leaves the output side out (y = X), To the input side.
type Rotate struct {
	T        int
	X        Address // f32[T][N]
	From     Weight  // whose products X are
	Bias     Address // f32[N]; 0: none
	Residual Address // f32[T][N]; 0: none; may be Y
	Y        Address // f32[T][N]; may be X; 0: not wanted, or no output side

	// Gate makes it y = act(outputside(X) + Bias) * (outputside(Up) + UpBias), both
	// of one format.
	Gate   bool
	Act    ops.Activation
	Gating ops.Gating // of SiLU
	Up     Address
	UpFrom Weight
	UpBias Address

	// Experts, where given, says whose scales and bias row t has, of stacks of
	// Stack.
	Experts Address // i32[T]
	Stack   int

	To   Weight  // that z is multiplied with
	Z    Address // f32[T][N]; may be X
	Acts Acts    // z rounded, in place of Z; without Data: not rounded
}

// Calls returns the launch.
func (o *Rotate) Calls(Target) []Call {
	n, from, to := o.From.N, o.From.Format.Hadamard, o.To.Format.Hadamard
	defines := fmt.Sprintf("ROTATE_OUT=%d ROTATE_IN=%d ROTATE_ROUND=%d ROTATE_GATED=%d ROTATE_EXPERTS=%d",
		from.Out, to.In, digit(o.Acts.Data != 0), digit(o.Gate), digit(o.Experts != 0))
	z := o.Z
	if o.Acts.Data != 0 {
		z = o.Acts.Data
	}
	if o.Gate {
		defines += " " + activation(o.Act, o.Gating)
	}
	if from.Out == 0 {
		n = o.To.K
	}
	var in, out, upOut Address
	if from.Out > 0 {
		_, out = o.From.sideScales(o.Stack)
	}
	if o.Gate {
		_, upOut = o.UpFrom.sideScales(o.Stack)
	}
	if to.In > 0 {
		in, _ = o.To.sideScales(o.Stack)
	}
	rows, columns := scheme.NewTCQSigns(from.Seed), scheme.NewTCQSigns(to.Seed)
	return []Call{{
		Unit: Unit{"rotate.hip", defines}, Symbol: "nstf_rotate",
		Grid: [3]uint32{uint32(ceil(n, 1024)), uint32(o.T), 1}, Block: [3]uint32{256, 1, 1}, Early: true,
		Args: []Arg{I32(n), Ptr(o.X), Ptr(o.Up), Ptr(o.Experts), I64(int64(rows[2])), I64(int64(rows[3])), Ptr(out), Ptr(upOut),
			Ptr(o.Bias), Ptr(o.UpBias), Ptr(o.Residual), Ptr(o.Y), I64(int64(columns[0])), I64(int64(columns[1])), Ptr(in), Ptr(z)},
	}}
}

// embedTCQ is Embed's launch for a table of trellis codes.
func (o *Embed) embedTCQ() Call {
	w := &o.Table
	in, out := w.sideScales(1)
	s := scheme.NewTCQSigns(w.Format.Seed)
	return Call{
		Unit:   Unit{"tcqembed.hip", fmt.Sprintf("%s TCQ_IN=%d TCQ_OUT=%d", w.Format.defines, w.Format.In, w.Format.Out)},
		Symbol: "nstf_embed_tcq", Grid: [3]uint32{uint32(ceil(w.K, 1024)), uint32(o.T), 1}, Block: [3]uint32{256, 1, 1}, Early: true,
		Args: []Arg{Ptr(o.Y), Ptr(w.Data), I64(int64(w.N)), I32(w.K), Ptr(o.Token), F32(o.Scale), Ptr(o.Positions), Ptr(o.Position),
			I64(int64(s[0])), I64(int64(s[1])), I64(int64(s[2])), I64(int64(s[3])), Ptr(in), Ptr(out)},
	}
}
