package gpu

import "github.com/nstf/nstf/kernels/hip"

// align is what every buffer of an arena begins at a multiple of: the widest
// access of any kernel, and a line of any cache.
const align = 256

// An arena hands out pieces of one range of device memory. An arena that
// begins at address 0 only counts: laying something out twice, first by count
// and then for good, tells its size without a second list of what it holds.
type arena struct {
	base hip.Address
	used int64
}

// take returns n bytes.
func (a *arena) take(n int64) hip.Address {
	at := a.base + hip.Address(a.used)
	a.used += (n + align - 1) &^ (align - 1)
	return at
}

// floats and ints take so many 4-byte numbers.
func (a *arena) floats(n int) hip.Address { return a.take(4 * int64(n)) }
func (a *arena) ints(n int) hip.Address   { return a.take(4 * int64(n)) }
