package random

import (
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"runtime"
	"sync"

	"github.com/nstf/nstf/formats/tensor"
)

// weights is a tensor that is computed where it is read: an io.ReaderAt over
// its little-endian bytes, whose element i is
//
//	mean + tails[16 bits of mix(seed, i)]·columns[i mod K]
//
// It is immutable and may be read from any number of goroutines.
type weights struct {
	seed     uint64
	dtype    tensor.DType
	tails    *[1 << 16]float32
	columns  []float32 // K scales
	mean     float32
	elements int64
}

// width returns the bytes of an element.
func (w *weights) width() int64 { return int64(w.dtype.Bits() / 8) }

// ReadAt implements io.ReaderAt. Large reads are computed on all cores.
func (w *weights) ReadAt(p []byte, off int64) (int, error) {
	size := w.elements * w.width()
	if off < 0 {
		return 0, fmt.Errorf("random: read at %d", off)
	}
	if off >= size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), size-off))
	workers := min(runtime.GOMAXPROCS(0), 1+n/(64<<10))
	part := (n/workers + 15) &^ 15
	var g sync.WaitGroup
	for at := 0; at < n; at += part {
		g.Go(func() { w.read(p[at:min(at+part, n)], off+int64(at)) })
	}
	g.Wait()
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// blockElements are computed at a time: their float32 stay in the cache.
const blockElements = 4096

// read computes the bytes from off on, which need not begin or end with an
// element.
func (w *weights) read(p []byte, off int64) {
	var values [blockElements]float32
	var packed [4 * blockElements]byte
	size := w.width()
	for len(p) > 0 {
		first, skip := off/size, off%size
		n := min((int64(len(p))+skip+size-1)/size, blockElements)
		w.values(values[:n], first)
		if err := tensor.FromFloat32(packed[:n*size], values[:n], w.dtype); err != nil {
			panic(err) // the lengths agree and the dtypes were checked
		}
		done := copy(p, packed[skip:n*size])
		p, off = p[done:], off+int64(done)
	}
}

// values computes elements from first on.
func (w *weights) values(dst []float32, first int64) {
	column := int(first % int64(len(w.columns)))
	var r uint64
	for i := range dst {
		at := uint64(first) + uint64(i)
		if i == 0 || at%4 == 0 {
			r = mix(w.seed+at/4) >> (16 * (at % 4))
		}
		dst[i] = w.mean + w.tails[r&0xffff]*w.columns[column]
		r >>= 16
		if column++; column == len(w.columns) {
			column = 0
		}
	}
}

// mix spreads a counter over 64 bits: the finaliser of SplitMix64 (Steele,
// Lea, Flood: Fast splittable pseudorandom number generators, 2014).
func mix(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// streamSeed gives every tensor numbers of its own.
func streamSeed(seed uint64, name string) uint64 {
	h := fnv.New64a()
	io.WriteString(h, name) // a hash does not fail
	return mix(h.Sum64() ^ mix(seed))
}

// tails returns the quantiles of a distribution of variance 1 with heavier
// tails than the normal one: Tukey's h distribution, z·exp(h·z²/2), with
// h = 0.05. The largest of 65,536 lies at about 6.
func tails() *[1 << 16]float32 {
	const h = 0.05
	t := new([1 << 16]float32)
	var squares float64
	value := func(i int) float64 {
		z := math.Sqrt2 * math.Erfinv((2*float64(i)+1)/float64(len(t))-1)
		return z * math.Exp(h*z*z/2)
	}
	for i := range t {
		squares += value(i) * value(i)
	}
	for i := range t {
		t[i] = float32(value(i) / math.Sqrt(squares/float64(len(t))))
	}
	return t
}

// columns returns the scales of K input features: log-normal, one in 256
// eight times as large, with a root mean square of rms.
func columns(seed uint64, k int64, rms float64) []float32 {
	scales := make([]float64, k)
	var squares float64
	for i := range scales {
		r := mix(seed ^ mix(uint64(i)))
		uniform := (float64(r>>11) + 0.5) / (1 << 53)
		scales[i] = math.Exp(0.3 * math.Sqrt2 * math.Erfinv(2*uniform-1))
		if r%256 == 0 { // the low bits: uniform holds the high ones
			scales[i] *= 8
		}
		squares += scales[i] * scales[i]
	}
	out := make([]float32, k)
	for i, s := range scales {
		out[i] = float32(s * rms / math.Sqrt(squares/float64(k)))
	}
	return out
}

// unit keeps the size of what a matrix with K columns is applied to.
func unit(k int64) float64 { return 1 / math.Sqrt(float64(k)) }

// residual is unit, for a matrix of which 2·layers add up.
func residual(k, layers int64) float64 { return unit(k) / math.Sqrt(2*float64(layers)) }
