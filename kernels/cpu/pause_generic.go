//go:build !(amd64 || arm64) || noasm

package cpu

import "runtime"

// pause lets other goroutines run.
func pause(int64) { runtime.Gosched() }
