package formats

import "testing"

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.00 KiB", 3 << 19: "1.50 MiB", 5 << 50: "5120.00 TiB"} {
		if got := Size(n); got != want {
			t.Errorf("%d bytes are %q, want %q", n, got, want)
		}
	}
}
