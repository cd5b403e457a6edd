package hip

import "fmt"

// A RankNorm is the norm of rows of which every rank has a part. Ranks add up what
// [RankSquares] writes before [RankNorm.Calls].
//
//	X[t] = X[t] / sqrt(Sums[t][Column] / Width + eps) * weight
type RankNorm struct {
	T, D, Width int     // rows, numbers that the rank has of one, and that all ranks have
	X           Address // f32[T][D]
	Norm        Normal  // an RMSNorm of D numbers
	Sums        Address // f32[T][Stride]
	Stride      int
	Column      int
	// Of the columns from First on so many are written: 0, and in Column the rank's squares
	// where another rank has not Counted the same numbers.
	First, Columns int
	Counted        bool
}

const rankThreads = 256

// call is a launch of a block a row.
func (o *RankNorm) call(symbol string, args ...Arg) []Call {
	return []Call{{Early: true, Unit: Unit{File: "ranknorm.hip"}, Symbol: symbol, Grid: [3]uint32{uint32(o.T), 1, 1}, Block: [3]uint32{rankThreads, 1, 1}, Args: args}}
}

// Calls returns the launch that normalises.
func (o *RankNorm) Calls(Target) []Call {
	return o.call("nstf_rank_norm", Ptr(o.X), I32(o.D), I32(o.Width), Ptr(o.Norm.Weight), F32(o.Norm.Eps), Ptr(o.Sums), I32(o.Stride), I32(o.Column))
}

// RankSquares are those of a [RankNorm].
type RankSquares struct{ *RankNorm }

// Calls returns the launch.
func (o RankSquares) Calls(Target) []Call {
	column := o.Column
	if o.Counted {
		column = -1
	}
	if o.Columns > rankThreads {
		panic(fmt.Sprintf("hip: %d columns of squares", o.Columns))
	}
	return o.call("nstf_rank_squares", Ptr(o.X), I32(o.D), Ptr(o.Sums), I32(o.Stride), I32(o.First), I32(o.Columns), I32(column))
}
