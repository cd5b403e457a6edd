package place_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/place"
)

func TestTilesAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	m := place.Machine{CPU: "a", Caches: []place.Cache{{Level: 1, Bytes: 1 << 15}, {Level: 2, Bytes: 2 << 20, Sharing: 2}}, Cores: 2, Threads: 4}
	if x := m.UsualTiles(); x != cpu.TilesFor(2<<20) {
		t.Errorf("two threads of a core: %+v", x)
	}
	m.Threads = 2
	if x := m.UsualTiles(); x != cpu.TilesFor(1<<20) {
		t.Errorf("two cores at one cache: %+v", x)
	}
	if x := (&place.Machine{}).UsualTiles(); x != cpu.TilesFor(0) {
		t.Errorf("no caches: %+v", x)
	}
	if _, err := place.LoadTiles(dir, &m); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing kept: %v", err)
	}
	want := cpu.Tiles{BlockTokens: 256, PartRows: 128, PartBytes: 1 << 16}
	if err := place.SaveTiles(dir, &m, want); err != nil {
		t.Fatal(err)
	}
	if x, err := place.LoadTiles(dir, &m); err != nil || x != want {
		t.Errorf("%+v, %v", x, err)
	}
	path := m.TilesPath(dir)
	kept, _ := os.ReadFile(path)
	other := m
	other.CPU = "b"
	if err := os.WriteFile(other.TilesPath(dir), kept, 0o666); err != nil {
		t.Fatal(err)
	}
	var f *formats.FormatError
	if _, err := place.LoadTiles(dir, &other); !errors.As(err, &f) {
		t.Errorf("another machine's: %v", err)
	}
	for _, text := range []string{"", "{}", string(kept[:len(kept)/2])} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := place.LoadTiles(dir, &m); !errors.As(err, &f) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
