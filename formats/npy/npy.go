// Package npy writes and reads float32 arrays as NumPy's .npy files.
//
// In and out: row-major float32 numbers with a shape, stored little-endian
// under version 1.0 of the format ("<f4", C order), which every NumPy reads.
// A file is streamed when written; [Parse] views one that lies in memory.
//
// Source of the layout: NumPy's documentation, numpy.lib.format. What is
// written stays readable in every release.
package npy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// magic and version 1.0.
const magic = "\x93NUMPY\x01\x00"

// align is what NumPy pads the header to.
const align = 64

// header returns everything in front of the numbers.
func header(shape []int64) ([]byte, error) {
	if _, err := tensor.Size(tensor.F32, shape); err != nil {
		return nil, err
	}
	var dims strings.Builder
	for _, d := range shape {
		fmt.Fprintf(&dims, "%d, ", d)
	}
	s := dims.String()
	if len(shape) > 1 {
		s = strings.TrimSuffix(s, ", ")
	} else {
		s = strings.TrimSuffix(s, " ") // a Python tuple of one keeps its comma
	}
	dict := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }", s)
	size := len(magic) + 2 + len(dict) + 1
	pad := (align - size%align) % align
	if n := len(dict) + pad + 1; n > math.MaxUint16 {
		return nil, fmt.Errorf("npy: a shape of %d dimensions", len(shape))
	}
	out := append([]byte(magic), 0, 0)
	binary.LittleEndian.PutUint16(out[len(magic):], uint16(len(dict)+pad+1))
	out = append(out, dict...)
	out = append(out, bytes.Repeat([]byte{' '}, pad)...)
	return append(out, '\n'), nil
}

// A Writer streams one array.
type Writer struct {
	w    io.Writer
	left int64  // numbers still to come
	buf  []byte // where numbers lie otherwise in memory
}

// NewWriter writes the header of an array of this shape.
func NewWriter(w io.Writer, shape ...int64) (*Writer, error) {
	h, err := header(shape)
	if err != nil {
		return nil, err
	}
	n, err := tensor.Elements(shape)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(h)
	return &Writer{w: w, left: n}, err
}

// Size returns the bytes of the whole file of an array of this shape.
func Size(shape ...int64) (int64, error) {
	h, err := header(shape)
	if err != nil {
		return 0, err
	}
	n, err := tensor.Size(tensor.F32, shape)
	return int64(len(h)) + n, err
}

// Write appends numbers in row-major order. It panics where there are more
// than the shape holds.
func (w *Writer) Write(x []float32) error {
	if int64(len(x)) > w.left {
		panic(fmt.Sprintf("npy: %d numbers where %d are left", len(x), w.left))
	}
	buf, ok := tensor.Float32Bytes(x)
	if !ok {
		if cap(w.buf) < 4*len(x) {
			w.buf = make([]byte, 4*len(x))
		}
		buf = w.buf[:4*len(x)]
		for i, v := range x {
			binary.LittleEndian.PutUint32(buf[4*i:], math.Float32bits(v))
		}
	}
	w.left -= int64(len(x))
	_, err := w.w.Write(buf)
	return err
}

// Close fails where numbers are missing. It does not close what is below.
func (w *Writer) Close() error {
	if w.left != 0 {
		return fmt.Errorf("npy: %d numbers are missing", w.left)
	}
	return nil
}

// An Array is a float32 array in row-major order.
type Array struct {
	Shape []int64
	Data  []float32
}

// Parse reads a .npy file of float32 numbers in C order that lies in memory;
// name is for messages. Other element types and Fortran order are a
// [formats.UnsupportedError], damage is a [formats.FormatError].
func Parse(name string, p []byte) (*Array, error) {
	if !bytes.HasPrefix(p, []byte(magic)) {
		if bytes.HasPrefix(p, []byte(magic[:6])) && len(p) >= 8 && p[6] > 1 {
			return nil, formats.Unsupportedf(name, "", "version %d.%d of .npy", p[6], p[7])
		}
		return nil, formats.ErrorAt(name, "", 0, "not a .npy file: starts with %q", p[:min(len(p), 8)])
	}
	body := p[len(magic):]
	if len(body) < 2 {
		return nil, formats.ErrorAt(name, "", int64(len(magic)), "ends inside the header")
	}
	size := int(binary.LittleEndian.Uint16(body))
	if body = body[2:]; len(body) < size {
		return nil, formats.ErrorAt(name, "", int64(len(magic)), "header of %d bytes where %d are left", size, len(body))
	}
	shape, err := parseDict(name, string(body[:size]))
	if err != nil {
		return nil, err
	}
	want, err := tensor.Size(tensor.F32, shape)
	if err != nil {
		return nil, formats.Errorf(name, "shape", "%v", err)
	}
	if body = body[size:]; int64(len(body)) != want {
		return nil, formats.Errorf(name, "", "%d bytes of numbers where shape %v takes %d", len(body), shape, want)
	}
	a := &Array{Shape: shape, Data: make([]float32, want/4)}
	for i := range a.Data {
		a.Data[i] = math.Float32frombits(binary.LittleEndian.Uint32(body[4*i:]))
	}
	return a, nil
}

// parseDict reads the header, a Python dictionary of three known entries.
func parseDict(name, dict string) ([]int64, error) {
	inner, opened := strings.CutPrefix(strings.TrimSpace(dict), "{")
	inner, ok := strings.CutSuffix(inner, "}")
	if !opened || !ok {
		return nil, formats.Errorf(name, "", "header %q is not a dictionary", dict)
	}
	descr, ok := entry(inner, "'descr':")
	if !ok || !strings.HasPrefix(descr, "'") {
		return nil, formats.Errorf(name, "descr", "missing in header %q", dict)
	}
	if !strings.HasPrefix(descr, "'<f4'") {
		return nil, formats.Unsupportedf(name, "descr", "element type %.20q", descr)
	}
	order, ok := entry(inner, "'fortran_order':")
	switch {
	case strings.HasPrefix(order, "True"):
		return nil, formats.Unsupportedf(name, "fortran_order", "Fortran order")
	case !ok || !strings.HasPrefix(order, "False"):
		return nil, formats.Errorf(name, "fortran_order", "missing in header %q", dict)
	}
	tuple, ok := entry(inner, "'shape':")
	tuple, isTuple := strings.CutPrefix(tuple, "(")
	tuple, _, closed := strings.Cut(tuple, ")")
	if !ok || !isTuple || !closed {
		return nil, formats.Errorf(name, "shape", "missing in header %q", dict)
	}
	shape := []int64{}
	for _, d := range strings.Split(tuple, ",") {
		if d = strings.TrimSpace(d); d == "" {
			continue
		}
		n, err := strconv.ParseInt(d, 10, 64)
		if err != nil {
			return nil, formats.Errorf(name, "shape", "dimension %q", d)
		}
		shape = append(shape, n)
	}
	return shape, nil
}

// entry returns what stands behind a key.
func entry(dict, key string) (string, bool) {
	_, rest, ok := strings.Cut(dict, key)
	return strings.TrimSpace(rest), ok
}
