package corpus

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
)

// Damaged parquet files are bad inputs that take no more memory than whole ones, and
// say nothing of the library's insides.
func TestDamagedParquet(t *testing.T) {
	files, err := filepath.Glob("../../testdata/parquet/*.parquet")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		footer := len(whole) - 8 - int(whole[len(whole)-8]) - int(whole[len(whole)-7])<<8
		rng := rand.New(rand.NewPCG(7, 7))
		for i := range 1500 {
			bad := bytes.Clone(whole)
			for range 1 + rng.IntN(3) {
				at := rng.IntN(len(bad))
				if i%2 == 0 { // most of what is asked for lies there
					at = footer + rng.IntN(len(bad)-footer)
				}
				switch rng.IntN(3) {
				case 0:
					bad[at] ^= 1 << rng.IntN(8)
				case 1:
					bad[at] = byte(rng.IntN(256))
				case 2:
					bad[at] |= 0xf0
				}
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := ParseSamples("bad.parquet", bad)
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
				t.Errorf("%s %d: %d bytes allocated: %v", filepath.Base(file), i, n, err)
			}
			var f *formats.FormatError
			var u *formats.UnsupportedError
			if err != nil && !errors.As(err, &f) && !errors.As(err, &u) {
				t.Errorf("%s %d: %v", filepath.Base(file), i, err)
			}
			if err != nil && (strings.Contains(err.Error(), "runtime error") || strings.Contains(err.Error(), "reflect") || strings.Contains(err.Error(), "goroutine") || strings.Contains(err.Error(), "panic")) {
				t.Errorf("%s %d: %v", filepath.Base(file), i, err)
			}
		}
	}
}
