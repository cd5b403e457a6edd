package scheme

import (
	"math"
	"sync"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// tcq is the layout of trellis-coded rotated weights: docs/schemes/tcq.md.
//
//	W = diag(out) R_out' C R_in diag(in)
//
// where C holds a codeword of a 16-bit trellis state times a scale for each
// 16 rows, and R are signs and a Hadamard transform of blocks.
//
// Parameters: "bits" of new state for each weight, 2 to 6; "codebook", a
// [TCQCodebook]; "rotate_in" and "rotate_out", the blocks' sizes in columns
// and rows, a power of two up to 128, 1 for none; "seed" of the signs;
// "in_scales" and "out_scales", 1 where columns or rows have scales of their
// own.
type tcq struct{}

// Sizes of the trellis code.
const (
	TCQTile      = 16                // rows and columns of a tile
	TCQWeights   = TCQTile * TCQTile // weights of one tail-biting trellis
	TCQState     = 16                // bits of a state
	TCQMaxRotate = 128               // largest block of a Hadamard transform
	TCQMinBits   = 2
	TCQMaxBits   = 6
)

// tcqMaxSeed keeps seeds exact in every reader of JSON.
const tcqMaxSeed = 1<<53 - 1

// A TCQ is the parameters of a tensor in the scheme tcq.
type TCQ struct {
	Bits                int
	Codebook            TCQCodebook
	RotateIn, RotateOut int // 1: not rotated
	Seed                int64
	InScales, OutScales bool
}

// Params returns the parameters as a tensor carries them.
func (p TCQ) Params() map[string]int64 {
	m := map[string]int64{
		"bits": int64(p.Bits), "codebook": int64(p.Codebook),
		"rotate_in": int64(p.RotateIn), "rotate_out": int64(p.RotateOut), "seed": p.Seed,
	}
	if p.InScales {
		m["in_scales"] = 1
	}
	if p.OutScales {
		m["out_scales"] = 1
	}
	return m
}

// ParseTCQ reads the parameters of a tensor that [Check] has accepted.
func ParseTCQ(params map[string]int64) TCQ {
	return TCQ{
		Bits: int(params["bits"]), Codebook: TCQCodebook(params["codebook"]),
		RotateIn: int(params["rotate_in"]), RotateOut: int(params["rotate_out"]), Seed: params["seed"],
		InScales: params["in_scales"] != 0, OutScales: params["out_scales"] != 0,
	}
}

func (tcq) params(s *Scheme, g geometry) (p TCQ, err error) {
	if err = knownParams(s, g, "bits", "codebook", "rotate_in", "rotate_out", "seed", "in_scales", "out_scales"); err != nil {
		return p, err
	}
	for _, q := range []struct {
		name   string
		lo, hi int64
	}{
		{"bits", TCQMinBits, TCQMaxBits}, {"codebook", 1, int64(len(tcqCodebooks))},
		{"rotate_in", 1, TCQMaxRotate}, {"rotate_out", 1, TCQMaxRotate}, {"seed", 0, tcqMaxSeed},
		{"in_scales", 0, 1}, {"out_scales", 0, 1},
	} {
		if _, ok := g.params[q.name]; !ok && q.hi == 1 {
			continue // optional
		}
		if _, err = param(s, g, q.name, q.lo, q.hi); err != nil {
			return p, err
		}
	}
	p = ParseTCQ(g.params)
	if len(g.shape) < 2 {
		return p, formats.Errorf("", "", "%s needs rows and columns, not shape %v", s.Name, g.shape)
	}
	rows := g.shape[len(g.shape)-2] // of one matrix: rotations do not reach into the next expert
	if err = tcqFits(s, "rows", "rotate_out", rows, p.RotateOut); err != nil {
		return p, err
	}
	return p, tcqFits(s, "columns", "rotate_in", g.k, p.RotateIn)
}

// tcqFits refuses a dimension that tiles or rotated blocks do not divide.
func tcqFits(s *Scheme, what, name string, n int64, rotate int) error {
	if rotate&(rotate-1) != 0 {
		return formats.Errorf("", "", "%s: parameter %q is %d, which is not a power of two", s.Name, name, rotate)
	}
	if n%TCQTile != 0 || n%int64(rotate) != 0 {
		return formats.Errorf("", "", "%s: %d %s are not whole tiles of %d and blocks of %d", s.Name, n, what, TCQTile, rotate)
	}
	return nil
}

func (c tcq) parts(s *Scheme, g geometry) ([]PartSpec, error) {
	p, err := c.params(s, g)
	if err != nil {
		return nil, err
	}
	rows := []partRow{
		{"codes", tensor.U16, []int64{g.n / TCQTile, g.k / TCQTile, int64(p.Bits) * TCQTile}},
		{"scales", tensor.F16, []int64{g.n / TCQTile}},
	}
	if p.OutScales {
		rows = append(rows, partRow{"out", tensor.F16, []int64{g.n}})
	}
	if p.InScales {
		rows = append(rows, partRow{"in", tensor.F16, []int64{g.k}})
	}
	return specs(rows...)
}

// tcqRows decodes. Rows of one rotated block are decoded together and kept
// until a row of another is asked for.
type tcqRows struct {
	TCQ
	k       int64
	codes   []byte
	scales  []byte
	out, in []byte // nil: none
	table   *[1 << TCQState]int16
	signs   TCQSigns

	mu    sync.Mutex
	block int64 // number of the rotated block in rows, -1: none yet
	rows  []float32
}

func (c tcq) open(s *Scheme, g geometry, data [][]byte) (rowDecoder, error) {
	p, err := c.params(s, g)
	if err != nil {
		return nil, err
	}
	r := &tcqRows{TCQ: p, k: g.k, codes: data[0], scales: data[1], table: p.Codebook.Table(), signs: NewTCQSigns(p.Seed), block: -1}
	data = data[2:]
	if p.OutScales {
		r.out, data = data[0], data[1:]
	}
	if p.InScales {
		r.in = data[0]
	}
	return r, nil
}

func (r *tcqRows) decodeRow(dst []float32, row int64) {
	h := int64(r.RotateOut)
	if h == 1 {
		r.inputSide(dst, row)
		r.finishRow(dst, row)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := row / h; b != r.block {
		r.decodeBlock(b)
	}
	copy(dst, r.rows[row%h*r.k:][:r.k])
}

// decodeBlock decodes the rows of one rotated block.
func (r *tcqRows) decodeBlock(b int64) {
	h := int64(r.RotateOut)
	if r.rows == nil {
		r.rows = make([]float32, h*r.k)
	}
	for i := range h {
		r.inputSide(r.rows[i*r.k:][:r.k], b*h+i)
	}
	var column [TCQMaxRotate]float32
	for k := range r.k {
		for i := range h {
			column[i] = r.rows[i*r.k+k]
		}
		Hadamard(column[:h])
		for i := range h {
			r.rows[i*r.k+k] = column[i]
		}
	}
	for i := range h {
		r.finishRow(r.rows[i*r.k:][:r.k], b*h+i)
	}
	r.block = b
}

// inputSide decodes a row's codewords and turns them back to the columns of W.
func (r *tcqRows) inputSide(dst []float32, row int64) {
	scale := halfAt(r.scales, row/TCQTile) * tcqUnit
	tile := r.codes[row/TCQTile*(r.k/TCQTile)*r.tileBytes():]
	for j := int64(0); j < r.k; j++ {
		state := TCQStateAt(tile[j/TCQTile*r.tileBytes():][:r.tileBytes()], r.Bits, int(j%TCQTile*TCQTile+row%TCQTile))
		dst[j] = scale * float32(r.table[state])
	}
	for at := 0; r.RotateIn > 1 && at < len(dst); at += r.RotateIn {
		Hadamard(dst[at : at+r.RotateIn])
	}
	for j := range dst {
		if r.RotateIn > 1 && r.signs.In(j%r.RotateIn) {
			dst[j] = -dst[j]
		}
		if r.in != nil {
			dst[j] *= halfAt(r.in, int64(j))
		}
	}
}

// finishRow applies what belongs to a row of W: its sign and its scale.
func (r *tcqRows) finishRow(dst []float32, row int64) {
	factor := float32(1)
	if r.RotateOut > 1 && r.signs.Out(int(row%int64(r.RotateOut))) {
		factor = -1
	}
	if r.out != nil {
		factor *= halfAt(r.out, row)
	}
	for j := range dst {
		dst[j] *= factor
	}
}

func (r *tcqRows) tileBytes() int64 { return int64(r.Bits) * 2 * TCQTile }

func halfAt(b []byte, i int64) float32 { return tensor.F16ToF32(le.Uint16(b[2*i:])) }

// tcqUnit is the value of a codeword of 1 under a scale of 1: it keeps the
// scales of usual weights among the normal numbers of f16.
const tcqUnit = 1.0 / 128

// TCQStateAt returns the state of weight t of a tile: 16 bits of its stream
// from bit t*bits on, around its end. The tile has 32*bits bytes.
func TCQStateAt(tile []byte, bits, t int) uint16 {
	at := t * bits
	lo := uint32(le.Uint16(tile[at/16*2:]))
	hi := uint32(le.Uint16(tile[(at/16+1)*2%len(tile):]))
	return uint16((lo | hi<<16) >> (at % 16))
}

// Hadamard multiplies x by the orthonormal Hadamard matrix of its length, a
// power of two up to 128, in Sylvester's order, in place. It is its own
// inverse. Butterflies go from neighbours to halves, the factor comes last.
func Hadamard(x []float32) {
	s := 1
	if len(x) >= 8 { // three times through are one
		for at := 0; at < len(x); at += 8 {
			y := (*[8]float32)(x[at:])
			a, b, c, d := y[0]+y[1], y[0]-y[1], y[2]+y[3], y[2]-y[3]
			e, f, g, h := y[4]+y[5], y[4]-y[5], y[6]+y[7], y[6]-y[7]
			a, b, c, d = a+c, b+d, a-c, b-d
			e, f, g, h = e+g, f+h, e-g, f-h
			y[0], y[1], y[2], y[3] = a+e, b+f, c+g, d+h
			y[4], y[5], y[6], y[7] = a-e, b-f, c-g, d-h
		}
		s = 8
	}
	for ; 4*s <= len(x); s *= 4 { // twice
		for i := 0; i < len(x); i += 4 * s {
			p, q, r, t := x[i:i+s], x[i+s:][:s], x[i+2*s:][:s], x[i+3*s:][:s]
			for j, a := range p {
				b, c, d := q[j], r[j], t[j]
				a, b, c, d = a+b, a-b, c+d, c-d
				p[j], q[j], r[j], t[j] = a+c, b+d, a-c, b-d
			}
		}
	}
	if s < len(x) {
		for i := 0; i < len(x); i += 2 * s {
			p, q := x[i:i+s], x[i+s:][:s]
			for j, a := range p {
				b := q[j]
				p[j], q[j] = a+b, a-b
			}
		}
	}
	factor := float32(1 / math.Sqrt(float64(len(x))))
	for i := range x {
		x[i] *= factor
	}
}

// TCQSigns are the signs of a rotation: those of columns, then of rows.
type TCQSigns [4]uint64

// NewTCQSigns draws signs by splitmix64 (Steele, Lea and Flood, 2014) from a
// seed.
func NewTCQSigns(seed int64) (s TCQSigns) {
	state := uint64(seed)
	for i := range s {
		state += 0x9E3779B97F4A7C15
		z := state
		z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		s[i] = z ^ z>>31
	}
	return s
}

// In reports whether column i of a block is negated.
func (s *TCQSigns) In(i int) bool { return s[i/64]>>(i%64)&1 != 0 }

// Out reports whether row i of a block is negated.
func (s *TCQSigns) Out(i int) bool { return s[2+i/64]>>(i%64)&1 != 0 }

// aligned reports whether a cut at a row keeps tiles and blocks whole.
func (tcq) aligned(t *formats.Tensor, row int64) bool {
	return row%TCQTile == 0 && row%t.Params["rotate_out"] == 0
}

func (c tcq) slice(t *formats.Tensor, s *Scheme, row, n int64) (pieces, error) {
	if !c.aligned(t, row) || !c.aligned(t, n) {
		return pieces{}, formats.Unsupportedf("", "", "cutting rows [%d:+%d] out of %s: they are not whole tiles and blocks", row, n, s.Name)
	}
	return c.each(t, func(b tensor.Blob, size, rows int64) tensor.Blob { return b.Slice(row/rows*size, n/rows*size) }), nil
}

// each makes new parts of those that go by rows; the scales of columns stay.
func (tcq) each(t *formats.Tensor, op func(b tensor.Blob, size, rows int64) tensor.Blob) pieces {
	n, _ := t.Rows()
	out := pieces{params: t.Params}
	for _, p := range t.Parts {
		rows := int64(TCQTile)
		switch p.Name {
		case "in":
			out.data = append(out.data, p.Data)
			continue
		case "out":
			rows = 1
		}
		size := int64(0)
		if n > 0 {
			size = p.Data.Len() / (n / rows)
		}
		out.data = append(out.data, op(p.Data, size, rows))
	}
	return out
}

// columnUnit implements columnLayout.
func (tcq) columnUnit(t *formats.Tensor) int64 { return max(TCQTile, t.Params["rotate_in"]) }

// columns implements columnLayout: signs go by blocks, and so are those of the whole.
func (tcq) columns(t *formats.Tensor, runs []Run) pieces {
	_, k := t.Rows()
	out := pieces{params: t.Params}
	for _, p := range t.Parts {
		switch p.Name {
		case "codes":
			out.data = append(out.data, picked(p.Data, k, TCQTile, t.Params["bits"]*2*TCQTile, runs))
		case "in":
			out.data = append(out.data, picked(p.Data, k, 1, 2, runs))
		default:
			out.data = append(out.data, p.Data)
		}
	}
	return out
}

func (c tcq) pick(t *formats.Tensor, s *Scheme, index []int64) (pieces, error) {
	for i := 1; i < len(index); i++ {
		if index[i] != index[i-1]+1 {
			return pieces{}, formats.Unsupportedf("", "", "reordering the rows of %s", s.Name)
		}
	}
	if len(index) == 0 {
		return c.slice(t, s, 0, 0)
	}
	return c.slice(t, s, index[0], int64(len(index)))
}

func (c tcq) concat(ts []*formats.Tensor, s *Scheme) (pieces, error) {
	for _, t := range ts[1:] {
		if !sameParams(ts[0], t, "") || t.Params["in_scales"] != 0 {
			return pieces{}, formats.Unsupportedf("", "", "joining %s of parameters %v and %v", s.Name, ts[0].Params, t.Params)
		}
	}
	out := c.each(ts[0], func(b tensor.Blob, _, _ int64) tensor.Blob { return b })
	for _, t := range ts[1:] {
		for j := range out.data {
			out.data[j] = tensor.Concat(out.data[j], t.Parts[j].Data)
		}
	}
	return out, nil
}
