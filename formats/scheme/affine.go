package scheme

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// affine is the layout of integer codes with a scale, and perhaps a zero
// point, for each group of consecutive weights of a row: what GPTQ, AWQ and
// compressed-tensors hold, once their codes are put in row order.
//
//	w = scale * (q - zero)
//
// Parameters: "bits" of a code, 2 to 8; "group", the weights of a group;
// "scale", the id of the scales' type: f16, bf16 or f32; "zero", the id of
// the zero points' type: u8, i16, f16, bf16 or f32, absent or 0 for none,
// when the zero point is 2^(bits-1); "index", absent or 0 where weight k
// belongs to group k/group, or else the number of rows of the tensor that
// share a row of part "index", which says each weight's group.
type affine struct{}

// affineParams are the checked parameters.
type affineParams struct {
	bits, group, groups int64
	scale, zero         tensor.DType
	index               int64
}

func (affine) params(s *Scheme, g geometry) (p affineParams, err error) {
	if err = knownParams(s, g, "bits", "group", "scale", "zero", "index"); err != nil {
		return p, err
	}
	if p.bits, err = param(s, g, "bits", 2, 8); err != nil {
		return p, err
	}
	if p.group, err = param(s, g, "group", 1, maxRun); err != nil {
		return p, err
	}
	p.groups = ceilDiv(g.k, p.group)
	if p.scale, err = paramType(s, g, "scale", false, tensor.F16, tensor.BF16, tensor.F32); err != nil {
		return p, err
	}
	p.zero, err = paramType(s, g, "zero", true, tensor.U8, tensor.I16, tensor.F16, tensor.BF16, tensor.F32)
	if err != nil {
		return p, err
	}
	if g.params["index"] != 0 {
		p.index, err = param(s, g, "index", 1, maxRun)
	}
	return p, err
}

// affineRow returns the bytes of a row of codes, padded to whole bytes.
func affineRow(k, bits int64) int64 { return k/8*bits + (k%8*bits+7)/8 }

func (a affine) parts(s *Scheme, g geometry) ([]PartSpec, error) {
	p, err := a.params(s, g)
	if err != nil {
		return nil, err
	}
	if len(g.shape) < 2 {
		return nil, formats.Errorf("", "", "%s needs rows and columns, not shape %v", s.Name, g.shape)
	}
	rows := []partRow{
		{"codes", tensor.U8, []int64{g.n, affineRow(g.k, p.bits)}},
		{"scales", p.scale, []int64{g.n, p.groups}},
	}
	if p.zero != tensor.Invalid {
		rows = append(rows, partRow{"zeros", p.zero, []int64{g.n, p.groups}})
	}
	if p.index > 0 {
		rows = append(rows, partRow{"index", tensor.I32, []int64{ceilDiv(g.n, p.index), g.k}})
	}
	return specs(rows...)
}

// affineRows decodes.
type affineRows struct {
	affineParams
	codes        []byte
	size         int64
	scales       numbers
	zeros        numbers // data is nil where zero is the same for all
	middle       float32
	indices      []byte // nil where groups are consecutive
	indexRowSize int64
}

func (a affine) open(s *Scheme, g geometry, data [][]byte) (rowDecoder, error) {
	p, err := a.params(s, g)
	if err != nil {
		return nil, err
	}
	r := &affineRows{affineParams: p, codes: data[0], size: affineRow(g.k, p.bits),
		scales: numbers{data[1], p.scale}, middle: float32(int(1) << (p.bits - 1))}
	data = data[2:]
	if p.zero != tensor.Invalid {
		r.zeros = numbers{data[0], p.zero}
		data = data[1:]
	}
	if p.index > 0 {
		r.indices, r.indexRowSize = data[0], 4*g.k
		for i := 0; i < len(r.indices); i += 4 {
			if v := le.Uint32(r.indices[i:]); int64(v) >= p.groups {
				return nil, formats.Errorf("", "", "index %d is %d, but there are %d groups", i/4, int32(v), p.groups)
			}
		}
	}
	return r, nil
}

func (r *affineRows) decodeRow(dst []float32, row int64) {
	UnpackCodes(dst, r.codes[row*r.size:(row+1)*r.size], int(r.bits))
	if r.indices != nil {
		r.scaleIndexed(dst, row)
		return
	}
	for g := range r.groups {
		scale, zero := r.at(row*r.groups + g)
		y := dst[g*r.group : min((g+1)*r.group, int64(len(dst)))]
		for j, q := range y {
			y[j] = scale * (q - zero)
		}
	}
}

