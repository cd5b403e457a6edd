package tensor_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats/tensor"
)

// Pieces of short and of long lines, read in parts that begin and end anywhere.
func TestStrided(t *testing.T) {
	all := make([]byte, 6<<20)
	rng := rand.New(rand.NewPCG(1, 9))
	for i := range all {
		all[i] = byte(rng.Uint32())
	}
	for _, c := range [][3]int64{{1 << 10, 5, 77}, {1 << 10, 0, 1023}, {3 << 19, 11, 1 << 20}, {6 << 20, 1, 7}, {1 << 12, 0, 0}} {
		var want []byte
		for at := int64(0); at < int64(len(all)); at += c[0] {
			want = append(want, all[at+c[1]:][:c[2]]...)
		}
		b := newSource(t, 1, all).Strided(c[0], c[1], c[2])
		if got, err := b.Unchecked().Bytes(); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%v: %d bytes, %v", c, len(got), err)
		}
		for range 20 {
			off := rng.IntN(len(want) + 1)
			p := make([]byte, rng.IntN(len(want)-off+1))
			if n, err := b.ReadAt(p, int64(off)); n != len(p) || err != nil || !bytes.Equal(p, want[off:][:n]) {
				t.Fatalf("%v: %d of %d bytes from %d on, %v", c, n, len(p), off, err)
			}
		}
		if b.Pieces() > 1 {
			t.Errorf("%v: %d pieces", c, b.Pieces())
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("bytes beyond a line")
		}
	}()
	tensor.BytesBlob(all).Strided(1<<10, 1000, 25)
}
