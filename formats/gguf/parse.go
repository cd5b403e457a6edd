package gguf

import (
	"fmt"
	"math"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

const (
	magic            = "GGUF"
	defaultAlignment = 32
	keyAlignment     = "general.alignment"

	maxKeyLen    = 1<<16 - 1
	maxNameLen   = 1024
	maxKeys      = 1 << 16
	maxTensors   = 1 << 16
	maxDims      = 4
	minKeySize   = 8 + 1 + 4 + 1 // length, one byte of key, type, one byte of value
	minInfoSize  = 8 + 1 + 4 + 4 + 8
	headerLength = 24
)

// A shard is one parsed file.
type shard struct {
	name      string
	version   uint32
	alignment int64
	raw       []byte // all key/value pairs as stored
	keys      []key
	index     map[string]int
	tensors   []formats.Tensor
}

// A key locates one metadata value in shard.raw.
type key struct {
	name string
	typ  uint32
	off  int64
}

// parse reads everything but tensor data.
func parse(name string, src tensor.Blob) (*shard, error) {
	s := &shard{name: name, alignment: defaultAlignment}
	c := newCursor(name, src)
	nTensors, nKeys := s.header(c)
	s.readKeys(c, nKeys)
	if c.err == nil {
		s.raw = make([]byte, c.off-headerLength)
		if n, err := src.ReadAt(s.raw, headerLength); n < len(s.raw) {
			return nil, &formats.FormatError{File: name, Offset: headerLength, Reason: "cannot be read", Err: err}
		}
	}
	s.readAlignment(c)
	infos := s.readInfos(c, nTensors)
	if c.err != nil {
		return nil, c.err
	}
	if err := s.locate(src, c.off, infos); err != nil {
		return nil, err
	}
	return s, nil
}

// header reads magic, version and counts.
func (s *shard) header(c *cursor) (nTensors, nKeys uint64) {
	m := string(c.take(4))
	if c.err == nil && m != magic {
		badMagic(c, m)
	}
	s.version = c.u32()
	switch v := s.version; {
	case c.err != nil:
	case v == 1:
		c.unsupportedf("", "GGUF version 1: convert the model again with a newer tool")
	case v&0xffff == 0 && v != 0:
		// The version is small, so its low half is zero only if its bytes
		// are swapped.
		c.unsupportedf("", "a big-endian GGUF (version %#x read as little-endian)", v)
	case v == 0:
		c.failf("", "GGUF version 0 does not exist")
	case v > 3:
		c.unsupportedf("", "GGUF version %d: 2 and 3 are read", v)
	}
	nTensors, nKeys = c.u64(), c.u64()
	if c.err == nil && (nKeys > maxKeys || nKeys > uint64(c.left())/minKeySize) {
		c.failf("", "%d metadata keys in %d bytes (at most %d keys are read)", nKeys, c.left(), maxKeys)
	}
	if c.err == nil && (nTensors > maxTensors || nTensors > uint64(c.left())/minInfoSize) {
		c.failf("", "%d tensors in %d bytes (at most %d tensors are read)", nTensors, c.left(), maxTensors)
	}
	return nTensors, nKeys
}

func badMagic(c *cursor, m string) {
	c.off = 0
	switch m {
	case "FUGG":
		c.unsupportedf("", "a byte-swapped GGUF (magic %q)", m)
	case "lmgg", "fmgg", "tjgg":
		c.unsupportedf("", "ggml's format before GGUF (magic %q): convert the model again with a newer tool", m)
	default:
		c.failf("", "magic %q is not %q: no GGUF file", m, magic)
	}
}

func (s *shard) readKeys(c *cursor, n uint64) {
	if c.err != nil {
		return
	}
	s.index = make(map[string]int)
	for ; n > 0 && c.err == nil; n-- {
		start := c.off
		name := c.str("metadata key", maxKeyLen)
		typ := c.u32()
		if c.err != nil {
			return
		}
		if _, ok := s.index[name]; ok {
			c.off = start
			c.failf(name, "duplicate metadata key")
			return
		}
		s.index[name] = len(s.keys)
		s.keys = append(s.keys, key{name, typ, c.off - headerLength})
		c.skipValue(name, typ, 0)
	}
}

func (s *shard) readAlignment(c *cursor) {
	if c.err != nil {
		return
	}
	v, ok := s.get(keyAlignment)
	if !ok {
		return
	}
	a, ok := v.(uint32)
	switch {
	case !ok:
		c.err = formats.Errorf(s.name, keyAlignment, "value %v is a %T, not a uint32", v, v)
	case a == 0 || a&(a-1) != 0:
		c.err = formats.Errorf(s.name, keyAlignment, "%d is not a power of two", a)
	}
	s.alignment = int64(a)
}

// get decodes one value.
func (s *shard) get(name string) (Value, bool) {
	i, ok := s.index[name]
	if !ok {
		return nil, false
	}
	v, _ := decodeValue(s.keys[i].typ, s.raw[s.keys[i].off:])
	return v, true
}

// An info is a tensor's entry in the header.
type info struct {
	name  string
	dims  [maxDims]int64 // innermost first
	nDims int
	row   *scheme.Scheme
	part  scheme.PartSpec
	off   uint64 // from the start of the data section
	at    int64  // of the entry, for messages
}

func (s *shard) readInfos(c *cursor, n uint64) []info {
	if c.err != nil {
		return nil
	}
	infos := make([]info, 0, min(n, 1024))
	for ; n > 0 && c.err == nil; n-- {
		in := info{at: c.off}
		in.name = c.str("tensor name", maxNameLen)
		nDims := c.u32()
		if c.err == nil && uint64(nDims) > uint64(c.left())/8 {
			c.failf(in.name, "%d dimensions in %d bytes", nDims, c.left())
		} else if c.err == nil && nDims > maxDims {
			c.unsupportedf(in.name, "%d dimensions: at most %d are read", nDims, maxDims)
		}
		in.nDims = int(nDims)
		for i := 0; i < in.nDims && c.err == nil; i++ {
			d := c.u64()
			if d > math.MaxInt64 {
				c.failf(in.name, "dimension %d", d)
			}
			in.dims[i] = int64(d)
		}
		id := c.u32()
		in.off = c.u64()
		if c.err == nil {
			c.err = in.resolve(s.name, id)
		}
		infos = append(infos, in)
	}
	return infos
}

// shape returns the dimensions outermost first.
func (in *info) shape() []int64 {
	out := slices.Clone(in.dims[:in.nDims])
	slices.Reverse(out)
	return out
}

// resolve looks up the type and computes the size.
func (in *info) resolve(file string, id uint32) error {
	row, ok := scheme.ByGGML(int32(id))
	if !ok {
		return &formats.UnsupportedError{File: file, Tensor: in.name, Offset: in.at,
			Feature: fmt.Sprintf("ggml type %d (%s)", id, scheme.GGMLName(int32(id)))}
	}
	specs, err := row.Parts(in.shape(), nil)
	if err != nil {
		return &formats.FormatError{File: file, Tensor: in.name, Offset: in.at,
			Reason: fmt.Sprintf("shape %v of %s", in.shape(), row), Err: err}
	}
	in.row, in.part = row, specs[0]
	return nil
}

// locate checks every offset and makes the tensors. end is where the header
// ends.
func (s *shard) locate(src tensor.Blob, end int64, infos []info) error {
	// end is at most the file's size and alignment at most 2^31.
	data := (end + s.alignment - 1) &^ (s.alignment - 1)
	s.tensors = make([]formats.Tensor, len(infos))
	for i := range infos {
		in := &infos[i]
		if in.off&uint64(s.alignment-1) != 0 {
			return formats.ErrorAt(s.name, in.name, in.at, "data offset %d is no multiple of the alignment %d", in.off, s.alignment)
		}
		room := src.Len() - data
		if in.part.Bytes > 0 && (room < 0 || in.off > uint64(room) || in.part.Bytes > room-int64(in.off)) {
			return formats.ErrorAt(s.name, in.name, in.at, "data at %d+%d of %d bytes ends behind the file's %d bytes: truncated?",
				data, in.off, in.part.Bytes, src.Len())
		}
		var blob tensor.Blob
		if in.part.Bytes > 0 {
			blob = src.Slice(data+int64(in.off), in.part.Bytes)
		}
		s.tensors[i] = in.tensor(blob)
	}
	return checkUnique(s.name, infos)
}

func (in *info) tensor(data tensor.Blob) formats.Tensor {
	part := formats.Part{Name: in.part.Name, DType: in.part.DType, Shape: in.part.Shape, Data: data}
	return formats.Tensor{Name: in.name, Shape: in.shape(), Scheme: in.row.Name, Parts: []formats.Part{part}}
}

// checkUnique refuses equal names and overlapping data. It sorts infos.
func checkUnique(file string, infos []info) error {
	slices.SortFunc(infos, func(a, b info) int {
		if a.name != b.name {
			if a.name < b.name {
				return -1
			}
			return 1
		}
		return int(a.at - b.at)
	})
	for i := 1; i < len(infos); i++ {
		if infos[i].name == infos[i-1].name {
			return formats.ErrorAt(file, infos[i].name, infos[i].at, "duplicate tensor name")
		}
	}
	infos = slices.DeleteFunc(infos, func(in info) bool { return in.part.Bytes == 0 })
	slices.SortFunc(infos, func(a, b info) int {
		switch {
		case a.off < b.off:
			return -1
		case a.off > b.off:
			return 1
		}
		return 0
	})
	for i := 1; i < len(infos); i++ {
		if a, b := infos[i-1], infos[i]; b.off-a.off < uint64(a.part.Bytes) {
			return formats.ErrorAt(file, b.name, b.at, "data at %d overlaps that of %q at %d of %d bytes", b.off, a.name, a.off, a.part.Bytes)
		}
	}
	return nil
}
