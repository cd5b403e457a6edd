//go:build nogpu || !(linux || darwin || windows) || !(amd64 || arm64)

package driver

// Without purego a program for Linux is static, and runs where there is no C
// library or another one; it has no GPU.

func foreign(uintptr, ...uintptr) uintptr { panic("driver: a call without a library") }

func openLibrary(string) (uintptr, error) { return 0, errNoGPUs }

func lookup(uintptr, string) uintptr { return 0 }

func libraryPath(_ uintptr, _, _ string) string { return "" }
