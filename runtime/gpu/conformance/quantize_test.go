package conformance

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
)

// rounded brings rows of activations to the device as bytes.
func (m *machine) rounded(t testing.TB, x []float32, rows, k int, fine bool) (*memory, hip.Acts) {
	t.Helper()
	in, out := m.put(t, x), m.put(t, make([]byte, actsSize(rows, k, fine)))
	defer in.release()
	acts := hip.Acts{Data: out.address(), T: rows, K: k, Fine: fine}
	m.run(t, (&hip.Quantize{X: in.address(), Acts: acts}).Calls(m.target))
	return out, acts
}

// actsSize is the bytes of rounded activations.
func actsSize(rows, k int, fine bool) int64 {
	if fine {
		return hip.FineActsSize(rows, k)
	}
	return hip.ActsSize(rows, k)
}

// unround returns the numbers that rounded activations stand for, and fails
// where their sums or padding are wrong.
func unround(t testing.TB, raw []byte, rows, k int, fine bool) []float32 {
	t.Helper()
	padded := (k + 31) / 32 * 32
	stride := int(actsSize(1, k, fine))
	x := make([]float32, 0, rows*k)
	for i := range rows {
		row := raw[i*stride : (i+1)*stride]
		at := func(j int) int8 { // pieces of 16 are swizzled
			piece := j / 16
			return int8(row[(piece^piece>>3&1)*16+j%16])
		}
		for j := range padded {
			pair := row[padded+j/32*8:]
			v, d, sums := at(j), pair, pair[4+j%32/16*2:]
			if fine {
				d, sums = pair[j%32/16*4:], row[padded/4*5+j/16*2:]
			}
			if j < k {
				x = append(x, math.Float32frombits(binary.LittleEndian.Uint32(d))*float32(v))
			} else if v != 0 {
				t.Fatalf("padding %d of row %d is %d", j-k, i, v)
			}
			if j%16 == 0 {
				sum := int16(0)
				for b := range 16 {
					sum += int16(at(j + b))
				}
				if got := int16(binary.LittleEndian.Uint16(sums)); got != sum {
					t.Fatalf("sum of 16 from %d of row %d is %d, want %d", j, i, got, sum)
				}
			}
		}
	}
	return x
}

// activations are rows of ordinary numbers with outliers, zeros and what is
// nearly zero among them.
func activations(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
		switch {
		case r.IntN(50) == 0:
			x[i] *= 100
		case i/32%7 == 3:
			x[i] *= 0x1p-110
		case i/32%7 == 5:
			x[i] = 0
		}
	}
	return x
}

// TestQuantize compares with the processor's rounding of 32 and of 16 neighbours,
// whole blocks or not.
func TestQuantize(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(7, 8))
	for _, k := range []int{1, 31, 32, 33, 100, 256, 1000} {
		for _, rows := range []int{1, 3, 8} {
			if !sampled(t) {
				continue
			}
			x := activations(r, rows*k)
			if k > 32 {
				x[k/2] = float32(math.NaN())
				x[len(x)-1] = float32(math.Inf(-1))
			}
			for _, fine := range []bool{false, true} {
				out, _ := m.rounded(t, x, rows, k, fine)
				raw := make([]byte, actsSize(rows, k, fine))
				out.get(t, raw)
				out.release()
				got := unround(t, raw, rows, k, fine)
				for i := range rows {
					want := make([]float32, k)
					roundReference(want, x[i*k:(i+1)*k], fine)
					sameBits(t, fmt.Sprintf("K=%d row %d of %d, fine=%v", k, i, rows, fine), got[i*k:(i+1)*k], want)
				}
			}
		}
	}
}

// roundReference rounds a row as acts.hip says, groups of 16 by the processor's code.
func roundReference(dst, x []float32, fine bool) {
	if fine {
		var a cpu.Activations
		cpu.Best().Quantize(&a, x, len(x), 1, len(x), 16)
		a.Decode(dst, 0)
		return
	}
	for len(x) > 0 {
		n := min(32, len(x))
		var most float32
		bad := false
		for _, v := range x[:n] {
			most = max(most, float32(math.Abs(float64(v))))
			bad = bad || v-v != 0
		}
		for i, v := range x[:n] {
			switch {
			case bad:
				dst[i] = float32(math.NaN())
			case most < 0x1p-100:
				dst[i] = 0
			default:
				dst[i] = most * (1. / 127) * float32(int8(math.RoundToEven(float64(float32(v*(127/most))))))
			}
		}
		dst, x = dst[n:], x[n:]
	}
}
