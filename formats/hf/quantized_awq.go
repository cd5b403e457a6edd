package hf

import (
	"encoding/binary"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// AWQ in AutoAWQ's version "gemm", 4 bits. For W[N][K] in groups of G:
//
//	qweight i32 [K][N/8]      codes along N, eight to a word
//	qzeros  i32 [K/G][N/8]    zero points, packed likewise
//	scales      [K/G][N]
//
//	w = scale * (code - zero)
//
// Nibble i of a word holds column awqOrder[i] of its eight.
//
// Source: AutoAWQ's modules/linear/gemm.py and utils/packing_utils.py.
func (j *joiner) joinAWQ() error {
	bits, err := firstInt(j.q, "bits", "w_bit")
	if err != nil {
		return err
	}
	group, err := firstInt(j.q, "group_size", "q_group_size")
	if err != nil {
		return err
	}
	version, err := j.q.StringOr("version", "gemm")
	if err != nil {
		return err
	}
	if v := strings.ToLower(version); v != "gemm" || bits != 4 {
		return formats.Unsupportedf(j.q.file, j.q.path+"version", "AWQ of version %q with %d bits (gemm with 4 is read)", version, bits)
	}
	return j.each(".qweight", func(i int, base string) error {
		m := &affineMatrix{name: base + ".weight", bits: 4, group: group}
		if err := j.awqMatrix(m, &j.in[i], base); err != nil {
			return err
		}
		return j.put(i, m.tensor())
	})
}

// firstInt returns the first of two spellings of a required key.
func firstInt(c *Config, key, old string) (int64, error) {
	if !c.Has(key) && c.Has(old) {
		key = old
	}
	return c.Int(key)
}

func (j *joiner) awqMatrix(m *affineMatrix, q *formats.Tensor, base string) error {
	if len(q.Shape) != 2 || q.Parts[0].DType != tensor.I32 || q.Shape[0] == 0 {
		return j.wrongShape(q, "i32 [K, N/8]")
	}
	m.k, m.n = q.Shape[0], q.Shape[1]*8
	zeros, err := j.groups(m, q, base)
	if err != nil {
		return err
	}
	m.codes = awqCodes(q.Parts[0].Data, m.n, m.k)
	m.zeroType = tensor.U8
	m.zeros = awqZeros(zeros, m.n, m.groups())
	return nil
}

// awqShift is where a word holds column c of its eight: the inverse of the
// order [0 2 4 6 1 3 5 7], times 4.
var awqShift = [8]uint{0, 16, 4, 20, 8, 24, 12, 28}

// awqCodes turns [K][N/8] words into rows of nibbles, the first low: two
// columns' words at a time, whose even and odd nibbles interleave into the
// bytes of eight rows.
func awqCodes(b tensor.Blob, n, k int64) tensor.Blob {
	rowBytes := ceilDiv(k, 2)
	return repacked(n, rowBytes, 8, func(from, to int64) ([]byte, error) {
		words := (to - from) / 8
		in, err := readColumns(b, k, 4, from/8, to/8)
		if err != nil {
			return nil, err
		}
		in = append(in, make([]byte, k%2*words*4)...) // an odd K's missing column
		out := make([]byte, (to-from)*rowBytes)
		for from := int64(0); from < rowBytes; from += tile {
			for w := range words {
				awqWords(out[8*w*rowBytes:], in[4*w:], words, rowBytes, from, min(from+tile, rowBytes))
			}
		}
		return out, nil
	})
}

// awqWords writes bytes [from, to) of eight rows from a column of words.
func awqWords(rows, in []byte, words, rowBytes, from, to int64) {
	for at := from; at < to; at++ {
		low := binary.LittleEndian.Uint32(in[8*at*words:])
		high := binary.LittleEndian.Uint32(in[8*at*words+4*words:])
		even := low&0x0F0F0F0F | high&0x0F0F0F0F<<4
		odd := low>>4&0x0F0F0F0F | high&0xF0F0F0F0
		for i := range int64(2) {
			rows[i*rowBytes+at], rows[(4+i)*rowBytes+at] = byte(even>>(16*i)), byte(even>>(16*i+8))
			rows[(2+i)*rowBytes+at], rows[(6+i)*rowBytes+at] = byte(odd>>(16*i)), byte(odd>>(16*i+8))
		}
	}
}

// awqZeros turns [groups][n/8] words into [n][groups] bytes.
func awqZeros(b tensor.Blob, n, groups int64) tensor.Blob {
	return repacked(n, groups, 8, func(from, to int64) ([]byte, error) {
		words := (to - from) / 8
		in, err := readColumns(b, groups, 4, from/8, to/8)
		if err != nil {
			return nil, err
		}
		out := make([]byte, (to-from)*groups)
		for g := range groups {
			for w := range words {
				v := binary.LittleEndian.Uint32(in[4*(g*words+w):])
				for i, s := range awqShift {
					out[(8*w+int64(i))*groups+g] = byte(v >> s & 15)
				}
			}
		}
		return out, nil
	})
}
