package conformance

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
)

// decode returns the rows of a matrix on the device.
func (m *machine) decode(t testing.TB, w hip.Weight, rows []int32) []float32 {
	t.Helper()
	token, y := m.put(t, rows), m.put(t, make([]float32, len(rows)*w.K))
	defer token.release()
	defer y.release()
	m.run(t, (&hip.Embed{T: len(rows), Table: w, Token: token.address(), Scale: 1, Y: y.address()}).Calls(m.target))
	got := make([]float32, len(rows)*w.K)
	y.get(t, got)
	return got
}

// TestDecodeVectors holds every scheme's decode to the vectors' reference, bit
// for bit.
func TestDecodeVectors(t *testing.T) {
	m := open(t)
	for _, v := range vectors(t) {
		if !sampled(t) {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			s := v.read(t)
			rows := make([]int32, s.n())
			for i := range rows {
				rows[i] = int32(len(rows) - 1 - i)
			}
			got, want := m.decode(t, m.place(t, s, s.n()), rows), make([]float32, s.k())
			for i, row := range rows {
				s.matrix.DecodeRow(want, int64(row))
				sameBits(t, fmt.Sprintf("row %d", row), got[i*s.k():(i+1)*s.k()], want)
			}
		})
	}
}

// TestEmbed decodes random rows of every scheme, whole units or not.
func TestEmbed(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(1, 2))
	for _, v := range varieties(t) {
		if !taken(t) {
			continue
		}
		t.Run(v.String(), func(t *testing.T) {
			for _, k := range []int{1, 20, 96, 301, 512} {
				if !v.fits(k) || divided() && k < 301 {
					continue
				}
				s := v.make(t, r, 7, k)
				rows := []int32{3, 0, 6, 6, 1}
				got, want := m.decode(t, m.place(t, s, s.n()), rows), s.floats()
				for i, row := range rows {
					sameBits(t, fmt.Sprintf("K=%d row %d", k, row), got[i*k:(i+1)*k], want[int(row)*k:(int(row)+1)*k])
				}
			}
		})
	}
}

// TestEmbedPositions adds learned positions to scaled rows.
func TestEmbedPositions(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(3, 4))
	for _, v := range varieties(t) {
		if v.scheme.Name != "q8_0" && v.scheme.Name != "f16" {
			continue
		}
		const k = 64
		s := v.make(t, r, 9, k)
		w, p := m.place(t, s, 9), make([]float32, 5*k)
		for i := range p {
			p[i] = float32(r.NormFloat64())
		}
		rows, at := []int32{8, 2}, []int32{4, 1}
		token, position := m.put(t, rows), m.put(t, at)
		table, y := m.put(t, p), m.put(t, make([]float32, 2*k))
		const scale = 11.313708
		m.run(t, (&hip.Embed{T: 2, Table: w, Token: token.address(), Scale: scale,
			Positions: table.address(), Position: position.address(), Y: y.address()}).Calls(m.target))
		got, want := make([]float32, 2*k), s.floats()
		y.get(t, got)
		for i := range got {
			e := float32(want[int(rows[i/k])*k+i%k]*scale) + p[int(at[i/k])*k+i%k]
			if got[i] != e {
				t.Fatalf("%v: number %d is %g, want %g", v, i, got[i], e)
			}
		}
	}
}
