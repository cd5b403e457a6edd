package corpus

import (
	"bytes"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/zeebo/blake3"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// Standard is the path that stands for the reader of [Want]: standard input.
const Standard = "-"

const (
	maxText  = 4 << 30   // bytes of a text of which all is wanted
	maxLine  = 256 << 20 // bytes of a line of JSON
	pieces   = 64        // parts of a long file that are read where some of all of it is wanted
	maxIDs   = 1 << 30   // bytes of a list of token ids
	tolerate = 1000      // bytes of text for each that is no UTF-8, at least
)

// A Want says how much of a text is to be read.
type Want struct {
	// Most is the bytes of text, 0 for all of it. What is longer is cut.
	Most int64
	// Spread takes parts of a long file from all of it; else its start is read. A pipe
	// has a start alone.
	Spread bool
	// Input is read for [Standard].
	Input io.Reader
}

// A Text is what was read.
type Text struct {
	Samples []Sample
	// Piped says that it came through a pipe and cannot be read again. Size and Hash
	// (BLAKE3) are then of what was taken of it.
	Piped bool
	Size  int64
	Hash  [32]byte
	// Invalid counts the sequences of plain text that are no UTF-8.
	Invalid int
}

// Load reads texts and conversations from a file, or from a pipe: a FIFO, a terminal,
// standard input. A file of another kind, binary data and compressed text are a
// [formats.FormatError].
func Load(path string, w Want) (*Text, error) {
	if path == Standard {
		if w.Input == nil {
			return nil, formats.Errorf(path, "", "there is no standard input here")
		}
		return piped("standard input", w.Input, w.Most)
	}
	info, err := formats.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, formats.Errorf(path, "", "a folder: give one file")
	case info.Mode().IsRegular():
		return file(path, w)
	case info.Mode()&(os.ModeNamedPipe|os.ModeCharDevice) == 0:
		return nil, formats.Errorf(path, "", "neither a file nor a pipe")
	}
	f, err := os.Open(path) // waits for who writes
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return piped(path, f, w.Most)
}

// file reads a regular file.
func file(path string, w Want) (*Text, error) {
	f, err := formats.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if strings.HasSuffix(path, ".parquet") {
		samples, err := parseParquet(path, f, f.Size(), w.Most)
		return &Text{Samples: within(samples, w.Most)}, err
	}
	if w.Most == 0 && f.Size() > maxText {
		return nil, formats.Unsupportedf(path, "", "a text of %d bytes; all of one is read up to %d", f.Size(), int64(maxText))
	}
	if w.Most == 0 || f.Size() <= w.Most {
		p, err := section(f, 0, f.Size())
		if err != nil {
			return nil, err
		}
		samples, err := ParseSamples(path, p)
		return &Text{Samples: samples, Invalid: invalid(samples)}, err
	}
	samples, err := some(path, f, w)
	return &Text{Samples: within(samples, w.Most), Invalid: invalid(samples)}, err
}

// section reads a run of a file.
func section(f *tensor.File, at, n int64) ([]byte, error) {
	p := make([]byte, n)
	m, err := f.ReadAt(p, at)
	if int64(m) < n && err == io.EOF {
		err = formats.ErrorAt(f.Path(), "", at+int64(m), "file became shorter while it was read")
	}
	if int64(m) == n {
		err = nil
	}
	return p, err
}

// some reads parts of a file that is longer than what is wanted: lines that lie wholly
// in them, or where a line is longer than a part, what there is.
func some(path string, f *tensor.File, w Want) ([]Sample, error) {
	count := int64(1)
	if w.Spread {
		count = pieces
	}
	var out []Sample
	for i := range count {
		at := i * (f.Size() / count)
		p, err := section(f, at, min(w.Most/count, f.Size()-at))
		if err != nil {
			return nil, err
		}
		p, from := trim(p, at > 0, strings.HasSuffix(path, ".jsonl"))
		samples, err := parseAt(path, p, at+from)
		if err != nil {
			return nil, err
		}
		out = append(out, samples...)
	}
	if len(out) > 0 || !strings.HasSuffix(path, ".jsonl") {
		return out, nil
	}
	p, err := section(f, 0, min(f.Size(), maxLine)) // no line is as short as a part
	if err != nil {
		return nil, err
	}
	if i := bytes.IndexByte(p, '\n'); i >= 0 {
		p = p[:i]
	} else if f.Size() > maxLine {
		return nil, formats.ErrorAt(path, "", 0, "a line of more than %d bytes", int64(maxLine))
	}
	return ParseSamples(path, p)
}

// trim leaves the whole lines of a piece that was cut out of a file, and says how many
// bytes before them it dropped. Of plain text without line ends it leaves whole
// characters.
func trim(p []byte, began, lines bool) ([]byte, int64) {
	from := 0
	if began {
		if from = bytes.IndexByte(p, '\n') + 1; from == 0 {
			if lines {
				return nil, 0
			}
			for from < len(p) && from < utf8.UTFMax && !utf8.RuneStart(p[from]) {
				from++
			}
		}
	}
	end := bytes.LastIndexByte(p, '\n') + 1
	if end <= from {
		if lines {
			return nil, 0
		}
		end = wholeRunes(p)
	}
	return p[from:max(from, end)], int64(from)
}

