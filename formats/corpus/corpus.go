// Package corpus reads the texts that models are measured and calibrated on.
//
// In: a file. Out: its texts in order. A name that ends in .jsonl holds one
// JSON object per line whose "text" is a string, other keys are passed over;
// any other file is one text, byte for byte (wiki.test.raw as much as
// book.txt). [ReadIDs] reads token ids that somebody else made.
//
// Nothing is repaired: a line that is no such object, or a "text" file with a
// NUL byte, is a [formats.FormatError] with its offset. Memory is at most
// about twice the file. What is read stays readable in every release.
package corpus

import (
	"bytes"
	"math"
	"os"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/pyjson"
)

// Read returns the texts of a file.
func Read(path string) ([]string, error) {
	p, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, p)
}

// Parse reads the texts out of a file's bytes; the name's ending chooses the
// format.
func Parse(name string, p []byte) ([]string, error) {
	if strings.HasSuffix(name, ".jsonl") {
		return parseLines(name, p)
	}
	if i := bytes.IndexByte(p, 0); i >= 0 {
		return nil, formats.ErrorAt(name, "", int64(i), "a NUL byte: this is not a text")
	}
	return []string{string(p)}, nil
}

func parseLines(name string, p []byte) ([]string, error) {
	var texts []string
	for at := 0; at < len(p); {
		line := p[at:]
		end := bytes.IndexByte(line, '\n')
		if end < 0 {
			end = len(line)
		}
		line = line[:end]
		if len(bytes.TrimSpace(line)) > 0 {
			text, err := parseLine(name, int64(at), line)
			if err != nil {
				return nil, err
			}
			texts = append(texts, text)
		}
		at += end + 1
	}
	return texts, nil
}

// parseLine walks one object and keeps its text.
func parseLine(name string, at int64, line []byte) (text string, err error) {
	s := pyjson.NewScanner(name, at, line)
	found := false
	err = s.Object(func(key string) error {
		if key != "text" {
			return s.Skip()
		}
		if found {
			return s.Errorf("text", "stands twice in one object")
		}
		found = true
		text, err = s.String()
		return err
	})
	if err == nil {
		err = s.End()
	}
	if err == nil && !found {
		err = formats.ErrorAt(name, "text", at, "missing in this line's object")
	}
	return text, err
}

// ReadIDs reads a file that is one flat JSON array of token ids.
func ReadIDs(path string) ([]int32, error) {
	p, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ParseIDs(path, p)
}

// ParseIDs reads a flat JSON array of token ids, each from 0 to 2^31-1.
func ParseIDs(name string, p []byte) ([]int32, error) {
	var ids []int32
	s := pyjson.NewScanner(name, 0, p)
	err := s.Array(func() error {
		n, err := s.Number()
		if err != nil {
			return err
		}
		id, ok := n.Int64()
		if !ok || id < 0 || id > math.MaxInt32 {
			return s.Errorf("", "%s is not a token id", n)
		}
		ids = append(ids, int32(id))
		return nil
	})
	if err == nil {
		err = s.End()
	}
	if err != nil {
		return nil, err
	}
	return ids, nil
}
