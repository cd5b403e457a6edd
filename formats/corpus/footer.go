package corpus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/nstf/nstf/formats"
)

const (
	maxFooter = 64 << 20 // bytes of a parquet file's metadata
	maxNested = 32       // levels of structures in them: the format has nine
)

// checkFooter looks at a parquet file's metadata before the library does, which
// allocates what they ask for: their size must lie in the file, and lists and strings in
// the metadata.
//
// The file ends in the metadata, their size in four bytes and "PAR1"; they are one
// structure of Thrift's compact protocol. Sources: github.com/apache/parquet-format,
// README.md and src/main/thrift/parquet.thrift; github.com/apache/thrift,
// doc/specs/thrift-compact-protocol.md.
func checkFooter(name string, r io.ReaderAt, size int64) error {
	if size < 12 {
		return formats.Errorf(name, "", "not a readable parquet file: %d bytes", size)
	}
	var tail [8]byte
	if n, err := r.ReadAt(tail[:], size-8); n < len(tail) {
		return err
	}
	if string(tail[4:]) != "PAR1" {
		return formats.ErrorAt(name, "", size-4, "not a readable parquet file: it ends in %q", tail[4:])
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	if n > size-12 || n > maxFooter {
		return formats.ErrorAt(name, "", size-8, "not a readable parquet file: metadata of %d bytes in a file of %d", n, size)
	}
	p := make([]byte, n)
	if m, err := r.ReadAt(p, size-8-n); int64(m) < n {
		return err
	}
	t := compact{p: p}
	if err := t.structure(0); err != nil {
		return formats.ErrorAt(name, "", size-8-n+int64(t.at), "damaged parquet file: metadata: %v", err)
	}
	return nil
}

// A compact walks a structure of Thrift's compact protocol.
type compact struct {
	p  []byte
	at int
}

var errShort = errors.New("cut short")

func (t *compact) byte() (byte, error) {
	if t.at >= len(t.p) {
		return 0, errShort
	}
	t.at++
	return t.p[t.at-1], nil
}

func (t *compact) varint() (uint64, error) {
	v, n := binary.Uvarint(t.p[t.at:])
	if n <= 0 {
		return 0, errShort
	}
	t.at += n
	return v, nil
}

// count reads a number of things of at least one byte each.
func (t *compact) count() (int, error) {
	v, err := t.varint()
	if err == nil && v > uint64(len(t.p)-t.at) {
		err = fmt.Errorf("%d things in %d bytes", v, len(t.p)-t.at)
	}
	return int(v), err
}

func (t *compact) structure(depth int) error {
	if depth > maxNested {
		return errors.New("nested too deeply")
	}
	for {
		head, err := t.byte()
		if err != nil || head == 0 {
			return err
		}
		if head>>4 == 0 { // the field's number is written out
			if _, err := t.varint(); err != nil {
				return err
			}
		}
		if kind := head & 15; kind > 2 { // 1 and 2 are true and false, in the head alone
			if err := t.value(kind, depth); err != nil {
				return err
			}
		}
	}
}

func (t *compact) value(kind byte, depth int) error {
	switch kind {
	case 1, 2, 3:
		_, err := t.byte()
		return err
	case 4, 5, 6:
		_, err := t.varint()
		return err
	case 7:
		t.at += 8
		if t.at > len(t.p) {
			t.at = len(t.p)
			return errShort
		}
		return nil
	case 8:
		n, err := t.count()
		if err == nil {
			t.at += n
		}
		return err
	case 9, 10:
		return t.list(depth)
	case 12:
		return t.structure(depth + 1)
	}
	return fmt.Errorf("a value of kind %d", kind)
}

func (t *compact) list(depth int) error {
	head, err := t.byte()
	if err != nil {
		return err
	}
	n := int(head >> 4)
	if n == 15 {
		if n, err = t.count(); err != nil {
			return err
		}
	}
	for range n {
		if err := t.value(head&15, depth+1); err != nil {
			return err
		}
	}
	return nil
}
