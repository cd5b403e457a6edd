//go:build (!amd64 && !arm64) || noasm

package cpu

// runs reports whether this build and machine have level l.
func runs(l Level) bool { return l == LevelGeneric }

// newSet makes the set of a level that runs.
func newSet(Level) *Set { return genericSet() }
