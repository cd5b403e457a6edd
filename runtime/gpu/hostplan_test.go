package gpu

import (
	"errors"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// TestFitHosted: pages have room as long as their summaries do, and some of them, on the card, and the others in
// the host's memory.
func TestFitHosted(t *testing.T) {
	layers := []hip.KV{{Format: 1, Heads: 8, Dim: 128, Summarized: true}, {Format: 1, Heads: 8, Dim: 128}}
	planes, all := planeBytes(layers), pageBytes(layers)
	for _, c := range []struct{ room, host, fit int64 }{
		{100 * all, 0, 100},
		{100*all - 1, 0, 99},
		{100 * all, planes - 1, 100},
		{100*all + 50*(all-planes), 50 * planes, 150},
		{leastCard*planes + 1000*(all-planes), 1 << 60, 1000},
		{2 * all, 1 << 60, 2}, // too little for any summaries beside
	} {
		if got := fitHosted(layers, c.room, c.host); got != c.fit {
			t.Errorf("%d bytes and %d of the host's hold %d pages, want %d", c.room, c.host, got, c.fit)
		}
	}
}

// A device that shares the processor's memory is refused, as it would be counted twice, and only where it is asked for.
func TestHostedIntegrated(t *testing.T) {
	for _, c := range []struct {
		host       int64
		integrated bool
	}{{0, true}, {1, false}, {1, true}} {
		err := (&Engine{kvHost: c.host}).checkDevice(driver.Properties{Integrated: c.integrated})
		if u := (*formats.UnsupportedError)(nil); (c.host > 0 && c.integrated) != errors.As(err, &u) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// The host's memory is a hint only where it may be used.
func TestHostedHint(t *testing.T) {
	for _, hostable := range []bool{false, true} {
		e := TooLargeError{Plan{Free: 9, Cache: 20, hostable: hostable}}
		if strings.Contains(e.Hint(), "--kv-host") != hostable {
			t.Errorf("%t: %s", hostable, e.Hint())
		}
	}
}
