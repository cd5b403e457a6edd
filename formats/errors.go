package formats

import (
	"fmt"
	"strings"
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
	return place(e.File, e.Tensor, e.Offset) + e.Reason + cause(e.Err)
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
	return place(e.File, e.Tensor, e.Offset) + "unsupported: " + e.Feature + cause(e.Err)
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
		b.WriteString(file)
		b.WriteString(": ")
	}
	if tensor != "" {
		fmt.Fprintf(&b, "%q: ", tensor)
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
	return ": " + err.Error()
}
