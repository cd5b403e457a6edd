package cpu_test

import (
	"syscall"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
)

// TestNothingIsReadBehindTheEnd puts 16-bit weights, as they lie in a mapped
// file, right before a page that must not be touched.
func TestNothingIsReadBehindTheEnd(t *testing.T) {
	page := syscall.Getpagesize()
	m, err := syscall.Mmap(-1, 0, 3*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Skip(err)
	}
	defer syscall.Munmap(m)
	for _, edge := range [][]byte{m[:page], m[2*page:]} {
		if err := syscall.Mprotect(edge, syscall.PROT_NONE); err != nil {
			t.Skip(err)
		}
	}
	w := m[page : 2*page]
	eachLevel(t, func(t *testing.T, s *cpu.Set) {
		for k := 1; k < 140; k++ {
			for n := 1; n <= 5; n++ {
				x, y, out := make([]float32, k), make([]float32, n), make([]float32, n*k)
				for _, part := range [][]byte{w[:2*n*k], w[len(w)-2*n*k:]} {
					s.MatVecBF16(y, part, x)
					s.MatVecF16(y, part, x)
					s.DecodeBF16(out, part)
					s.DecodeF16(out, part)
					s.EncodeBF16(part, out)
					s.EncodeF16(part, out)
				}
			}
		}
	})
}
