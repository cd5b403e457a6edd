package formats

import (
	"cmp"
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

// At says where an error of either family is: in what file, in which tensor, at what
// byte, or "" and -1. What the error knows of that it keeps.
func At(file, tensor string, offset int64, err error) error {
	var f *FormatError
	var u *UnsupportedError
	switch {
	case errors.As(err, &f):
		locate(&f.File, &f.Tensor, &f.Offset, file, tensor, offset)
	case errors.As(err, &u):
		locate(&u.File, &u.Tensor, &u.Offset, file, tensor, offset)
	}
	return err
}

// In is [At] of a file, Of of a tensor.
func In(file string, err error) error   { return At(file, "", -1, err) }
func Of(tensor string, err error) error { return At("", tensor, -1, err) }

func locate(file, tensor *string, offset *int64, inFile, ofTensor string, at int64) {
	*file, *tensor = cmp.Or(*file, inFile), cmp.Or(*tensor, ofTensor)
	if *offset < 0 {
		*offset = at
	}
}

// shown is what an error says, on one line of a bounded length.
func shown(s string) string { return Printable(Brief(s, maxShownReason)) }