func (r *affineRows) scaleIndexed(dst []float32, row int64) {
	index := r.indices[row/r.index*r.indexRowSize:]
	for k, q := range dst {
		scale, zero := r.at(row*r.groups + int64(le.Uint32(index[4*k:])))
		dst[k] = scale * (q - zero)
	}
}

func (r *affineRows) at(i int64) (scale, zero float32) {
	if r.zeros.data == nil {
		return r.scales.at(i), r.middle
	}
	return r.scales.at(i), r.zeros.at(i)
}

// cut applies row operations to all parts but the index, whose runs it
// leaves to the caller.
func (a affine) rowParts(t *formats.Tensor, op func(b tensor.Blob, rowSize int64) tensor.Blob) (pieces, *runs) {
	n, k := t.Rows()
	out := pieces{params: t.Params}
	for _, p := range t.Parts {
		if p.Name == "index" {
			return out, &runs{data: p.Data, size: 4 * k, run: t.Params["index"], n: n}
		}
		size := int64(0)
		if n > 0 {
			size = p.Data.Len() / n
		}
		out.data = append(out.data, op(p.Data, size))
	}
	return out, nil
}

// finish adds the cut index.
func (a affine) finish(p pieces, index *runs) pieces {
	if index != nil {
		p.data = append(p.data, index.data)
		p.params = with(p.params, "index", index.run)
	}
	return p
}

func (a affine) slice(t *formats.Tensor, s *Scheme, row, n int64) (pieces, error) {
	p, index := a.rowParts(t, func(b tensor.Blob, size int64) tensor.Blob { return b.Slice(row*size, n*size) })
	if index != nil {
		*index = index.slice(row, n)
	}
	return a.finish(p, index), nil
}

func (a affine) pick(t *formats.Tensor, s *Scheme, index []int64) (pieces, error) {
	p, r := a.rowParts(t, func(b tensor.Blob, size int64) tensor.Blob { return pickRows(b, size, index) })
	if r != nil {
		*r = r.pick(index)
	}
	return a.finish(p, r), nil
}

func (a affine) concat(ts []*formats.Tensor, s *Scheme) (pieces, error) {
	var out pieces
	var rs []runs
	for i, t := range ts {
		if !sameParams(ts[0], t, "index") || (t.Params["index"] == 0) != (ts[0].Params["index"] == 0) {
			return pieces{}, formats.Unsupportedf("", "", "joining %s of parameters %v and %v", s.Name, ts[0].Params, t.Params)
		}
		p, r := a.rowParts(t, func(b tensor.Blob, _ int64) tensor.Blob { return b })
		if i == 0 {
			out = p
		} else {
			for j := range out.data {
				out.data[j] = tensor.Concat(out.data[j], p.data[j])
			}
		}
		if r != nil {
			rs = append(rs, *r)
		}
	}
	if rs == nil {
		return out, nil
	}
	r := joinRuns(rs)
	return a.finish(out, &r), nil
}

// columnUnit implements columnLayout: where weights of a group are not neighbours, or rows end
// within bytes, none.
func (affine) columnUnit(t *formats.Tensor) int64 {
	unit, whole := t.Params["group"], 8/gcd(8, t.Params["bits"]) // of whole bytes
	_, k := t.Rows()
	if t.Params["index"] != 0 || k%whole != 0 {
		return 0
	}
	if unit >= k {
		unit = 1
	}
	return unit / gcd(unit, whole) * whole
}

// columns implements columnLayout.
func (a affine) columns(t *formats.Tensor, runs []Run) pieces {
	_, k := t.Rows()
	group, bits := t.Params["group"], t.Params["bits"]
	whole := 8 / gcd(8, bits)
	out := pieces{params: t.Params, data: []tensor.Blob{picked(t.Parts[0].Data, k, whole, whole*bits/8, runs)}}
	for _, p := range t.Parts[1:] {
		own := p.Data
		if group < k {
			own = picked(own, k, group, int64(p.DType.Bits()/8), runs)
		}
		out.data = append(out.data, own)
	}
	return out
}
