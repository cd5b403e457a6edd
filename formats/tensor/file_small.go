//go:build unix && !linux

package tensor

func inLargePages([]byte) {}
