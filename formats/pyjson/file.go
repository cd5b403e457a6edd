package pyjson

import (
	"io"
	"os"

	"github.com/nstf/nstf/formats"
)

// ReadFile reads a file of at most limit bytes; what says in the error what a
// longer one cannot be: "plan".
func ReadFile(path string, limit int64, what string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, formats.Errorf(path, "", "more than %d bytes: this is no %s", limit, what)
	}
	return data, nil
}

// Version reads the version of a kind of file into dst. Zero is a FormatError,
// more than newest an UnsupportedError, which names the kind ("plan") and what a
// newer program made: the file itself, or what it lies in.
func (s *Scanner) Version(dst *int64, newest int64, kind, made string) func() error {
	return func() error {
		v, err := s.Uint("version")
		if err != nil {
			return err
		}
		if v == 0 {
			return s.Errorf("version", "0 is no version")
		}
		if v > newest {
			e := formats.Unsupportedf(s.file, "version", "version %d of %ss; this program knows %d", v, kind, newest)
			e.Offset = s.Offset()
			e.Hint = "a newer program made this " + made + ": use that one"
			return e
		}
		*dst = v
		return nil
	}
}
