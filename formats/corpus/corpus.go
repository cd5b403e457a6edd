// Package corpus reads the texts that models are measured and calibrated on.
//
// In: a file, or a pipe. Out: its texts in order, or as much of them as is wanted
// ([Load]). A name that ends in .jsonl holds one
// JSON object per line with a string "text" or a list "messages", a
// conversation as chat templates take it; other keys are passed over. One that
// ends in .parquet has such a column. Any other file is one text, byte for byte
// (wiki.test.raw as much as book.txt). [ReadIDs] reads token ids that somebody
// else made.
//
// Nothing is repaired: a line that is no such object, or a "text" file with a
// NUL byte or in another encoding, is a [formats.FormatError] with its offset. Memory is
// at most about twice what is wanted, or the text of a parquet file, up to 4 GiB, and one
// of its pages. What is read stays readable in every release.
package corpus

import (
	"bytes"
	"math"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/pyjson"
)

// A Sample is one text, or one conversation.
type Sample struct {
	Text     string
	Messages []byte // JSON array, for tokenizer.ParseMessages; nil for a text
}

// Read returns the texts of a file. Conversations are an UnsupportedError.
func Read(path string) ([]string, error) {
	t, err := Load(path, Want{})
	if err != nil {
		return nil, err
	}
	return t.Texts(path)
}

// Texts returns the texts. Conversations are an UnsupportedError; name is for messages.
func (t *Text) Texts(name string) ([]string, error) { return texts(name, t.Samples) }

// ReadSamples returns the texts and conversations of a file.
func ReadSamples(path string) ([]Sample, error) {
	t, err := Load(path, Want{})
	if err != nil {
		return nil, err
	}
	return t.Samples, nil
}

// Parse reads the texts out of a file's bytes; the name's ending chooses the
// format.
func Parse(name string, p []byte) ([]string, error) {
	samples, err := ParseSamples(name, p)
	if err != nil {
		return nil, err
	}
	return texts(name, samples)
}

func texts(name string, samples []Sample) ([]string, error) {
	var out []string
	for i, s := range samples {
		if s.Messages != nil {
			return nil, formats.Unsupportedf(name, "messages", "a conversation (number %d of the file) where a text is measured", i)
		}
		out = append(out, s.Text)
	}
	return out, nil
}

// ParseSamples reads texts and conversations out of a file's bytes; the name's
// ending chooses the format.
func ParseSamples(name string, p []byte) ([]Sample, error) { return parseAt(name, p, 0) }

// parseAt parses bytes that begin at an offset of their file.
func parseAt(name string, p []byte, at int64) ([]Sample, error) {
	switch {
	case strings.HasSuffix(name, ".jsonl"):
		return parseLines(name, p, at)
	case strings.HasSuffix(name, ".parquet"):
		return parseParquet(name, bytes.NewReader(p), int64(len(p)), 0)
	}
	if bytes.HasPrefix(p, []byte{0x1f, 0x8b}) || bytes.HasPrefix(p, []byte{0x28, 0xb5, 0x2f, 0xfd}) {
		return nil, formats.ErrorAt(name, "", 0, "compressed (%x...): this is not a text until it is unpacked", p[:2])
	}
	if err := plain(name, p, at); err != nil {
		return nil, err
	}
	return []Sample{{Text: string(p)}}, nil
}

func parseLines(name string, p []byte, from int64) ([]Sample, error) {
	var samples []Sample
	for at := 0; at < len(p); {
		line := p[at:]
		end := bytes.IndexByte(line, '\n')
		if end < 0 {
			end = len(line)
		}
		line = line[:end]
		if len(bytes.TrimSpace(line)) > 0 {
			sample, err := parseLine(name, from+int64(at), line)
			if err != nil {
				return nil, err
			}
			samples = append(samples, sample)
		}
		at += end + 1
	}
	return samples, nil
}

// parseLine walks one object and keeps its text or its messages.
func parseLine(name string, at int64, line []byte) (out Sample, err error) {
	s := pyjson.NewScanner(name, at, line)
	found := map[string]bool{}
	err = s.Object(func(key string) error {
		if key != "text" && key != "messages" {
			return s.Skip()
		}
		if found[key] {
			return s.Errorf(key, "stands twice in one object")
		}
		found[key] = true
		if key == "text" {
			out.Text, err = s.String()
			return err
		}
		if s.Peek() != '[' {
			return s.Errorf(key, "is not a list")
		}
		from := s.Offset() - at
		if err := s.Skip(); err != nil {
			return err
		}
		out.Messages = bytes.Clone(line[from : s.Offset()-at])
		return nil
	})
	if err == nil {
		err = s.End()
	}
	switch {
	case err != nil:
	case len(found) == 0:
		err = formats.ErrorAt(name, "text", at, "missing in this line's object, and \"messages\" too")
	case len(found) == 2:
		err = formats.ErrorAt(name, "text", at, "stands beside \"messages\" in this line's object: which is meant?")
	}
	return out, err
}

// ReadIDs reads a file that is one flat JSON array of token ids.
func ReadIDs(path string) ([]int32, error) {
	p, err := formats.ReadFile(path, maxIDs, "a list of token ids")
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
