//go:build !noasm

package cpu

import "golang.org/x/sys/cpu"

// runs reports whether this build and machine have level l. Detection reads
// HWCAP on Linux, sysctl on macOS and IsProcessorFeaturePresent on Windows;
// where an operating system says nothing, LevelNEON remains.
func runs(l Level) bool {
	switch l {
	case LevelGeneric, LevelNEON:
		return true
	case LevelDotProd:
		return cpu.ARM64.HasASIMDDP
	}
	return false
}
