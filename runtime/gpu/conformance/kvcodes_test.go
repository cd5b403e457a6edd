package conformance

import (
	"encoding/binary"

	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
)

// A codedVector is a key or a value in codes, as the processor keeps it.
type codedVector struct {
	format cpu.KVFormat
	codes  []byte   // one for each number, in groups of 32
	scales []uint16 // one for each group
}

// codesOf has the processor store a key of len(x) numbers, or a value, beside values of v
// numbers, and reads its codes from there: see kernels/cpu/kvcodes.go.
func codesOf(f cpu.KVFormat, x []float32, v int, key bool) codedVector {
	keys, values := x, x[:v]
	block := cpu.NewKVBlocks(f, 1, len(keys), len(values))
	cpu.Best().StoreKV(f, &block[0], 0, keys, values)
	raw, bits, n := block[0].AppendTo(nil), f.Bits(), len(x)
	if !key {
		n = v
	}
	groups, keyGroups, valueGroups := (n+31)/32, (len(keys)+31)/32, (v+31)/32
	apart, at, scales := 64, 0, 64*4*bits*(keyGroups+valueGroups)
	if !key {
		apart, at, scales = 1, 64*4*bits*keyGroups, scales+128*keyGroups
	}
	c := codedVector{format: f}
	for g := range groups {
		byteAt := func(i int) byte { return raw[at+(g*4*bits+i)*apart] }
		for i := range 32 {
			code := byteAt(i%16) >> (4 * (i / 16)) & 15
			switch bits {
			case 3:
				code = byteAt(i%8)>>(2*(i/8))&3 | byteAt(8+i/8)>>(i%8)&1<<2
			case 5:
				code |= byteAt(16+i/8) >> (i % 8) & 1 << 4
			}
			c.codes = append(c.codes, code)
		}
		c.scales = append(c.scales, binary.LittleEndian.Uint16(raw[scales+128*g:]))
	}
	return c
}

// numbers returns what the codes stand for, turned.
func (c codedVector) numbers(n int) []float32 {
	out, levels := make([]float32, n), c.format.Levels()
	scales := make([]float32, len(c.scales))
	for g, s := range c.scales {
		cpu.Best().DecodeF16(scales[g:g+1], binary.LittleEndian.AppendUint16(nil, s))
	}
	for i := range out {
		out[i] = scales[i/32] * float32(levels[c.codes[i]]) / 128
	}
	return out
}

// words returns a group's words as kernels/hip/kv.hip says: of lower bits, and of high ones.
func (c codedVector) words(g int) (low []uint32, high uint32) {
	low = make([]uint32, 4)
	if c.format == cpu.KVQ3 {
		low = low[:2]
	}
	for i, code := range c.codes[32*g : 32*g+32] {
		r, k, code := i/8, i%8, uint32(code)
		switch c.format {
		case cpu.KVQ3:
			low[r/2] |= code & 3 << (4*k + 2*(r%2))
			high |= code >> 2 << (4*k + r)
		default:
			low[r] |= code & 15 << (4 * k)
			high |= (code>>4 ^ 1) << (4*k + r)
		}
	}
	return low, high
}

// put writes the vector into a pool whose planes of words and of scales begin there.
func (c codedVector) put(pool []byte, plane, scales, vector int) {
	groups, bits := len(c.scales), c.format.Bits()
	plane += 4 * vector * groups * bits
	for g, s := range c.scales {
		low, high := c.words(g)
		for i, w := range low {
			put32(pool[plane+4*(g*len(low)+i):], w)
		}
		if len(low) < bits {
			put32(pool[plane+4*(groups*len(low)+g):], high)
		}
		binary.LittleEndian.PutUint16(pool[scales+2*(vector*groups+g):], s)
	}
}

// codedAt reads a vector of n numbers from a pool that kernels wrote.
func codedAt(f cpu.KVFormat, n int, pool []byte, plane, scales, vector int) codedVector {
	c, groups, low := codedVector{format: f}, (n+31)/32, min(f.Bits(), 4)&^1
	plane += 4 * vector * groups * f.Bits()
	for g := range groups {
		word := func(i int) uint32 { return le32(pool[plane+4*i:]) }
		for i := range 32 {
			r, k := i/8, i%8
			switch f {
			case cpu.KVQ3:
				c.codes = append(c.codes, byte(word(g*low+r/2)>>(4*k+2*(r%2))&3|word(groups*low+g)>>(4*k+r)&1<<2))
			case cpu.KVQ5:
				c.codes = append(c.codes, byte(word(g*low+r)>>(4*k)&15|(word(groups*low+g)>>(4*k+r)&1^1)<<4))
			default:
				c.codes = append(c.codes, byte(word(g*low+r)>>(4*k)&15))
			}
		}
		c.scales = append(c.scales, binary.LittleEndian.Uint16(pool[scales+2*(vector*groups+g):]))
	}
	return c
}

// planesAt returns where the planes of a pool begin.
func planesAt(kv *hip.KV) (at [5]int) {
	for i, n := range kv.Planes() {
		at[i+1] = at[i] + int(n)*kv.Pages
	}
	return at
}
