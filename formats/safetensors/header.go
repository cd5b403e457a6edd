package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/pyjson"
	"github.com/nstf/nstf/formats/tensor"
)

const (
	maxHeader  = 100_000_000
	maxTensors = 1 << 17
	maxDims    = 64
	lengthSize = 8 // the header's length, before the header
)

// A shard is one parsed file.
type shard struct {
	name     string
	metadata map[string]string
	tensors  []formats.Tensor // in the order of their data
}

// An entry is one tensor of the header.
type entry struct {
	name     string
	dtype    tensor.DType
	shape    []int64
	from, to int64
}

// parse reads everything but tensor data.
func parse(name string, src tensor.Blob) (*shard, error) {
	head, err := readHeader(name, src)
	if err != nil {
		return nil, err
	}
	s := &shard{name: name}
	entries, err := s.parseHeader(head)
	if err != nil {
		return nil, err
	}
	data := lengthSize + int64(len(head))
	if err := checkLayout(name, entries, src.Len()-data); err != nil {
		return nil, err
	}
	s.tensors = make([]formats.Tensor, len(entries))
	parts := make([]formats.Part, len(entries))
	for i, e := range entries {
		parts[i] = formats.Part{Name: "data", DType: e.dtype, Shape: e.shape, Data: src.Slice(data+e.from, e.to-e.from)}
		s.tensors[i] = formats.Tensor{Name: e.name, Shape: e.shape, Scheme: e.dtype.String(), Parts: parts[i : i+1 : i+1]}
	}
	return s, nil
}

// readHeader returns the header's bytes.
func readHeader(name string, src tensor.Blob) ([]byte, error) {
	var length [lengthSize]byte
	if src.Len() < lengthSize {
		return nil, formats.ErrorAt(name, "", 0, "truncated: %d bytes hold no header length", src.Len())
	}
	if _, err := src.ReadAt(length[:], 0); err != nil {
		return nil, &formats.FormatError{File: name, Offset: 0, Reason: "cannot be read", Err: err}
	}
	n := binary.LittleEndian.Uint64(length[:])
	switch {
	case n > maxHeader:
		return nil, formats.ErrorAt(name, "", 0, "header of %d bytes: more than %d, or no safetensors file", n, maxHeader)
	case n > uint64(src.Len()-lengthSize):
		return nil, formats.ErrorAt(name, "", 0, "truncated: a header of %d bytes in a file of %d", n, src.Len())
	case n == 0:
		return nil, formats.ErrorAt(name, "", 0, "header of 0 bytes")
	}
	head := make([]byte, n)
	if _, err := src.ReadAt(head, lengthSize); err != nil {
		return nil, &formats.FormatError{File: name, Offset: lengthSize, Reason: "cannot be read", Err: err}
	}
	if head[0] != '{' {
		return nil, formats.ErrorAt(name, "", lengthSize, "header starts with %q, not with '{'", head[0])
	}
	return head, nil
}

// parseHeader reads the entries in the order of the header.
func (s *shard) parseHeader(head []byte) ([]entry, error) {
	sc := pyjson.NewScanner(s.name, lengthSize, head)
	entries := make([]entry, 0, min(bytes.Count(head, []byte(`"data_offsets"`)), maxTensors))
	err := sc.Object(func(name string) error {
		if name == "__metadata__" {
			return s.parseMetadata(sc)
		}
		if len(entries) == maxTensors {
			return sc.Errorf(name, "more than %d tensors in a file", maxTensors)
		}
		e, err := parseEntry(s.name, name, sc)
		entries = append(entries, e)
		return err
	})
	if err == nil {
		err = sc.End()
	}
	if err == nil {
		err = checkUnique(s.name, entries)
	}
	return entries, err
}

// checkUnique sorts by name.
func checkUnique(file string, entries []entry) error {
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	for i := 1; i < len(entries); i++ {
		if entries[i].name == entries[i-1].name {
			return formats.Errorf(file, entries[i].name, "duplicate name")
		}
	}
	return nil
}

