// Package imatrix reads the importance matrices that llama.cpp's tool of that
// name writes: for each matrix of a model the mean squares of what it reads.
//
// In: a .dat file of the old format, or a GGUF of the type "imatrix". Out: an
// [Entry] per tensor, by llama.cpp's name, and with [File.Stats] statistics of a
// model that know the diagonal of each input and nothing else.
//
// The old format is, in little endian: the number of entries (int32); for each
// the length of its name (int32), the name, the number of chunks n (int32), the
// number of values (int32) and the values, float32, each a mean of squares times
// n; then, in newer files, the last chunk (int32) and the name of the text, with
// its length (int32) before it. The GGUF has for each tensor T.in_sum2, sums of
// squares [K, experts], and T.counts, how many rows were summed [1, experts].
//
// Source: tools/imatrix/imatrix.cpp of llama.cpp, 2026. Sizes are checked against
// the file before memory is taken. What is read stays readable in every release.
package imatrix

import (
	"bytes"
	"encoding/binary"
	"math"
	"path/filepath"

	"github.com/nstf/nstf/formats"
)

// usualChunk is the tokens of a chunk where a file does not tell: the default of
// llama.cpp's tool.
const usualChunk = 512

// maxFile is far above what a matrix of the largest models takes.
const maxFile = 4 << 30

// A File is one importance matrix.
type File struct {
	Path    string
	Text    string // name of the text, "" where it is not told
	Entries map[string]*Entry
}

// An Entry is what one tensor reads: means of squares, for a stack of experts of
// each alone.
type Entry struct {
	Values [][]float32 // [Experts][K]; the old format does not divide: one row
	Tokens []int64     // of each row; 0: nothing came, and the row is zero
}

// Open reads a file, whose first bytes tell which format it is. Errors are those
// of the operating system, [formats.FormatError] and [formats.UnsupportedError].
func Open(path string) (*File, error) {
	p, err := formats.ReadFile(path, maxFile, "an importance matrix")
	if err != nil {
		return nil, err
	}
	return Parse(path, p)
}

// Parse reads a file that lies in memory; name is for messages.
func Parse(name string, p []byte) (*File, error) {
	f := &File{Path: name, Entries: map[string]*Entry{}}
	var err error
	if bytes.HasPrefix(p, []byte("GGUF")) {
		err = f.parseGGUF(p)
	} else {
		err = f.parseDat(p)
	}
	if err == nil && len(f.Entries) == 0 {
		err = formats.Errorf(name, "", "an importance matrix without entries")
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// A cursor walks a file of the old format; its first error stays.
type cursor struct {
	file string
	p    []byte
	at   int
	err  error
}

func (c *cursor) bytes(n int, what string) []byte {
	if c.err == nil && (n < 0 || n > len(c.p)-c.at) {
		c.err = formats.ErrorAt(c.file, "", int64(c.at), "%s of %d bytes, %d are left: this is no importance matrix, or it is cut short", what, n, len(c.p)-c.at)
	}
	if c.err != nil {
		return nil
	}
	c.at += n
	return c.p[c.at-n : c.at]
}

func (c *cursor) int(what string, least int32) int {
	p := c.bytes(4, what)
	if c.err != nil {
		return 0
	}
	v := int32(binary.LittleEndian.Uint32(p))
	if v < least {
		c.err = formats.ErrorAt(c.file, "", int64(c.at-4), "%s is %d", what, v)
	}
	return int(v)
}

func (f *File) parseDat(p []byte) error {
	c := &cursor{file: f.Path, p: p}
	n := c.int("the number of entries", 1)
	for i := 0; i < n && c.err == nil; i++ {
		name := string(c.bytes(c.int("the length of a name", 1), "a name"))
		calls := c.int("a number of chunks", 0)
		values := c.int("a number of values", 1)
		raw := c.bytes(4*values, "values")
		if c.err != nil {
			break
		}
		if f.Entries[name] != nil {
			return formats.ErrorAt(f.Path, name, int64(c.at), "duplicate entry")
		}
		e := &Entry{Tokens: []int64{int64(calls) * usualChunk}, Values: [][]float32{make([]float32, values)}}
		if calls > 0 {
			for j := range e.Values[0] {
				e.Values[0][j] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*j:])) / float32(calls)
			}
		}
		if err := check(f.Path, name, e); err != nil {
			return err
		}
		f.Entries[name] = e
	}
	if c.err == nil && c.at < len(p) { // older files end here
		c.int("the last chunk", math.MinInt32)
		f.Text = filepath.Base(string(c.bytes(c.int("the length of the text's name", 0), "the text's name")))
		if c.err == nil && c.at < len(p) {
			c.err = formats.ErrorAt(f.Path, "", int64(c.at), "%d bytes behind the end", len(p)-c.at)
		}
	}
	return c.err
}

// check refuses numbers that are no means of squares.
func check(file, name string, e *Entry) error {
	for x, row := range e.Values {
		for i, v := range row {
			if !(v >= 0) || math.IsInf(float64(v), 0) {
				return formats.Errorf(file, name, "the mean square of feature %d (row %d) is %v", i, x, v)
			}
		}
	}
	return nil
}
