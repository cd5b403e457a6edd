//go:build !linux

package place

func inLargePages([]byte) {}