func (s *shard) parseMetadata(sc *pyjson.Scanner) error {
	if s.metadata != nil {
		return sc.Errorf("__metadata__", "duplicate name")
	}
	s.metadata = make(map[string]string)
	return sc.Object(func(key string) error {
		if _, ok := s.metadata[key]; ok {
			return sc.Errorf(key, "duplicate key in __metadata__")
		}
		if sc.Peek() != '"' {
			return sc.Errorf(key, "value in __metadata__ is not a string")
		}
		var err error
		s.metadata[key], err = sc.String()
		return err
	})
}

var fields = []string{"dtype", "shape", "data_offsets"}

// parseEntry reads {"dtype": .., "shape": [..], "data_offsets": [from, to]}.
func parseEntry(file, name string, sc *pyjson.Scanner) (entry, error) {
	e := entry{name: name}
	var numbers [maxDims]int64
	found, err := sc.Fields(name, fields, func(i int) error {
		if i == 0 {
			var err error
			e.dtype, err = parseDType(file, name, sc)
			return err
		}
		limit := maxDims
		if i == 2 {
			limit = 2
		}
		n, err := parseInts(name, sc, numbers[:limit])
		switch {
		case err != nil:
			return err
		case i == 1:
			e.shape = append(make([]int64, 0, n), numbers[:n]...)
		case n != 2 || numbers[0] > numbers[1]:
			return sc.Errorf(name, "data_offsets %v are no range", slices.Clone(numbers[:n]))
		default:
			e.from, e.to = numbers[0], numbers[1]
		}
		return nil
	})
	if err == nil && found != 1<<len(fields)-1 {
		err = sc.Errorf(name, "dtype, shape or data_offsets is missing")
	}
	if err == nil {
		err = e.checkSize(sc)
	}
	return e, err
}

func parseDType(file, name string, sc *pyjson.Scanner) (tensor.DType, error) {
	spelled, err := sc.Bytes()
	if err != nil {
		return tensor.Invalid, err
	}
	d := dtypeByName(string(spelled))
	if d == tensor.Invalid {
		return d, formats.Unsupportedf(file, name, "dtype %q", spelled)
	}
	return d, nil
}

// parseInts reads an array of at most len(out) sizes and returns how many.
func parseInts(name string, sc *pyjson.Scanner, out []int64) (int, error) {
	n := 0
	err := sc.Array(func() error {
		v, err := sc.Uint(name)
		if err != nil {
			return err
		}
		if n == len(out) {
			return sc.Errorf(name, "more than %d numbers", len(out))
		}
		out[n] = v
		n++
		return nil
	})
	return n, err
}

// checkSize compares the offsets with dtype and shape.
func (e *entry) checkSize(sc *pyjson.Scanner) error {
	size, err := tensor.Size(e.dtype, e.shape)
	if err != nil {
		return sc.Errorf(e.name, "%v", err)
	}
	n, err := tensor.Elements(e.shape)
	if bits := int64(e.dtype.Bits()); err != nil || n%8*bits%8 != 0 {
		return sc.Errorf(e.name, "%d elements of %v do not fill whole bytes", n, e.dtype)
	}
	if e.to-e.from != size {
		return sc.Errorf(e.name, "data_offsets span %d bytes, %v of %v needs %d", e.to-e.from, e.dtype, e.shape, size)
	}
	return nil
}

// checkLayout sorts entries by their data, which must cover room bytes
// exactly.
func checkLayout(file string, entries []entry, room int64) error {
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.name, b.name))
	})
	var end int64
	for _, e := range entries {
		if e.from < end {
			return formats.Errorf(file, e.name, "data_offsets [%d, %d] overlap the tensor before, which ends at %d", e.from, e.to, end)
		}
		if e.from > end {
			return formats.Errorf(file, e.name, "data_offsets [%d, %d] leave a hole after %d", e.from, e.to, end)
		}
		if e.to > room {
			return formats.Errorf(file, e.name, "truncated: data_offsets [%d, %d] in %d bytes of data", e.from, e.to, room)
		}
		end = e.to
	}
	if end != room {
		return formats.Errorf(file, "", "%d bytes of data, the tensors cover %d", room, end)
	}
	return nil
}
