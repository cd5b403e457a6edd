package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/work"
)

// What is wrong with a tensor's bytes is damage. What keeps them from being read says nothing of
// them, and shards that run again would not mend it.
func TestDamageOfTensors(t *testing.T) {
	full := &atomicfile.DiskFullError{Path: "x", Err: &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{formats.Errorf("x", "", "truncated"), true},
		{errors.Join(formats.Errorf("x", "a", "damaged"), formats.Errorf("x", "b", "damaged")), true},
		{formats.Unsupportedf("x", "", "format version 9"), true},
		{full, false},
		{fmt.Errorf("s3://b/p/x: %w", full), false},
		{&work.StoreError{Place: "s3://b/p/x", Reason: "the store cannot be reached"}, false},
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES}, false},
		{syscall.EIO, false},
		{context.Canceled, false},
		{errors.New("interrupted"), false},
	} {
		if ofBytes(c.err) != c.want {
			t.Errorf("%v: %v", c.err, !c.want)
		}
	}
}
