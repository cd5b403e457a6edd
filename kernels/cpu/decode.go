package cpu

import (
	"encoding/binary"
	"math"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// A Decoder decodes rows of an opened matrix to float32, to the bits of the scheme's
// reference but for the bits of NaNs, with this level's assembly for blocks and trellis
// codes. It serves one goroutine at a time and holds its work space.
type Decoder struct {
	n, k     int
	together int
	decode   func(dst []float32, row, n int) // whole groups of together rows
	group    []float32                       // decoded for who wants a part of it
	first    int                             // its first row, -1: none
}

// decodeKernels are the kernels of one level; nil where it has none.
type decodeKernels struct {
	// floats16 and floats32 end the decoding of runs by their groups, without minimums
	// and with them; flip makes their codes signed.
	floats16, floats32 [2]floatsKernel

	// See the generated stubs.
	codewords   func(dst []float32, tiles *byte, count, bits int, cut *[40]uint32, factor uint32, scale float32)
	butterflies [4]func(x []float32, step int) // of 16, 8, 4 and 2
	turn        func(dst []float32, ld int, x, post []float32, factor float32)
	// These transform too, by so much as their names say.
	codewords8 func(dst []float32, tiles *byte, count, bits int, cut *[40]uint32, factor uint32, scale float32)
	turn16     func(dst []float32, ld int, x, post []float32, factor float32)
	scaleRows  func(dst []float32, ld int, x []float32, panels int, post []float32, factor float32)
	joinRows   func(dst []float32, ld int, x []float32, panels int, post []float32, factor float32)
}

// A floatsKernel writes, for runs at distance unpackedBytes, S*code or S*code - M, each
// operation rounded.
type floatsKernel func(dst []float32, src []byte, runs int, flip uint32)

// Decoder returns the decoder of an opened matrix.
func (s *Set) Decoder(m *scheme.Matrix) *Decoder {
	d := &Decoder{n: int(m.N), k: int(m.K), together: 1, first: -1}
	integer := s.Integer(m.Scheme.Name)
	switch {
	case integer != nil && integer.unpackAll != nil && s.decoding.floats32[0] != nil && integer.Fits(d.k):
		d.decode = s.blockDecoder(integer, m)
	case m.Scheme.Name == "tcq" && d.n > 0 && d.k > 0:
		p := scheme.ParseTCQ(m.Params)
		d.together = max(p.RotateOut, scheme.TCQTile)
		if d.decode = s.tcqDecoder(p, m); d.decode == nil || d.n%d.together != 0 {
			d.decode = func(dst []float32, row, n int) { m.DecodeRows(dst, int64(row), int64(n)) }
			d.together = 1
		}
	default:
		rows := s.Rows(m)
		d.decode = func(dst []float32, row, n int) {
			for i := range n {
				rows(dst[i*d.k:(i+1)*d.k], row+i)
			}
		}
	}
	return d
}

// Together returns how many rows are decoded at once: Decode is fastest for whole groups.
func (d *Decoder) Together() int { return d.together }

// Decode writes rows [row, row+n) to the first n*K elements of dst.
func (d *Decoder) Decode(dst []float32, row, n int) {
	want(0 <= row && 0 <= n && row+n <= d.n && len(dst) >= n*d.k, "Decoder.Decode", row, n, d.n, d.k, len(dst))
	for n > 0 && d.k > 0 {
		here := n - n%d.together
		if at := row % d.together; at == 0 && here > 0 {
			d.decode(dst[:here*d.k], row, here)
		} else {
			here = min(n, d.together-at)
			if d.first != row-at {
				d.group = grown(d.group, d.together*d.k)
				d.decode(d.group, row-at, d.together)
				d.first = row - at
			}
			copy(dst[:here*d.k], d.group[at*d.k:])
		}
		dst, row, n = dst[here*d.k:], row+here, n-here
	}
}

// blockDecoder unpacks rows as products do, which keeps every number that the reference
// multiplies, and ends by the same operations.
func (s *Set) blockDecoder(integer *Integer, m *scheme.Matrix) func(dst []float32, row, n int) {
	rows := integerRows{integer, m.Data(0), int(m.K)}
	runs := (rows.k + recordValues - 1) / recordValues
	finish, flip := s.decoding.floats32, uint32(0)
	if integer.group == fineGroup {
		finish = s.decoding.floats16
	}
	kernel := finish[0]
	switch {
	case integer.mins:
		kernel = finish[1]
	case !s.signed:
		flip = 0x80808080
	}
	var scratch IntegerScratch
	var last [recordValues]float32
	unpacked := make([]byte, runs*unpackedBytes)
	perFactor := int(m.Params["rows"])
	return func(dst []float32, row, n int) {
		for i := range n {
			y := dst[i*rows.k : (i+1)*rows.k]
			rows.unpackRow(unpacked, row+i, &scratch)
			whole := len(y) / recordValues
			kernel(y, unpacked, whole, flip)
			if rest := y[whole*recordValues:]; len(rest) > 0 {
				kernel(last[:], unpacked[whole*unpackedBytes:], 1, flip)
				copy(rest, last[:])
			}
			if perFactor > 0 {
				s.scale(y, math.Float32frombits(binary.LittleEndian.Uint32(m.Data(1)[(row+i)/perFactor*4:])))
			}
		}
	}
}

// A tcqDecoder decodes groups of rows that are rotated together, 128 columns at a time:
// codewords of a strip of 16 rows lie column by column, are transformed along the row,
// transposed, and transformed along the column.
type tcqDecoder struct {
	*decodeKernels
	scheme.TCQ
	k, group  int
	codes     []byte
	scales    []byte
	cut       [40]uint32
	factor    uint32
	columns   []float32 // what columns are multiplied with, signs included
	rows, out []float32 // of a group's rows: signs, and times scales
	outScales []byte
	strip     [tcqPiece * scheme.TCQTile]float32                        // [columns][16]
	panels    []float32                                                 // [columns/16][group][16]
	edge      [2*scheme.TCQTile*scheme.TCQMaxBits + scheme.TCQTile]byte // the matrix's last tile, and what may be read behind it
}

const tcqPiece = 128 // columns; whole blocks of rotations

// tcqDecoder returns nil where this level or the codebook has no kernels.
func (s *Set) tcqDecoder(p scheme.TCQ, m *scheme.Matrix) func(dst []float32, row, n int) {
	factor, _, paired := p.Codebook.Hash()
	if s.decoding.codewords == nil || paired {
		return nil
	}
	d := &tcqDecoder{decodeKernels: &s.decoding, TCQ: p, k: int(m.K), group: max(p.RotateOut, scheme.TCQTile),
		codes: m.Data(0), scales: m.Data(1), cut: tcqCutFor(p.Bits), factor: factor}
	signs := scheme.NewTCQSigns(p.Seed)
	d.rows, d.out = make([]float32, d.group), make([]float32, d.group)
	for i := range d.rows {
		d.rows[i] = signOf(p.RotateOut > 1 && signs.Out(i%p.RotateOut))
	}
	part := 2
	if p.OutScales {
		d.outScales = m.Data(part)
		part++
	}
	d.columns = make([]float32, d.k)
	for i := range d.columns {
		d.columns[i] = signOf(p.RotateIn > 1 && signs.In(i%p.RotateIn))
		if p.InScales {
			d.columns[i] *= halfOf(m.Data(part), i)
		}
	}
	d.panels = make([]float32, tcqPiece*d.group)
	return func(dst []float32, row, n int) {
		for i := 0; i < n; i += d.group {
			d.decode(dst[i*d.k:(i+d.group)*d.k], row+i)
		}
	}
}

func signOf(negative bool) float32 {
	if negative {
		return -1
	}
	return 1
}

// halfOf returns the i-th f16.
func halfOf(p []byte, i int) float32 { return tensor.F16ToF32(binary.LittleEndian.Uint16(p[2*i:])) }

// tcqCutFor says how the windows of a column's 16 rows are cut out of the bytes from its
// first on: for each row the four bytes in which its window lies, and by how many bits it is
// shifted; then, of the last column, which of its bytes it keeps, and where the ring's first
// two go.
func tcqCutFor(bits int) (cut [40]uint32) {
	var raw [160]byte
	for row := range scheme.TCQTile {
		for b := range 4 {
			raw[4*row+b] = byte(min(row*bits/8+b, 15))
		}
		raw[64+4*row] = byte(row * bits % 8)
	}
	for i := range 16 {
		raw[144+i] = 0x80
		if i < 2*bits {
			raw[128+i] = 0xff
		}
	}
	raw[144+2*bits], raw[145+2*bits] = 0, 1
	for i := range cut {
		cut[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return cut
}

// decode writes one group of rows.
func (d *tcqDecoder) decode(dst []float32, row int) {
	const tile = scheme.TCQTile
	copy(d.out, d.rows)
	if d.outScales != nil {
		for i := range d.out {
			d.out[i] *= halfOf(d.outScales, row+i)
		}
	}
	codewords, turn, across, down := d.codewords, d.turn, 1, 1 // and how many are transformed by these
	if d.codewords8 != nil && d.RotateIn >= 8 {
		codewords, across = d.codewords8, 8
	}
	if d.turn16 != nil && d.RotateOut >= tile {
		turn, down = d.turn16, tile
	}
	block, finish := d.RotateOut, d.scaleRows
	if block == 128 {
		block, finish = tile, d.joinRows
	}
	for at := 0; at < d.k; at += tcqPiece {
		width := min(tcqPiece, d.k-at)
		strip := d.strip[:width*tile]
		for r := 0; r < d.group; r += tile {
			d.read(codewords, strip, (row+r)/tile, at/tile)
			d.transform(strip, across, d.RotateIn)
			turn(d.panels[r*tile:], d.group*tile, strip, d.columns[at:at+width], rotationFactor(d.RotateIn))
		}
		for i := range width / tile {
			d.transform(d.panels[i*d.group*tile:(i+1)*d.group*tile], down, block)
		}
		finish(dst[at:], d.k, d.panels, width/tile, d.out, rotationFactor(d.RotateOut))
	}
}

// read writes the codewords of tiles from one on, in a strip of rows.
func (d *tcqDecoder) read(codewords func(dst []float32, tiles *byte, count, bits int, cut *[40]uint32, factor uint32, scale float32), strip []float32, row, first int) {
	const weights = scheme.TCQWeights
	size := 2 * scheme.TCQTile * d.Bits
	count := len(strip) / weights
	tiles := d.codes[(row*(d.k/scheme.TCQTile)+first)*size:]
	scale := halfOf(d.scales, row) / 128
	if len(tiles) < count*size+scheme.TCQTile {
		count--
		copy(d.edge[:], tiles[count*size:][:size])
		codewords(strip[count*weights:], &d.edge[0], 1, d.Bits, &d.cut, d.factor, scale)
	}
	if count > 0 {
		codewords(strip, &tiles[0], count, d.Bits, &d.cut, d.factor, scale)
	}
}

// transform applies Hadamard transforms to blocks of vectors of 16, all but the factor, where
// blocks of done vectors have had theirs.
func (d *tcqDecoder) transform(x []float32, done, block int) {
	for i, radix := range []int{16, 8, 4, 2} {
		for ; d.butterflies[i] != nil && block/done >= radix; done *= radix {
			d.butterflies[i](x, done*scheme.TCQTile)
		}
	}
}

// rotationFactor makes a transform of a block orthonormal.
func rotationFactor(block int) float32 { return float32(1 / math.Sqrt(float64(block))) }
