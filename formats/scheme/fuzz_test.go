package scheme_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// FuzzOpen takes any bytes as the parts of any scheme, with any shape and
// parameters: whatever Parts accepts must open or be refused, decode without
// a panic, and give the same rows from a slice.
func FuzzOpen(f *testing.F) {
	for i := range scheme.Table() {
		f.Add(uint8(i), int64(2), int64(256), int64(4), int64(32), int64(2), int64(9), int64(1), []byte{1, 2, 3, 255})
		f.Add(uint8(i), int64(3), int64(32), int64(1), int64(7), int64(1), int64(0), int64(0), []byte{0x7C, 0x80})
	}
	names := map[string][5]string{
		"affine": {"bits", "group", "scale", "zero", "index"},
		"fp8":    {"rows", "cols", "scale"},
		"nf4":    {"nested", "block"},
	}
	f.Fuzz(func(t *testing.T, which uint8, n, k, a, b, c, d, e int64, raw []byte) {
		s := scheme.Table()[int(which)%len(scheme.Table())]
		var params map[string]int64
		for i, name := range names[s.Name] {
			if name == "" {
				break
			}
			if params == nil {
				params = map[string]int64{}
			}
			params[name] = []int64{a, b, c, d, e}[i]
		}
		specs, err := s.Parts([]int64{n, k}, params)
		if err != nil {
			return
		}
		size, err := s.Size([]int64{n, k}, params)
		if err != nil || size > 1<<16 || n > 1<<12 || k > 1<<12 || len(raw) == 0 {
			return
		}
		var parts []tensor.Blob
		for _, p := range specs {
			data := make([]byte, p.Bytes)
			for i := range data {
				data[i] = raw[i%len(raw)]
			}
			parts = append(parts, tensor.BytesBlob(data))
		}
		x, err := scheme.New("w", s, []int64{n, k}, params, parts...)
		if err != nil {
			t.Fatalf("%s refuses its own parts: %v", s.Name, err)
		}
		m, err := scheme.Open(&x)
		if err != nil {
			allowedError(t, err)
			return
		}
		all := make([]float32, n*k)
		m.DecodeRows(all, 0, n)
		row, rows := n/3, n-n/3
		part, err := scheme.Slice(x, row, rows)
		if err != nil {
			allowedError(t, err)
			return
		}
		sameBits(t, decodeAll(t, &part), all[row*k:])
	})
}

func allowedError(t *testing.T, err error) {
	t.Helper()
	var malformed *formats.FormatError
	var unsupported *formats.UnsupportedError
	if !errors.As(err, &malformed) && !errors.As(err, &unsupported) {
		t.Fatalf("error of no family: %v", err)
	}
}

// FuzzCheck takes a tensor that lies about everything.
func FuzzCheck(f *testing.F) {
	f.Add("q4_k", "data", uint8(18), []byte{2, 0, 0, 0, 0, 0, 0, 0, 0, 1}, []byte("bits"), int64(4), []byte{1, 2})
	f.Add("nf4", "codes", uint8(18), []byte{}, []byte("block"), int64(64), []byte{})
	f.Fuzz(func(t *testing.T, name, part string, dtype uint8, dims, key []byte, value int64, raw []byte) {
		var shape []int64
		for len(dims) >= 8 && len(shape) < 5 {
			shape = append(shape, int64(binary.LittleEndian.Uint64(dims)))
			dims = dims[8:]
		}
		x := formats.Tensor{Name: "w", Scheme: name, Shape: shape, Params: map[string]int64{string(key): value}, Parts: []formats.Part{
			{Name: part, DType: tensor.DType(dtype), Shape: shape, Data: tensor.BytesBlob(raw)},
		}}
		if value == 0 {
			x.Params = nil
		}
		m, err := scheme.Open(&x)
		if err != nil {
			allowedError(t, err)
			return
		}
		if m.N > 0 && m.K < 1<<16 {
			m.DecodeRow(make([]float32, m.K), m.N-1)
		}
	})
}

// BenchmarkDecodeRow reports weights per second on one core.
func BenchmarkDecodeRow(b *testing.B) {
	const k = 4096
	for _, s := range scheme.Table() {
		if s.DType == tensor.C64 {
			continue
		}
		params := variants(s, 4, k)[0]
		b.Run(s.Name, func(b *testing.B) {
			x := random(b, rand.New(rand.NewPCG(1, 1)), s, 4, k, params)
			m, err := scheme.Open(&x)
			if err != nil {
				b.Fatal(err)
			}
			dst := make([]float32, k)
			for b.Loop() {
				m.DecodeRow(dst, 2)
			}
			b.ReportMetric(float64(b.N)*k/b.Elapsed().Seconds()/1e6, "Mweights/s")
		})
	}
}
