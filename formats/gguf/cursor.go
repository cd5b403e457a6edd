package gguf

import (
	"encoding/binary"
	"fmt"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// A cursor walks a file's header through a small window, so that skipping a
// vocabulary takes no memory. The first error sticks: later reads return
// zeros, and loops over counts from the file test err.
type cursor struct {
	name string
	src  tensor.Blob
	off  int64 // of the next byte
	err  error

	buf   []byte // bytes of src from start on
	start int64
}

const windowSize = 64 << 10

func newCursor(name string, src tensor.Blob) *cursor {
	return &cursor{name: name, src: src}
}

func (c *cursor) left() int64 { return c.src.Len() - c.off }

func (c *cursor) failf(what, format string, args ...any) {
	if c.err == nil {
		c.err = formats.ErrorAt(c.name, what, c.off, format, args...)
	}
}

func (c *cursor) unsupportedf(what, format string, args ...any) {
	if c.err == nil {
		c.err = &formats.UnsupportedError{File: c.name, Tensor: what, Offset: c.off, Feature: fmt.Sprintf(format, args...)}
	}
}

// take returns the next n bytes, valid until the next call, or nil. n is at
// most windowSize.
func (c *cursor) take(n int64) []byte {
	if c.err != nil {
		return nil
	}
	if n > c.left() {
		c.failf("", "truncated: %d bytes needed, %d left", n, c.left())
		return nil
	}
	at := c.off - c.start
	if at < 0 || at+n > int64(len(c.buf)) {
		if c.buf == nil {
			c.buf = make([]byte, min(windowSize, c.src.Len()))
		}
		c.buf = c.buf[:min(int64(cap(c.buf)), c.left())]
		if m, err := c.src.ReadAt(c.buf, c.off); m < len(c.buf) {
			c.err = &formats.FormatError{File: c.name, Offset: c.off, Reason: "cannot be read", Err: err}
			return nil
		}
		c.start, at = c.off, 0
	}
	c.off += n
	return c.buf[at : at+n]
}

func (c *cursor) u32() uint32 {
	if p := c.take(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if p := c.take(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

// skip moves over n bytes.
func (c *cursor) skip(what string, n uint64) {
	if c.err != nil {
		return
	}
	if n > uint64(c.left()) {
		c.failf(what, "truncated: %d bytes needed, %d left", n, c.left())
		return
	}
	c.off += int64(n)
}

// str reads a string of 1 to limit bytes.
func (c *cursor) str(kind string, limit uint64) string {
	n := c.u64()
	if c.err == nil && (n == 0 || n > limit) {
		c.failf("", "%s of %d bytes: 1 to %d are allowed", kind, n, limit)
	}
	if c.err != nil {
		return ""
	}
	return string(c.take(int64(n)))
}
