package nstf

import (
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/nstf/nstf/formats"
)

// A decoder parses and checks the header. Everything that it accepts lies
// inside the file.
type decoder struct {
	cursor
	src       io.ReaderAt
	origin    *origin // of src, for guards
	dataStart int64   // file offset of the data section
	dataSize  int64
	stored    bool // takes schemes, forms, types and encodings that are not known
}

// A section is one value of the header's object, still unparsed.
type section struct{ begin, end int }

// newDecoder prepares to parse the JSON p of a file.
func newDecoder(p []byte, file string, src io.ReaderAt, dataStart, fileSize int64) *decoder {
	return &decoder{
		cursor:    cursor{p: p, file: file, base: preambleSize},
		src:       src,
		origin:    &origin{src, file, dataStart},
		dataStart: dataStart,
		dataSize:  fileSize - dataStart,
	}
}

// decode parses the header and checks the layout it describes.
func (d *decoder) decode() (*header, error) {
	h, err := d.parse()
	if err != nil {
		return nil, err
	}
	return h, d.checkLayout(h)
}

// parse parses the header and checks each item by itself.
func (d *decoder) parse() (*header, error) {
	if !utf8.Valid(d.p) {
		return nil, d.fail("not UTF-8")
	}
	all := d.p
	sections, err := d.split()
	if err != nil {
		return nil, err
	}
	h := &header{}
	// Features first: one that is unknown explains whatever else looks wrong.
	for _, s := range []struct {
		key   string
		parse func(*header) error
	}{
		{"requires", d.requires},
		{"provenance", d.provenance},
		{"files", d.files},
		{"model", d.model},
		{"tensors", d.tensors},
	} {
		at, ok := sections[s.key]
		if !ok {
			return nil, d.failAt(0, "key %q is missing", s.key)
		}
		d.p, d.i = all[:at.end], at.begin
		if err := s.parse(h); err != nil {
			return nil, err
		}
	}
	d.p = all
	return h, nil
}

// split finds the sections and checks the syntax of the whole.
func (d *decoder) split() (map[string]section, error) {
	out := map[string]section{}
	err := d.object(func(key string) error {
		d.peek()
		begin := d.i
		err := d.skip()
		switch key {
		case "requires", "provenance", "files", "model", "tensors":
			out[key] = section{begin, d.i}
		}
		return err
	})
	if err == nil && (d.peek() != 0 || d.i < len(d.p)) {
		err = d.fail("bytes after the object")
	}
	d.depth = 1 // sections are parsed inside the object
	return out, err
}

func (d *decoder) requires(h *header) error {
	return d.array(func(int) error {
		at := d.i
		feature, err := d.id("feature")
		if err != nil {
			return err
		}
		// Version 1 has no optional features yet. "shards" is reserved.
		return d.unsupported(at, "feature %q, which this package requires", feature)
	})
}

func (d *decoder) model(h *header) error {
	begin := d.i
	if d.peek() != '{' {
		return d.unexpected("the model's object")
	}
	h.model = append(json.RawMessage(nil), d.p[begin:]...)
	return nil
}

// id parses a short name.
func (d *decoder) id(what string) (string, error) {
	d.peek()
	at := d.i
	s, err := d.short()
	if err == nil && !isID(s) {
		err = d.failAt(at, "%s %s is not 1 to %d of a-z, A-Z, 0-9, '_', '-', '.'", what, quoteBrief([]byte(s)), MaxID)
	}
	return s, err
}

// hash parses a hash.
func (d *decoder) hash() (Hash, error) {
	d.peek()
	at := d.i
	s, err := d.str()
	if err != nil {
		return Hash{}, err
	}
	h, ok := ParseHash(s)
	if !ok {
		return h, d.failAt(at, "hash %s is not 64 lower-case hexadecimal digits", quoteBrief([]byte(s)))
	}
	return h, nil
}

// unknown refuses what this program does not know, or notes it where nothing is decoded.
func (d *decoder) unknown(note *string, at int, format string, args ...any) error {
	if !d.stored {
		return &formats.UnsupportedError{File: d.file, Tensor: d.where, Offset: d.base + int64(at), Feature: fmt.Sprintf(format, args...),
			Hint: "use a newer release of nstf; inspect and verify show what this one cannot decode"}
	}
	if *note == "" {
		*note = fmt.Sprintf(format, args...)
	}
	return nil
}

// require refuses the object that just ended, at at, where it lacks one of
// keys.
func (d *decoder) require(at int, keys ...string) error {
	for _, key := range keys {
		if !d.keys.has(key) {
			return d.failAt(at, "key %q is missing", key)
		}
	}
	return nil
}

// inside holds a range to the data section.
func (d *decoder) inside(at int, offset, size int64) error {
	if size > d.dataSize || offset > d.dataSize-size {
		return d.failAt(at, "%d bytes at %d lie beyond the %d bytes of data", size, offset, d.dataSize)
	}
	return nil
}
