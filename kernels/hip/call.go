package hip

import "math"

// An Address is a byte address in device memory; 0 is none.
type Address uint64

// A Call is one kernel launch.
type Call struct {
	Unit   Unit
	Symbol string    // an extern "C" kernel of the unit
	Grid   [3]uint32 // blocks
	Block  [3]uint32 // threads of a block
	LDS    uint32    // bytes of dynamic LDS (shared memory)
	// Cooperative asks that all blocks are resident at once, since they wait
	// for one another.
	Cooperative bool
	// Early lets the launch begin before the one before it has ended, where the
	// driver can do that: the kernel itself waits, by wait_for_inputs of
	// common.hip, before it touches anything that another launch writes or reads.
	// Some block of every launch has to wait, even of one that has nothing to do:
	// the next launch waits for the end of this one alone, and so for that of
	// those before it.
	Early bool
	Args  []Arg
}

// An Arg is one kernel argument.
type Arg struct {
	Bits uint64 // little-endian value
	Size uint8  // bytes: 4 or 8
}

// Ptr passes an address.
func Ptr(a Address) Arg { return Arg{uint64(a), 8} }

// I32 passes an int.
func I32(v int) Arg { return Arg{uint64(uint32(int32(v))), 4} }

// I64 passes a long long.
func I64(v int64) Arg { return Arg{uint64(v), 8} }

// F32 passes a float.
func F32(v float32) Arg { return Arg{uint64(math.Float32bits(v)), 4} }
