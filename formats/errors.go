package formats

import (
	"errors"
	"fmt"
	"strings"
)

// What an error shows of the strings that it was given, which are often those of a
// file: they are cut to so many bytes and made [Printable].
const (
	maxShownPath   = 1024
	maxShownName   = 256
	maxShownReason = 1024
)

// A FormatError says that the input is wrong: truncated, lying, damaged or
// not what its name claims. Commands end with exit code 3 on it.
type FormatError struct {
	File   string // path, or "" when unknown
	Tensor string // tensor or metadata key, or ""
	Offset int64  // byte offset in File, or -1 when it has no meaning
	Reason string // what is wrong, quoting the offending value
	Err    error  // cause, or nil
}

// Error implements error.
func (e *FormatError) Error() string {
	return place(e.File, e.Tensor, e.Offset) + shown(e.Reason) + cause(e.Err)
}

// Unwrap returns the cause.
func (e *FormatError) Unwrap() error { return e.Err }

// An UnsupportedError says that the input is valid and that this program does
// not implement it. Commands end with exit code 4 on it.
type UnsupportedError struct {
	File    string
	Tensor  string
	Offset  int64
	Feature string // what is not implemented, quoting the offending value
	Hint    string // what the user can do, or ""
	Err     error
}

// Error implements error.
func (e *UnsupportedError) Error() string {
	return place(e.File, e.Tensor, e.Offset) + "unsupported: " + shown(e.Feature) + cause(e.Err)
}

// Unwrap returns the cause.
func (e *UnsupportedError) Unwrap() error { return e.Err }

// Errorf makes a FormatError without an offset.
func Errorf(file, tensor, format string, args ...any) *FormatError {
	return &FormatError{File: file, Tensor: tensor, Offset: -1, Reason: fmt.Sprintf(format, args...)}
}

// ErrorAt makes a FormatError at a byte offset.
func ErrorAt(file, tensor string, offset int64, format string, args ...any) *FormatError {
	return &FormatError{File: file, Tensor: tensor, Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

// Unsupportedf makes an UnsupportedError without an offset.
func Unsupportedf(file, tensor, format string, args ...any) *UnsupportedError {
	return &UnsupportedError{File: file, Tensor: tensor, Offset: -1, Feature: fmt.Sprintf(format, args...)}
}

func place(file, tensor string, offset int64) string {
	var b strings.Builder
	if file != "" {
		b.WriteString(Printable(Brief(file, maxShownPath)))
		b.WriteString(": ")
	}
	if tensor != "" {
		fmt.Fprintf(&b, "%q: ", Brief(tensor, maxShownName))
	}
	if offset >= 0 {
		fmt.Fprintf(&b, "at byte %d: ", offset)
	}
	return b.String()
}

func cause(err error) string {
	if err == nil {
		return ""
	}
	return ": " + shown(err.Error())
}

// In names the file in an error of either family that has none yet.
func In(file string, err error) error {
	var f *FormatError
	var u *UnsupportedError
	switch {
	case errors.As(err, &f) && f.File == "":
		f.File = file
	case errors.As(err, &u) && u.File == "":
		u.File = file
	}
	return err
}

// shown is what an error says, on one line of a bounded length.
func shown(s string) string { return Printable(Brief(s, maxShownReason)) }
