package scheme

import (
	"fmt"
	"math"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// nvfp4 is the layout of ggml's blocks of that name, 36 bytes per 64 weights, 4
// bytes of scales for 16 weights each and 32 bytes of E2M1 codes, and perhaps of a
// further factor for runs of rows, which checkpoints have for a whole matrix:
//
//	w = (scale/2 * doubled[q]) * factor
//
// Parameter: "rows", the rows that share an element of part "scale", a float32;
// absent or 0 where there is no such part and no factor.
type nvfp4 struct{ blocks }

func (l nvfp4) parts(s *Scheme, g geometry) ([]PartSpec, error) {
	if err := knownParams(s, g, "rows"); err != nil {
		return nil, err
	}
	bare := g
	bare.params = nil
	out, err := l.blocks.parts(s, bare)
	if err != nil || g.params["rows"] == 0 {
		return out, err
	}
	rows, err := param(s, g, "rows", 1, maxRun)
	if err != nil {
		return nil, err
	}
	scale, err := spec("scale", tensor.F32, ceilDiv(g.n, rows), min(g.k, 1))
	return append(out, scale), err
}

func (l nvfp4) open(s *Scheme, g geometry, data [][]byte) (rowDecoder, error) {
	codes, err := l.blocks.open(s, g, data)
	if err != nil || len(data) == 1 {
		return codes, err
	}
	return &scaledRows{codes, numbers{data[1], tensor.F32}, g.params["rows"]}, nil
}

// scaledRows multiplies decoded rows.
type scaledRows struct {
	rowDecoder
	factors numbers
	rows    int64
}

func (r *scaledRows) decodeRow(dst []float32, row int64) {
	r.rowDecoder.decodeRow(dst, row)
	f := r.factors.at(row / r.rows)
	for i := range dst {
		dst[i] *= f
	}
}

// factorRuns views the factors as one row for every "rows" rows.
func factorRuns(t *formats.Tensor) runs {
	n, k := t.Rows()
	return runs{data: t.Parts[1].Data, size: 4 * min(k, 1), run: t.Params["rows"], n: n}
}

// cut adds the factors of cut rows to their blocks.
func (nvfp4) cut(t *formats.Tensor, codes pieces, err error, op func(r runs) runs) (pieces, error) {
	if err != nil || len(t.Parts) == 1 {
		return codes, err
	}
	r := op(factorRuns(t))
	return pieces{with(t.Params, "rows", r.run), append(codes.data, r.data)}, nil
}

// columnUnit implements columnLayout.
func (nvfp4) columnUnit(t *formats.Tensor) int64 {
	s, _ := ByName(t.Scheme)
	return int64(s.Block)
}

// columns implements columnLayout: factors are of whole rows.
func (nvfp4) columns(t *formats.Tensor, runs []Run) pieces {
	s, _ := ByName(t.Scheme)
	_, k := t.Rows()
	out := pieces{params: t.Params}
	for _, p := range t.Parts {
		out.data = append(out.data, p.Data)
	}
	out.data[0] = picked(out.data[0], k, int64(s.Block), int64(s.BlockBytes), runs)
	return out
}

func (l nvfp4) slice(t *formats.Tensor, s *Scheme, row, n int64) (pieces, error) {
	codes, err := l.blocks.slice(t, s, row, n)
	return l.cut(t, codes, err, func(r runs) runs { return r.slice(row, n) })
}

func (l nvfp4) pick(t *formats.Tensor, s *Scheme, index []int64) (pieces, error) {
	codes, err := l.blocks.pick(t, s, index)
	return l.cut(t, codes, err, func(r runs) runs { return r.pick(index) })
}

func (l nvfp4) concat(ts []*formats.Tensor, s *Scheme) (pieces, error) {
	for _, t := range ts {
		if len(t.Parts) != len(ts[0].Parts) {
			return pieces{}, formats.Unsupportedf("", "", "joining %s with factors and without", s.Name)
		}
	}
	codes, err := l.blocks.concat(ts, s)
	return l.cut(ts[0], codes, err, func(runs) runs {
		var all []runs
		for _, t := range ts {
			all = append(all, factorRuns(t))
		}
		return joinRuns(all)
	})
}

// decodeNVFP4 decodes blocks of nvfp4: byte j of the 8 bytes of codes of 16 weights
// holds weight j in its low nibble and weight j+8 above.
func decodeNVFP4(dst []float32, src []byte) {
	for len(dst) >= 64 && len(src) >= 36 {
		for g := range 4 {
			d := nvfp4Scales[src[g]]
			y, q := (*[16]float32)(dst[16*g:]), (*[8]byte)(src[4+8*g:])
			for j, c := range q {
				y[j] = d * mxfp4Values[c&15]
				y[j+8] = d * mxfp4Values[c>>4]
			}
		}
		dst, src = dst[64:], src[36:]
	}
}

// nvfp4Scales are the halves of the scale bytes' values.
var nvfp4Scales = makeNVFP4Scales()

// NVFP4Scales returns the factors of doubled codes by scale byte.
func NVFP4Scales() [256]float32 { return nvfp4Scales }

// makeNVFP4Scales reads bytes as E4M3 without looking at the sign, and like ggml (see
// ggml_ue4m3_to_fp32 in ggml/src/ggml-impl.h) takes the NaN 127 for 0 and 255 for 480.
func makeNVFP4Scales() (out [256]float32) {
	for x := range out {
		e, m := x>>3&15, x&7
		if e > 0 {
			e, m = e-1, m+8
		}
		if x != 127 {
			out[x] = float32(math.Ldexp(float64(m), e-10))
		}
	}
	return out
}

// PackNVFP4 interleaves the two arrays that checkpoints have into blocks of nvfp4:
// codes holds 32 bytes per block, weight 2j in the low nibble of byte j and 2j+1
// above; scales holds 4 E4M3 bytes per block. dst takes 36 bytes per block.
// It panics where the lengths do not agree.
func PackNVFP4(dst, codes, scales []byte) {
	if n := len(scales) / 4; len(scales)%4 != 0 || len(dst) != 36*n || len(codes) != 32*n {
		panic(fmt.Sprintf("scheme: %d bytes of nvfp4 blocks, %d of codes, %d of scales", len(dst), len(codes), len(scales)))
	}
	for i := range len(scales) / 4 {
		block, q := dst[36*i:36*i+36], codes[32*i:32*i+32]
		copy(block[:4], scales[4*i:])
		for g := range 4 {
			for j := range 4 {
				a, b := q[8*g+j], q[8*g+j+4] // weights 2j, 2j+1 and 2j+8, 2j+9 of 16
				block[4+8*g+2*j] = a&15 | b<<4
				block[5+8*g+2*j] = a>>4 | b&0xF0
			}
		}
	}
}
