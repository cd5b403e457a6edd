package scheme

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// fp8 is the layout of E4M3 weights with a scale for each rectangle of rows
// by cols weights: the whole tensor, a row, or a block such as 128 by 128.
//
//	w = e4m3 * scale
//
// Parameters: "rows" and "cols" of a rectangle, those at the lower and right
// edge being smaller; "scale", the id of the scales' type: f16, bf16 or f32.
type fp8 struct{}

func (fp8) params(s *Scheme, g geometry) (rows, cols int64, scale tensor.DType, err error) {
	if err = knownParams(s, g, "rows", "cols", "scale"); err != nil {
		return
	}
	if rows, err = param(s, g, "rows", 1, maxRun); err != nil {
		return
	}
	if cols, err = param(s, g, "cols", 1, maxRun); err != nil {
		return
	}
	scale, err = paramType(s, g, "scale", false, tensor.F16, tensor.BF16, tensor.F32)
	return
}

func (f fp8) parts(s *Scheme, g geometry) ([]PartSpec, error) {
	rows, cols, scale, err := f.params(s, g)
	if err != nil {
		return nil, err
	}
	if len(g.shape) < 2 {
		return nil, formats.Errorf("", "", "%s needs rows and columns, not shape %v", s.Name, g.shape)
	}
	return specs(
		partRow{"codes", tensor.F8E4M3, []int64{g.n, g.k}},
		partRow{"scales", scale, []int64{ceilDiv(g.n, rows), ceilDiv(g.k, cols)}})
}

type fp8Rows struct {
	codes            []byte
	rows, cols, wide int64 // wide is the number of scales in a row
	scales           numbers
	values           *[256]float32
}

func (f fp8) open(s *Scheme, g geometry, data [][]byte) (rowDecoder, error) {
	rows, cols, scale, err := f.params(s, g)
	if err != nil {
		return nil, err
	}
	return &fp8Rows{codes: data[0], rows: rows, cols: cols, wide: ceilDiv(g.k, cols),
		scales: numbers{data[1], scale}, values: tensor.F8E4M3Values()}, nil
}

func (r *fp8Rows) decodeRow(dst []float32, row int64) {
	k := int64(len(dst))
	codes := r.codes[row*k : (row+1)*k]
	for c := range r.wide {
		scale := r.scales.at(row/r.rows*r.wide + c)
		from, to := c*r.cols, min((c+1)*r.cols, k)
		y := dst[from:to]
		for j, q := range codes[from:to] {
			y[j] = r.values[q] * scale
		}
	}
}

// scaleRuns views the scales as one row for every "rows" rows.
func (fp8) scaleRuns(t *formats.Tensor) runs {
	n, _ := t.Rows()
	r := runs{data: t.Parts[1].Data, run: t.Params["rows"], n: n}
	if n > 0 {
		r.size = r.data.Len() / ceilDiv(n, r.run)
	}
	return r
}

func (fp8) finish(t *formats.Tensor, codes tensor.Blob, r runs) (pieces, error) {
	return pieces{params: with(t.Params, "rows", r.run), data: []tensor.Blob{codes, r.data}}, nil
}

func (f fp8) slice(t *formats.Tensor, s *Scheme, row, n int64) (pieces, error) {
	_, k := t.Rows()
	return f.finish(t, t.Parts[0].Data.Slice(row*k, n*k), f.scaleRuns(t).slice(row, n))
}

func (f fp8) pick(t *formats.Tensor, s *Scheme, index []int64) (pieces, error) {
	_, k := t.Rows()
	return f.finish(t, pickRows(t.Parts[0].Data, k, index), f.scaleRuns(t).pick(index))
}

func (f fp8) concat(ts []*formats.Tensor, s *Scheme) (pieces, error) {
	rs := make([]runs, len(ts))
	for i, t := range ts {
		if !sameParams(ts[0], t, "rows") {
			return pieces{}, formats.Unsupportedf("", "", "joining %s of parameters %v and %v", s.Name, ts[0].Params, t.Params)
		}
		rs[i] = f.scaleRuns(t)
	}
	return f.finish(ts[0], joinPart(ts, 0), joinRuns(rs))
}

// columnUnit implements columnLayout.
func (fp8) columnUnit(t *formats.Tensor) int64 {
	if _, k := t.Rows(); t.Params["cols"] >= k {
		return 1 // a scale for whole rows
	}
	return t.Params["cols"]
}

// columns implements columnLayout.
func (f fp8) columns(t *formats.Tensor, runs []Run) pieces {
	_, k := t.Rows()
	cols, scales := t.Params["cols"], t.Parts[1].Data
	if cols < k {
		scales = picked(scales, k, cols, int64(t.Parts[1].DType.Bits()/8), runs)
	}
	return pieces{params: t.Params, data: []tensor.Blob{picked(t.Parts[0].Data, k, 1, 1, runs), scales}}
}