// wholeRunes returns how many bytes are left without a character that was cut at the end.
func wholeRunes(p []byte) int {
	for i := len(p) - 1; i >= 0 && i >= len(p)-utf8.UTFMax; i-- {
		if utf8.RuneStart(p[i]) {
			if utf8.FullRune(p[i:]) {
				return len(p)
			}
			return i
		}
	}
	return len(p)
}

// piped reads a pipe up to what is wanted, and leaves the rest.
func piped(name string, r io.Reader, most int64) (*Text, error) {
	if strings.HasSuffix(name, ".parquet") {
		return nil, formats.Errorf(name, "", "a pipe: parquet is read from files alone")
	}
	limit := most
	if limit == 0 {
		limit = maxText
	}
	var b bytes.Buffer
	for int64(b.Len()) <= limit { // in steps, so that an endless pipe of other things ends soon
		n, err := io.CopyN(&b, r, min(1<<20, limit+1-int64(b.Len())))
		if err != nil && err != io.EOF {
			return nil, err
		}
		if i := bytes.IndexByte(b.Bytes()[b.Len()-int(n):], 0); i >= 0 {
			return nil, formats.ErrorAt(name, "", int64(b.Len())-n+int64(i), "a NUL byte: this is not a text")
		}
		if err == io.EOF {
			break
		}
	}
	p := b.Bytes()
	if int64(len(p)) > limit {
		if most == 0 {
			return nil, formats.Unsupportedf(name, "", "a text of more than %d bytes, of which all is wanted", limit)
		}
		if p, _ = trim(p[:limit], false, strings.HasSuffix(name, ".jsonl")); p == nil {
			return nil, formats.ErrorAt(name, "", 0, "a line of more than %d bytes", limit)
		}
	}
	samples, err := ParseSamples(name, p)
	if err != nil {
		return nil, err
	}
	return &Text{Samples: samples, Piped: true, Size: int64(len(p)), Hash: blake3.Sum256(p), Invalid: invalid(samples)}, nil
}

// within cuts samples to so many bytes of text together.
func within(samples []Sample, most int64) []Sample {
	if most == 0 {
		return samples
	}
	for i := range samples {
		s := &samples[i]
		n := int64(len(s.Text) + len(s.Messages))
		if n <= most {
			most -= n
			continue
		}
		if s.Messages == nil && most > 0 {
			s.Text = s.Text[:wholeRunes([]byte(s.Text[:most]))]
			return samples[:i+1]
		}
		return samples[:i]
	}
	return samples
}

// invalid counts the sequences that are no UTF-8.
func invalid(samples []Sample) (n int) {
	for i := range samples {
		n += Invalid(samples[i].Text)
	}
	return n
}

// Invalid counts the sequences of a text that are no UTF-8: what a tokenizer reads as
// U+FFFD.
func Invalid(s string) (n int) {
	for !utf8.ValidString(s) {
		i := 0
		for i < len(s) {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				n++
			}
			i += size
		}
		return n
	}
	return n
}

// plain checks that bytes are text: what is not UTF-8 in more than one byte of a
// thousand is something else, or another encoding.
func plain(name string, p []byte, at int64) error {
	if i := bytes.IndexByte(p, 0); i >= 0 {
		return formats.ErrorAt(name, "", at+int64(i), "a NUL byte: this is not a text")
	}
	n, first := 0, -1
	for i := 0; i < len(p); {
		if p[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRune(p[i:])
		if r == utf8.RuneError && size == 1 {
			if n++; first < 0 {
				first = i
			}
		}
		i += size
	}
	if n > 8 && n > len(p)/tolerate {
		return formats.ErrorAt(name, "", at+int64(first), "byte %#02x is not UTF-8, and %d more like it: this is not a text, or it is in another encoding", p[first], n-1)
	}
	return nil
}

// ReadPlain reads a file or a pipe as it is, up to limit bytes: more of them are a
// FormatError.
func ReadPlain(path string, limit int64) ([]byte, error) {
	info, err := formats.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().IsRegular() || info.Mode()&(os.ModeNamedPipe|os.ModeCharDevice) == 0 {
		return formats.ReadFile(path, limit, "a text to go on with")
	}
	f, err := os.Open(path) // waits for who writes
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadInput(path, f, limit)
}

// ReadInput reads all of a pipe, up to limit bytes; name is for messages.
func ReadInput(name string, r io.Reader, limit int64) ([]byte, error) {
	p, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(p)) > limit {
		return nil, formats.Errorf(name, "", "more than %d bytes of text", limit)
	}
	return p, err
}
