package hip

import "fmt"

// A Gram adds up, over rows, the products of all pairs of their features, and looks
// for the largest values: gram.hip has the formula. Nothing is cleared.
type Gram struct {
	T, K int
	X    Address // f32[T][K]; of experts f32[T/Share][K]
	Sums Address // f64[K(K+1)/2]: the lower triangle of X'X, row after row; at a multiple of 8
	Top  Address // f32[K]: the largest magnitudes of finite values
	Odd  Address // i32: 1 from the first value on that is not finite

	// First and Slots, where given, are those of Stack experts, as Route lists them: each
	// expert has Sums, Top and Odd of its own, one behind the other, and counts its rows.
	First  Address // i32[Stack+1]
	Slots  Address // i32[T]
	Stack  int
	Share  int     // slots of a row of X
	Counts Address // i64[Stack]

	// Tile overrides how many features of each side a block has, 64 or 128, for tests.
	Tile int
}

// GramSums returns the numbers of the lower triangle of k features.
func GramSums(k int) int64 { return int64(k) * int64(k+1) / 2 }

// gramRows is how many rows are summed in float32 before they are added in float64.
const gramRows = 1024

// Calls returns the launch.
func (o *Gram) Calls(t Target) []Call {
	stack := max(o.Stack, 1)
	tile := o.Tile
	if tile == 0 {
		// A block of 128 reads half of what four of 64 read, where there are enough.
		if tile = 128; gramTiles(o.K, tile)*stack < 4*max(t.Units, 1) {
			tile = 64
		}
	}
	run, step := 4, 8
	if o.K%4 != 0 {
		run = 1
	}
	threads := tile / 8 * (tile / 8)
	return []Call{{
		Unit:   Unit{"gram.hip", fmt.Sprintf("GRAM_TILE=%d GRAM_STEP=%d GRAM_RUN=%d GRAM_ROWS=%d GRAM_EXPERTS=%d", tile, step, run, gramRows, flag(o.Slots != 0))},
		Symbol: "nstf_gram", Early: true,
		Grid: [3]uint32{uint32(gramTiles(o.K, tile)), 1, uint32(stack)}, Block: [3]uint32{uint32(threads), 1, 1},
		Args: []Arg{Ptr(o.X), I32(o.T), I32(o.K), Ptr(o.First), Ptr(o.Slots), I32(max(o.Share, 1)), Ptr(o.Sums), Ptr(o.Top), Ptr(o.Odd), Ptr(o.Counts)},
	}}
}

// gramTiles is the number of tiles on and below the diagonal.
func gramTiles(k, tile int) int {
	n := ceil(k, tile)
	return n * (n + 1) / 2
}
