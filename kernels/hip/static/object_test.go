package static

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// A kernel is what a compiled kernel takes, by the metadata of its code object
// (LLVM's "User Guide for AMDGPU Backend", code object metadata).
type kernel struct {
	Name           string
	VGPRs          int // vector registers of a lane; from gfx90a on with accumulation registers
	AGPRs          int // accumulation registers
	SGPRs          int
	Spills         int // of registers of either kind, to memory or to other registers
	Scratch        int // bytes of a lane
	LDS            int // bytes that the source declares
	Wave           int
	MaxThreads     int
	DynamicScratch bool
}

// registers is what a lane takes of the register file: on gfx908 accumulation
// registers have one of their own, of the same size.
func (k *kernel) registers() int { return max(k.VGPRs, k.AGPRs) }

// kernels reads the metadata note of a code object.
func kernels(code []byte) ([]kernel, error) {
	f, err := elf.NewFile(bytes.NewReader(code))
	if err != nil {
		return nil, err
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE {
			continue
		}
		note := make([]byte, p.Filesz)
		if _, err := p.ReadAt(note, 0); err != nil {
			return nil, err
		}
		if meta := metadata(note); meta != nil {
			return describe(meta)
		}
	}
	return nil, fmt.Errorf("no metadata note")
}

// metadata finds the note named AMDGPU of type 32.
func metadata(note []byte) []byte {
	align := func(n uint32) int { return int(n+3) &^ 3 }
	for len(note) >= 12 {
		name, size, kind := binary.LittleEndian.Uint32(note), binary.LittleEndian.Uint32(note[4:]), binary.LittleEndian.Uint32(note[8:])
		note = note[12:]
		if len(note) < align(name)+int(size) {
			return nil
		}
		if kind == 32 && bytes.HasPrefix(note, []byte("AMDGPU")) {
			return note[align(name) : align(name)+int(size)]
		}
		note = note[min(align(name)+align(size), len(note)):]
	}
	return nil
}

func describe(meta []byte) ([]kernel, error) {
	value, _, err := unpack(meta)
	if err != nil {
		return nil, err
	}
	root, _ := value.(map[string]any)
	list, _ := root["amdhsa.kernels"].([]any)
	var all []kernel
	for _, item := range list {
		m, _ := item.(map[string]any)
		number := func(name string) int {
			n, _ := m[name].(int)
			return n
		}
		name, _ := m[".name"].(string)
		dynamic, _ := m[".uses_dynamic_stack"].(bool)
		all = append(all, kernel{
			Name: name, VGPRs: number(".vgpr_count"), AGPRs: number(".agpr_count"), SGPRs: number(".sgpr_count"),
			Spills: number(".vgpr_spill_count") + number(".sgpr_spill_count"), Scratch: number(".private_segment_fixed_size"),
			LDS: number(".group_segment_fixed_size"), Wave: number(".wavefront_size"), MaxThreads: number(".max_flat_workgroup_size"),
			DynamicScratch: dynamic,
		})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no kernels in the metadata")
	}
	return all, nil
}

// unpack reads a value of MessagePack as metadata has them: integers, booleans,
// text, lists and maps. It returns what follows.
func unpack(b []byte) (value any, rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil, fmt.Errorf("metadata is cut off")
	}
	c, b := b[0], b[1:]
	// size reads a big-endian number of so many bytes.
	size := func(bytes int) (n int) {
		if len(b) < bytes {
			err = fmt.Errorf("metadata is cut off")
			return 0
		}
		for _, x := range b[:bytes] {
			n = n<<8 | int(x)
		}
		b = b[bytes:]
		return n
	}
	switch {
	case c < 0x80:
		return int(c), b, nil
	case c >= 0xe0:
		return int(int8(c)), b, nil
	case c < 0x90:
		return unpackMap(b, int(c&15))
	case c < 0xa0:
		return unpackList(b, int(c&15))
	case c < 0xc0:
		return unpackText(b, int(c&31))
	case c == 0xc2, c == 0xc3:
		return c == 0xc3, b, nil
	case c >= 0xcc && c <= 0xcf:
		n := size(1 << (c - 0xcc))
		return n, b, err
	case c >= 0xd9 && c <= 0xdb:
		n := size(1 << (c - 0xd9))
		if err != nil {
			return nil, nil, err
		}
		return unpackText(b, n)
	case c == 0xdc, c == 0xdd:
		n := size(2 << (c - 0xdc))
		if err != nil {
			return nil, nil, err
		}
		return unpackList(b, n)
	case c == 0xde, c == 0xdf:
		n := size(2 << (c - 0xde))
		if err != nil {
			return nil, nil, err
		}
		return unpackMap(b, n)
	}
	return nil, nil, fmt.Errorf("metadata has a value of kind %#x", c)
}

func unpackText(b []byte, n int) (any, []byte, error) {
	if len(b) < n {
		return nil, nil, fmt.Errorf("metadata is cut off")
	}
	return string(b[:n]), b[n:], nil
}

func unpackList(b []byte, n int) (any, []byte, error) {
	var list []any
	for range n {
		v, rest, err := unpack(b)
		if err != nil {
			return nil, nil, err
		}
		list, b = append(list, v), rest
	}
	return list, b, nil
}

func unpackMap(b []byte, n int) (any, []byte, error) {
	m := map[string]any{}
	for range n {
		name, rest, err := unpack(b)
		if err != nil {
			return nil, nil, err
		}
		v, rest, err := unpack(rest)
		if err != nil {
			return nil, nil, err
		}
		key, _ := name.(string)
		m[key], b = v, rest
	}
	return m, b, nil
}
