// Package logprob stores a reference model's log-probabilities over a text,
// so that many compressed models are measured against it without running it
// again.
//
// In: rows of natural log-probabilities [V], one per scored position, grouped
// in windows of the text. Out: the same rows, each number within
// 8e-6*sqrt(d*r) of what it was, where d is its distance from the row's
// largest and r the distance of the row's smallest. Likely tokens are thus
// stored almost exactly; after [Row.Decode] rows sum to 1 again, and the mean
// KL divergence moves by far less than 1e-5.
//
// The file (little-endian):
//
//	header, 128 bytes: magic "NSTFREF1", version u32 = 1, protocol u32,
//	    vocabulary V u32, window size u32, scored positions per window R u32,
//	    reserved u32 = 0, windows u64, BLAKE3 of the token ids [32],
//	    zeros [24], BLAKE3 of the 96 bytes before [32]
//	each window: R rows, then BLAKE3 of those rows [32]
//	each row: largest log-probability f32, step f32, log-probability of the
//	    token that really follows f32, index of the largest u32, V codes u16;
//	    the log-probability of code c is largest - (c*step)^2
//
// A Reader checks every size against the file's before it reads, the header
// when it opens and each window when it is read. It is used by one goroutine.
// Version 1 stays readable in every release.
package logprob

import (
	"encoding/binary"
	"math"

	"github.com/nstf/nstf/formats"
)

// Magic begins every file.
const Magic = "NSTFREF1"

const (
	version    = 1
	headerSize = 128
	hashSize   = 32
	rowHead    = 16
	maxCode    = math.MaxUint16
)

// A Header says what a file's rows belong to.
type Header struct {
	Protocol uint32   // how windows are cut; the numbers are runtime/eval's
	Vocab    int      // V
	Window   int      // tokens per window
	Rows     int      // scored positions per window, R
	Windows  int64    // number of windows
	Tokens   [32]byte // BLAKE3 of the windows' token ids, int32 each
}

var le = binary.LittleEndian

func (h *Header) rowSize() int64    { return rowHead + 2*int64(h.Vocab) }
func (h *Header) windowSize() int64 { return int64(h.Rows)*h.rowSize() + hashSize }

// Size returns the bytes of the whole file.
func (h *Header) Size() int64 { return headerSize + h.Windows*h.windowSize() }

// Limits of what a header may say: far above any model, and their products
// stay below 2^63.
const (
	maxVocab   = 1 << 28
	maxWindow  = 1 << 28
	maxWindows = 1 << 40
)

// check refuses headers that no file can have. room is what the windows may
// take: the file's own size, or the largest int64 when writing.
func (h *Header) check(file string, room int64) error {
	switch {
	case h.Vocab < 1 || h.Vocab > maxVocab:
		return formats.Errorf(file, "", "vocabulary of %d tokens", h.Vocab)
	case h.Window < 1 || h.Window > maxWindow || h.Rows < 1 || h.Rows > h.Window:
		return formats.Errorf(file, "", "%d scored positions in windows of %d", h.Rows, h.Window)
	case h.Windows < 0 || h.Windows > maxWindows:
		return formats.Errorf(file, "", "%d windows", h.Windows)
	case h.windowSize() > room || h.Windows > 0 && h.windowSize() > room/h.Windows:
		return formats.Errorf(file, "", "%d windows of %d bytes do not fit %d bytes: truncated", h.Windows, h.windowSize(), room)
	}
	return nil
}

// A Row is one position's log-probabilities as stored.
type Row struct {
	Max    float32 // the largest log-probability
	Step   float32
	Target float32 // log-probability of the token that follows in the text
	Argmax int32   // the most likely token
	codes  []byte
}

// Decode writes the V log-probabilities into dst, scaled so that they are
// those of a distribution that sums to 1.
func (r *Row) Decode(dst []float64) {
	sum := 0.0
	top, step := float64(r.Max), float64(r.Step)
	for i := range dst {
		d := float64(le.Uint16(r.codes[2*i:])) * step
		dst[i] = top - d*d
		sum += math.Exp(dst[i])
	}
	norm := math.Log(sum)
	for i := range dst {
		dst[i] -= norm
	}
}

// encode stores a row. The log-probabilities are at most 0 and finite, as a
// softmax of finite logits gives them.
func encode(dst []byte, logp []float64, target int) {
	top, low, argmax := math.Inf(-1), math.Inf(1), 0
	for i, v := range logp {
		if v > top {
			top, argmax = v, i
		}
		low = min(low, v)
	}
	step := float32(math.Sqrt(top-low) / maxCode)
	le.PutUint32(dst, math.Float32bits(float32(top)))
	le.PutUint32(dst[4:], math.Float32bits(step))
	le.PutUint32(dst[8:], math.Float32bits(float32(logp[target])))
	le.PutUint32(dst[12:], uint32(argmax))
	codes := dst[rowHead:]
	inverse := 0.0
	if step > 0 {
		inverse = 1 / float64(step)
	}
	for i, v := range logp {
		c := math.RoundToEven(math.Sqrt(top-v) * inverse)
		le.PutUint16(codes[2*i:], uint16(min(c, maxCode)))
	}
}
