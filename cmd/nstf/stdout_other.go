//go:build !linux

package main

// mayBeClosed is known on Linux alone.
func mayBeClosed(uintptr) bool { return false }
