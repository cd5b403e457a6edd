package fit

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"sync"

	"github.com/x448/float16"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/cpu"
)

// A TCQ chooses the codes of the scheme tcq: it rotates a matrix, scales it for
// each 16 rows, and searches trellis codes tile by tile, columns from last to
// first, each answering the errors behind it.
type TCQ struct {
	scheme.TCQ
	// Feedback is that of the rotated input (see [RotateMoments]) in blocks of
	// 16; nil: all errors count alike.
	Feedback *Feedback
	// Seam is the effort of the search: see [cpu.Set.NewTrellis]. 0: 128.
	Seam int
	// Set holds the kernels; nil: the best.
	Set *cpu.Set
	// Threads that search; 0: all. The codes do not depend on it.
	Threads int
	// Searcher finds the codes of matrices of more strips of 16 rows than there are
	// threads; nil: nobody else does. The codes do not depend on it.
	Searcher Searcher
	Turn     *Turn // see [Options]
}

// tcqDeviations are the codebooks' standard deviations, and tcqSpreads the
// deviation of a Gaussian, as a part of the codebook's, that leaves the least
// error at each number of bits.
var (
	tcqDeviations = map[scheme.TCQCodebook]float32{scheme.TCQBytes4: 147.7, scheme.TCQBytes2: 104.5, scheme.TCQFine4: 147.8}
	tcqSpreads    = [...]float32{2: 1.0, 3: 0.95, 4: 0.90, 5: 0.86, 6: 0.82}
)

// TCQRotation returns the largest block that a dimension can be rotated by.
func TCQRotation(n int) int {
	h := 1
	for h < scheme.TCQMaxRotate && n%(2*h) == 0 {
		h *= 2
	}
	return h
}

// Fit returns the parts of w[n][k] as the scheme's page orders them. Its bytes
// do not depend on the number of threads or the level of the kernels. It fails
// with a [*ValueError], and with the context's error when the strip of 16 rows
// at hand is done.
func (q TCQ) Fit(ctx context.Context, w []float32, n, k int) ([][]byte, error) {
	if len(w) != n*k || n%scheme.TCQTile != 0 || k%scheme.TCQTile != 0 {
		panic(fmt.Sprintf("fit: %d weights for %d rows of %d in tiles", len(w), n, k))
	}
	if err := checkRows(w, k); err != nil {
		return nil, err
	}
	if q.Set == nil {
		q.Set = cpu.Best()
	}
	if q.Seam == 0 {
		q.Seam = 128
	}
	parts := [][]byte{make([]byte, n/scheme.TCQTile*k/scheme.TCQTile*q.tileBytes()), make([]byte, n/scheme.TCQTile*2)}
	rotated := append([]float32(nil), w...)
	if q.OutScales {
		parts = append(parts, scaleRows(rotated, n, k))
	}
	if q.Threads <= 0 {
		q.Threads = runtime.GOMAXPROCS(0)
	}
	rotationBlocks(n, q.Threads, func(from, to int) { q.rotate(rotated[from*k:to*k], to-from, k) })
	done := false
	if q.Searcher != nil && n/scheme.TCQTile > q.Threads {
		var err error
		if done, err = q.searched(ctx, parts[0], parts[1], rotated, n, k); err != nil {
			return nil, err
		}
	}
	if !done {
		q.strips(ctx, n/scheme.TCQTile, parts, rotated, k)
	}
	return parts, ctx.Err()
}

// tcqLargest is the root mean square of a row that scales in f16 hold: a codeword's
// deviation is 147.7 and less, a scale of 1 means 1/128.
const tcqLargest = 40000

