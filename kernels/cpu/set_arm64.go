//go:build !noasm

package cpu

// newSet makes the set of a level that runs.
func newSet(l Level) *Set {
	s := genericSet()
	s.level = l
	return s
}
