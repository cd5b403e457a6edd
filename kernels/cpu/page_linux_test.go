package cpu_test

import (
	"syscall"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
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
				for _, part := range [][]byte{w[:16*n*2], w[len(w)-16*n*2:]} {
					c, a := make([]float32, 16*k), make([]float32, n*k)
					s.PanelF16(c, 16, a, n, part, 16, k, 16, n, false)
					s.PanelQ8(c, 32, a, n, part[:32*n], 32, k/2, 32, n, false)
				}
			}
		}
	})
}

// TestIntegersStayWithinTheWeights puts coded weights, as they lie in a mapped
// file, right before and right behind pages that must not be touched.
func TestIntegersStayWithinTheWeights(t *testing.T) {
	page := syscall.Getpagesize()
	const pages = 16
	m, err := syscall.Mmap(-1, 0, (pages+2)*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Skip(err)
	}
	defer syscall.Munmap(m)
	for _, edge := range [][]byte{m[:page], m[(pages+1)*page:]} {
		if err := syscall.Mprotect(edge, syscall.PROT_NONE); err != nil {
			t.Skip(err)
		}
	}
	w := m[page : (pages+1)*page]
	eachLevel(t, func(t *testing.T, s *cpu.Set) {
		b := integerBackend(s)
		for _, name := range cpu.Integers() {
			sc, _ := scheme.ByName(name)
			for _, k := range []int{sc.Block, 256, 512, 512 + sc.Block} {
				for n := 1; n <= 35; n += 1 + n/4 {
					size := n * k / sc.Block * sc.BlockBytes
					for _, tokens := range []int{1, 2, 4, 16} {
						x, c := make([]float32, tokens*k), make([]float32, tokens*n)
						b.MatMul(name, c, n, w[:size], x, tokens, 0, n, k)
						b.MatMul(name, c, n, w[len(w)-size:], x, tokens, 0, n, k)
					}
				}
			}
		}
	})
}
