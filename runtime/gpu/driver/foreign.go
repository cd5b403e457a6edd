//go:build !nogpu && (linux || darwin || windows) && (amd64 || arm64)

package driver

import "github.com/ebitengine/purego"

// foreign calls a C function with integers and addresses.
func foreign(address uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(address, args...)
	return r
}
