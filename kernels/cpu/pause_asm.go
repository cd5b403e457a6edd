//go:build (amd64 || arm64) && !noasm

package cpu

// pause does nothing for a moment, n >= 1 times: some tens of cycles each.
//
//go:noescape
func pause(n int64)
