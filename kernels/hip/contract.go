package hip

import "fmt"

// Digits divides tokens into digits, of which Rows[i] are possible in place i, the
// first place aside: up to four places.
type Digits struct {
	T      int
	Rows   []int
	Token  Address // i32[T]
	Digits Address // i32[4][T], most significant first
}

// Calls returns the launch.
func (o *Digits) Calls(Target) []Call {
	rows := [4]int{1, 1, 1, 1}
	copy(rows[:], o.Rows)
	return []Call{{
		Unit: Unit{File: "digits.hip"}, Symbol: "nstf_digits", Early: true,
		Grid: [3]uint32{uint32(ceil(o.T, 256)), 1, 1}, Block: [3]uint32{256, 1, 1},
		Args: []Arg{Ptr(o.Token), Ptr(o.Digits), I32(o.T), I32(rows[1]), I32(rows[2]), I32(rows[3])},
	}}
}

// A Contract multiplies parts of tensors with rows of a core of a tensor train,
// decoded to float32 beforehand:
//
//	C[t][i][First+v][s][l] = Start + sum over q of A[t][i][q][l] * B[t][v][q][s]
type Contract struct {
	T, I, L, Q, V, S int
	A                Address // f32[T][I][Q][L]
	B                Address // f32[T][V][Q][S]
	Same             bool    // B is [V][Q][S], for all T
	First, Of        int     // rows v of B are First on, of Of; Of 0: all of them
	C                Address // f32[T][I*Of][S][L]
	Start            Address // as C, which it may be; 0: sums begin at 0
	// Limit, where given, leaves out i*Of + First+v from there on, which C then has
	// no place for.
	Limit int
	Bias  Address // f32[I*Of or Limit]; 0: none

	// Rounded rounds each product and each sum by itself, q ascending, and gives
	// C = sum * Scale + Positions[Position[t]]: the bits of a reference decode.
	Rounded   bool
	Scale     float32
	Positions Address // f32[...][numbers of a t in C]; 0: none
	Position  Address // i32[T]
}

const contractTile = 64

// Calls returns the launch.
func (o *Contract) Calls(Target) []Call {
	of := o.Of
	if of == 0 {
		of = o.V
	}
	limit := o.Limit
	if limit == 0 {
		limit = o.I * of
	}
	step := int64(o.V) * int64(o.Q) * int64(o.S)
	if o.Same {
		step = 0
	}
	return []Call{{
		Unit:   Unit{"contract.hip", fmt.Sprintf("CONTRACT_ROUNDED=%d CONTRACT_L1=%d CONTRACT_S1=%d", digit(o.Rounded), digit(o.L == 1), digit(o.S == 1))},
		Symbol: "nstf_contract", Early: true,
		Grid:  [3]uint32{uint32(ceil(o.I*o.L, contractTile)), uint32(ceil(o.V*o.S, contractTile)), uint32(o.T)},
		Block: [3]uint32{256, 1, 1},
		Args: []Arg{Ptr(o.A), Ptr(o.B), I64(step), Ptr(o.C), Ptr(o.Start), Ptr(o.Bias), I32(o.I), I32(o.L), I32(o.Q), I32(o.V), I32(o.S),
			I32(o.First), I32(of), I64(int64(limit)), F32(o.Scale), Ptr(o.Positions), Ptr(o.Position)},
	}}
}