// checkRows refuses weights that are not finite, and rows that scales do not hold.
func checkRows(w []float32, k int) error {
	for at := 0; at < len(w); at += k {
		row := w[at : at+k]
		largest := 0
		for i, v := range row {
			if !(math.Abs(float64(v)) <= math.MaxFloat32) {
				return &ValueError{Row: at / k, Column: i, Value: v, Reason: "not finite"}
			}
			if math.Abs(float64(v)) > math.Abs(float64(row[largest])) {
				largest = i
			}
		}
		if rms(row) > tcqLargest {
			return &ValueError{Row: at / k, Column: largest, Value: row[largest], TooLarge: true, Reason: fmt.Sprintf("tcq holds rows of a root mean square up to %d", tcqLargest)}
		}
	}
	return nil
}

// strips has the processor find the codes of n strips.
func (q TCQ) strips(ctx context.Context, n int, parts [][]byte, rotated []float32, k int) {
	strips := make(chan int, n)
	for i := range n {
		strips <- i
	}
	close(strips)
	var wait sync.WaitGroup
	for range min(q.Threads, n) {
		wait.Go(func() {
			s := q.newStrip(k)
			q.Turn.take()
			defer q.Turn.give()
			for i := range strips {
				if ctx.Err() != nil {
					return
				}
				q.Turn.pass()
				codes := parts[0][i*k/scheme.TCQTile*q.tileBytes():][:k/scheme.TCQTile*q.tileBytes()]
				scale := s.fit(codes, rotated[i*scheme.TCQTile*k:][:scheme.TCQTile*k])
				binary.LittleEndian.PutUint16(parts[1][2*i:], scale)
			}
		})
	}
	wait.Wait()
}

func (q TCQ) tileBytes() int { return 2 * scheme.TCQTile * q.Bits }

// scaleRows divides each row by its root mean square, rounded to f16, and
// returns these. A row of zeros keeps a scale of one.
func scaleRows(w []float32, n, k int) []byte {
	out := make([]byte, 2*n)
	for r := range n {
		row := w[r*k : (r+1)*k]
		h := float16.Fromfloat32(float32(rms(row)))
		if h.Float32() == 0 || h.IsInf(0) {
			h = float16.Fromfloat32(1)
		}
		binary.LittleEndian.PutUint16(out[2*r:], uint16(h))
		for i := range row {
			row[i] /= h.Float32()
		}
	}
	return out
}

func rms(x []float32) float64 {
	var sum float64
	for _, v := range x {
		sum += float64(float64(v) * float64(v))
	}
	return math.Sqrt(sum / float64(len(x)))
}

// rotationBlocks calls f for rows that are rotated together, several at once: all that
// begin at a multiple of the largest rotation.
func rotationBlocks(n, threads int, f func(from, to int)) {
	const rows = scheme.TCQMaxRotate
	pool := cpu.NewPool(threads)
	defer pool.Close()
	pool.Run((n+rows-1)/rows, func(i int) { f(i*rows, min((i+1)*rows, n)) })
}

// rotate turns W into R_out W R_in' in place.
func (q TCQ) rotate(w []float32, n, k int) {
	signs := scheme.NewTCQSigns(q.Seed)
	for r := range n {
		rotateRow(w[r*k:(r+1)*k], q.RotateIn, &signs)
	}
	g := q.RotateOut
	if g == 1 {
		return
	}
	var column [scheme.TCQMaxRotate]float32
	for first := 0; first < n; first += g {
		for c := range k {
			for i := range g {
				column[i] = w[(first+i)*k+c]
				if signs.Out(i) {
					column[i] = -column[i]
				}
			}
			scheme.Hadamard(column[:g])
			for i := range g {
				w[(first+i)*k+c] = column[i]
			}
		}
	}
}

// rotateRow multiplies a row of inputs or of weights by the input rotation.
func rotateRow(x []float32, h int, signs *scheme.TCQSigns) {
	if h == 1 {
		return
	}
	for at := 0; at < len(x); at += h {
		b := x[at : at+h]
		for i := range b {
			if signs.In(i) {
				b[i] = -b[i]
			}
		}
		scheme.Hadamard(b)
	}
}

