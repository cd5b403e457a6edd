//go:build unix && !(linux || darwin || freebsd)

package atomicfile

// available does not know this system's call; writing will tell.
func available(string) (int64, bool) { return 0, false }
