package driver_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// files writes files under a folder, which stands for the root of a file system.
func files(t *testing.T, texts map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range texts {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const card = "sys/bus/pci/devices/0000:03:00.0/"

// A processor's graphics with 1 GiB of its own, as the fake device says, and 8 that
// it may map, 1 of which it maps.
var graphics = map[string]string{
	card + "mem_info_vram_total": "1073741824\n", card + "mem_info_gtt_total": "8589934592\n", card + "mem_info_gtt_used": "1073741824\n",
	"proc/meminfo": "MemTotal:       32000000 kB\nMemFree:         1000000 kB\nMemAvailable:   16777216 kB\n",
}

// TestShared: how much of the host's memory a device may map.
func TestShared(t *testing.T) {
	integrated, own := newFake(t, hip.HIP, "INTEGRATED"), newFake(t, hip.HIP)
	with := func(name, text string) map[string]string {
		m := map[string]string{name: text}
		for n, s := range graphics {
			if n != name {
				m[n] = s
			}
		}
		return m
	}
	for name, c := range map[string]struct {
		f           *fake
		texts       map[string]string
		free, total int64
	}{
		"integrated":         {integrated, graphics, 7 << 30, 8 << 30},
		"a card":             {own, graphics, 0, 0},
		"no driver":          {integrated, nil, 0, 0},
		"little left":        {integrated, with("proc/meminfo", "MemAvailable: 1048576 kB\n"), 1 << 30 / 8 * 7, 8 << 30},
		"all of it is used":  {integrated, with(card+"mem_info_gtt_used", "9999999999\n"), 0, 8 << 30},
		"the runtime's own":  {integrated, with(card+"mem_info_vram_total", "536870912\n"), 0, 0},
		"no number":          {integrated, with(card+"mem_info_gtt_total", "much\n"), 0, 0},
		"nothing said of it": {integrated, with("proc/meminfo", ""), 0, 8 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.f.options()
			o.Root = files(t, c.texts)
			d := opened(t, must(driver.Load(o))(t))
			if free, total := d.Shared(); free != c.free || total != c.total {
				t.Errorf("%d of %d, want %d of %d", free, total, c.free, c.total)
			}
		})
	}
}

// TestAllocShared: what is mapped is used as the device's own memory, of a processor's graphics and of a card.
func TestAllocShared(t *testing.T) {
	for what, f := range map[string]*fake{"graphics": newFake(t, hip.HIP, "INTEGRATED", "ALLOC=2"), "a card": newFake(t, hip.CUDA, "ALLOC=2")} {
		t.Run(what, func(t *testing.T) { testAllocShared(t, newBench(t, f.open)) })
	}
}

func testAllocShared(t *testing.T, b *bench) {
	if _, err := b.Alloc(4 << 20); !errors.Is(err, driver.ErrMemory) {
		t.Fatalf("the device has room: %v", err)
	}
	x := must(b.AllocShared(4 << 20))(t)
	want := bytes.Repeat([]byte{1, 2, 3, 4}, 1<<20)
	check(t, b.Upload(x, want))
	got := make([]byte, len(want))
	check(t, b.Download(got, x))
	if !bytes.Equal(got, want) {
		t.Error("other bytes came back")
	}
	check(t, b.Free(x))
	if err := b.Free(x); !errors.Is(err, driver.ErrRange) {
		t.Errorf("freed twice: %v", err)
	}
	if _, err := b.AllocShared(0); !errors.Is(err, driver.ErrRange) {
		t.Errorf("no bytes: %v", err)
	}
	if _, err := b.AllocShared(1 << 60); !errors.Is(err, driver.ErrMemory) {
		t.Errorf("more than the host has: %v", err)
	}
	must(b.AllocShared(1 << 20))(t) // Close gives it back
}