// RotateMoments turns second moments h[K][K] of an input into those of the
// rotated input that weights of the scheme tcq are multiplied with.
func RotateMoments(h []float64, k, rotateIn int, seed int64) {
	for first := 0; first < k; first += rotateIn {
		rotateTiles(h[first*k:(first+rotateIn)*k], rotateIn, k, rotateIn, seed)
	}
}

// rotateTiles rotates whole blocks of rows h[rows][k], tile by tile.
func rotateTiles(h []float64, rows, k, block int, seed int64) {
	if block == 1 {
		return
	}
	signs := scheme.NewTCQSigns(seed)
	column := make([]float64, block)
	for first := 0; first < rows; first += block {
		for at := 0; at < k; at += block {
			tile := h[first*k+at:]
			for r := range block {
				rotateMoments(tile[r*k:r*k+block], block, &signs)
			}
			for c := range block {
				for r := range block {
					column[r] = tile[r*k+c]
				}
				rotateMoments(column, block, &signs)
				for r := range block {
					tile[r*k+c] = column[r]
				}
			}
		}
	}
}

// rotateMoments is rotateRow in float64.
func rotateMoments(x []float64, h int, signs *scheme.TCQSigns) {
	for at := 0; h > 1 && at < len(x); at += h {
		b := x[at : at+h]
		for i := range b {
			if signs.In(i) {
				b[i] = -b[i]
			}
		}
		for s := 1; s < h; s *= 2 {
			for i := 0; i < h; i += 2 * s {
				for j := i; j < i+s; j++ {
					b[j], b[j+s] = b[j]+b[j+s], b[j]-b[j+s]
				}
			}
		}
		for i := range b {
			b[i] /= math.Sqrt(float64(h))
		}
	}
}

// A strip is the work space of 16 rows.
type strip struct {
	TCQ
	k       int
	search  *cpu.Trellis
	table   *[1 << scheme.TCQState]int16
	answers *Answers
	errors  []float32 // [16][K], of the columns chosen
	z       [scheme.TCQTile * scheme.TCQTile]float32
	ring    [scheme.TCQWeights]float32
}

func (q TCQ) newStrip(k int) *strip {
	s := &strip{TCQ: q, k: k, table: q.Codebook.Table(), errors: make([]float32, scheme.TCQTile*k)}
	if q.Feedback != nil {
		s.answers = q.Feedback.Answers()
	}
	s.search = q.Set.NewTrellis(q.Bits, s.table, tcqDeviations[q.Codebook], q.Seam)
	return s
}

// scale returns the scale of 16 rotated rows, and the value of a codeword of 1 under
// it; zeros where there is nothing to code.
func (q TCQ) scale(w []float32) (half float16.Float16, unit float32) {
	// A scale of 1 means 1/128 for a codeword of 1.
	half = float16.Fromfloat32(float32(rms(w)) * 128 / (tcqDeviations[q.Codebook] * tcqSpreads[q.Bits]))
	if unit = half.Float32() / 128; unit == 0 || half.IsInf(0) {
		return 0, 0
	}
	return half, unit
}

// fit chooses the codes of 16 rotated rows and returns their scale as f16.
func (s *strip) fit(codes []byte, w []float32) uint16 {
	const tile = scheme.TCQTile
	half, unit := s.scale(w)
	if unit == 0 {
		clear(codes)
		return 0
	}
	for j := s.k/tile - 1; j >= 0; j-- {
		for r := range tile {
			copy(s.z[r*tile:(r+1)*tile], w[r*s.k+j*tile:])
		}
		if s.Feedback != nil {
			s.answers.Answer(s.z[:], s.errors, j)
		}
		for t := range s.ring {
			s.ring[t] = s.z[t%tile*tile+t/tile] / unit
		}
		code := codes[j*s.tileBytes():][:s.tileBytes()]
		s.search.Encode(code, &s.ring)
		for t := range s.ring {
			at := t%tile*s.k + j*tile + t/tile
			s.errors[at] = w[at] - float32(unit*float32(s.table[scheme.TCQStateAt(code, s.Bits, t)]))
		}
	}
	return uint16(half)
}
