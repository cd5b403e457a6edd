package place

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"path/filepath"

	"github.com/nstf/nstf/formats"
)

// maxKept is the most that a file about a machine holds.
const maxKept = 1 << 20

// file returns where a folder keeps one kind of thing about a machine.
func (m *Machine) file(dir, kind string) string {
	h := fnv.New64a()
	io.WriteString(h, m.Key())
	return filepath.Join(dir, fmt.Sprintf("%s-%016x.json", kind, h.Sum64()))
}

// load reads what Output.WriteJSON (formats/atomicfile) wrote. What is no JSON of v's type is a FormatError.
func load(path string, v any) error {
	data, err := formats.ReadFile(path, maxKept, "a file about a machine")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return formats.Errorf(path, "", "%v", err)
	}
	return nil
}
