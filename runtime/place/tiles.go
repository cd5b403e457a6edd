package place

import (
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
func (m *Machine) TilesPath(dir string) string { return m.file(dir, "tiles") }

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
	return atomicfile.Scratch(m.TilesPath(dir)).WriteJSON(tilesFile{tilesVersion, m.Key(), t})
}

// LoadTiles returns the tiles that were kept, fs.ErrNotExist where there are none, and
// a FormatError where the file is not one of this machine: take UsualTiles then.
func LoadTiles(dir string, m *Machine) (cpu.Tiles, error) {
	path := m.TilesPath(dir)
	var x tilesFile
	if err := load(path, &x); err != nil {
		return cpu.Tiles{}, err
	}
	if x.Version != tilesVersion || x.Key != m.Key() || !x.Tiles.Sound() {
		return cpu.Tiles{}, formats.Errorf(path, "", "version %d, machine %q, tiles %+v are not those of machine %q", x.Version, x.Key, x.Tiles, m.Key())
	}
	return x.Tiles, nil
}
