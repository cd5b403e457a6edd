package place

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/kernels/cpu"
)

// tilesVersion changes with the kernels: what was the best of older ones is then
// passed over.
const tilesVersion = 1

// tilesFile is what the file of a machine's tiles holds.
type tilesFile struct {
	Version int       `json:"version"`
	Key     string    `json:"key"` // see Machine.Key
	Tiles   cpu.Tiles `json:"tiles"`
}

// TilesPath returns the file that keeps a machine's tiles in a folder.
func (m *Machine) TilesPath(dir string) string {
	h := fnv.New64a()
	io.WriteString(h, m.Key())
	return filepath.Join(dir, fmt.Sprintf("tiles-%016x.json", h.Sum64()))
}

// UsualTiles returns the tiles that follow from a machine's caches.
func (m *Machine) UsualTiles() cpu.Tiles {
	for _, c := range m.Caches {
		if c.Level == 2 {
			return cpu.TilesFor(c.Bytes / int64(max(c.Sharing/max(m.SMT(), 1), 1)))
		}
	}
	return cpu.TilesFor(0)
}

// SaveTiles keeps the best tiles of a machine in a folder, which is made where it is
// missing.
func SaveTiles(dir string, m *Machine, t cpu.Tiles) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	data, err := json.MarshalIndent(tilesFile{tilesVersion, m.Key(), t}, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(m.TilesPath(dir), append(data, '\n'))
}

// LoadTiles returns the tiles that were kept, fs.ErrNotExist where there are none, and
// a FormatError where the file is not one of this machine: take UsualTiles then.
func LoadTiles(dir string, m *Machine) (cpu.Tiles, error) {
	path := m.TilesPath(dir)
	f, err := os.Open(path)
	if err != nil {
		return cpu.Tiles{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxProfile))
	if err != nil {
		return cpu.Tiles{}, err
	}
	var x tilesFile
	if err := json.Unmarshal(data, &x); err != nil {
		return cpu.Tiles{}, formats.Errorf(path, "", "%v", err)
	}
	if x.Version != tilesVersion || x.Key != m.Key() || !x.Tiles.Sound() {
		return cpu.Tiles{}, formats.Errorf(path, "", "version %d, machine %q, tiles %+v are not those of machine %q", x.Version, x.Key, x.Tiles, m.Key())
	}
	return x.Tiles, nil
}
