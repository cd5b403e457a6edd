//go:build amd64 && !linux && !noasm

package cpu

// allowTiles returns false: tiles are measured on Linux only.
func allowTiles() bool { return false }
