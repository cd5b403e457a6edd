package pyjson

import (
	"github.com/nstf/nstf/formats"
)

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
