package main

import (
	"fmt"
	"os"

	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/model"
)

// writable finds out, before hours of work, whether a file can be written in the end:
// its folder takes files, and it is none of those that are read.
func writable(out string, m *model.Model, inputs ...string) error {
	if out == "" {
		return usagef("-o names no file")
	}
	f, err := atomicfile.Create(out, 0)
	if err != nil {
		return err
	}
	f.Abort()
	is, err := os.Stat(out)
	if err != nil {
		return nil // nothing there to lose
	}
	for _, path := range append(m.Sources(), inputs...) {
		if in, err := os.Stat(path); err == nil && os.SameFile(in, is) {
			return fmt.Errorf("%s is read to make it: choose another name for the output", out)
		}
	}
	return nil
}
