package gguf

import (
	"cmp"
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
	maxKeys      = 1 << 14
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
	s.index = make(map[string]int, n)
	s.keys = make([]key, 0, n)
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

// An info is what of a tensor's entry in the header its Tensor does not hold.
type info struct {
	name string
	off  uint64 // from the start of the data section
	size int64
	at   int64 // of the entry, for messages
}

// readInfos reads the entries and makes the tensors, as yet without data.
func (s *shard) readInfos(c *cursor, n uint64) []info {
	if c.err != nil {
		return nil
	}
	infos := make([]info, 0, n)
	s.tensors = make([]formats.Tensor, 0, n)
	parts := make([]formats.Part, n)
	for i := uint64(0); i < n && c.err == nil; i++ {
		in := info{at: c.off}
		in.name = c.str("tensor name", maxNameLen)
		shape := readShape(c, in.name)
		id := c.u32()
		in.off = c.u64()
		if c.err != nil {
			break
		}
		t := formats.Tensor{Name: in.name, Shape: shape, Parts: parts[i : i+1 : i+1]}
		in.size, c.err = resolve(&t, int32(id))
		c.err = formats.At(s.name, "", in.at, c.err)
		infos, s.tensors = append(infos, in), append(s.tensors, t)
	}
	return infos
}

// readShape returns dimensions outermost first.
func readShape(c *cursor, name string) []int64 {
	n := c.u32()
	switch {
	case c.err != nil:
	case uint64(n) > uint64(c.left())/8:
		c.failf(name, "%d dimensions in %d bytes", n, c.left())
	case n > maxDims:
		c.unsupportedf(name, "%d dimensions: at most %d are read", n, maxDims)
	}
	if c.err != nil {
		return nil
	}
	shape := make([]int64, n)
	for i := range shape {
		d := c.u64()
		if d > math.MaxInt64 {
			c.failf(name, "dimension %d", d)
		}
		shape[len(shape)-1-i] = int64(d)
	}
	return shape
}

// resolve fills in scheme and part, but no data, from ggml's type, and
// returns the size.
func resolve(t *formats.Tensor, id int32) (int64, error) {
	row, ok := scheme.ByGGML(id)
	if !ok {
		return 0, formats.Unsupportedf("", t.Name, "ggml type %d (%s)", uint32(id), scheme.GGMLName(id))
	}
	specs, err := row.Parts(t.Shape, nil)
	if err != nil {
		return 0, &formats.FormatError{Tensor: t.Name, Offset: -1, Reason: fmt.Sprintf("shape %v of %s", t.Shape, row), Err: err}
	}
	t.Scheme = row.Name
	t.Parts[0] = formats.Part{Name: specs[0].Name, DType: specs[0].DType, Shape: specs[0].Shape}
	return specs[0].Bytes, nil
}

// locate checks every offset and gives the tensors their data. end is where
// the header ends.
func (s *shard) locate(src tensor.Blob, end int64, infos []info) error {
	// end is at most the file's size and alignment at most 2^31.
	data := (end + s.alignment - 1) &^ (s.alignment - 1)
	for i, in := range infos {
		if in.off&uint64(s.alignment-1) != 0 {
			return formats.ErrorAt(s.name, in.name, in.at, "data offset %d is no multiple of the alignment %d", in.off, s.alignment)
		}
		if in.size == 0 {
			continue
		}
		if room := src.Len() - data; room < 0 || in.off > uint64(room) || in.size > room-int64(in.off) {
			return formats.ErrorAt(s.name, in.name, in.at, "data at %d+%d of %d bytes ends behind the file's %d bytes: truncated?",
				data, in.off, in.size, src.Len())
		}
		s.tensors[i].Parts[0].Data = src.Slice(data+int64(in.off), in.size)
	}
	return checkUnique(s.name, infos)
}

// checkUnique refuses equal names and overlapping data. It sorts infos.
func checkUnique(file string, infos []info) error {
	slices.SortFunc(infos, func(a, b info) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.at, b.at))
	})
	for i := 1; i < len(infos); i++ {
		if infos[i].name == infos[i-1].name {
			return formats.ErrorAt(file, infos[i].name, infos[i].at, "duplicate tensor name")
		}
	}
	infos = slices.DeleteFunc(infos, func(in info) bool { return in.size == 0 })
	slices.SortFunc(infos, func(a, b info) int {
		return cmp.Compare(a.off, b.off)
	})
	for i := 1; i < len(infos); i++ {
		if a, b := infos[i-1], infos[i]; b.off-a.off < uint64(a.size) {
			return formats.ErrorAt(file, b.name, b.at, "data at %d overlaps that of %q at %d of %d bytes", b.off, a.name, a.off, a.size)
		}
	}
	return nil
}
