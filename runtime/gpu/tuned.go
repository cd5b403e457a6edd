package gpu

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"path/filepath"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/kernels/hip"
)

// A tuningFile is a tuning as it is kept, with what it holds for.
type tuningFile struct {
	Device string `json:"device"`
	Key    string `json:"key"`
	hip.Tuning
}

// tuningKey names all that a tuning depends on: the device, its compiler, and the
// kernels' sources.
func (m *machine) tuningKey() string {
	p := m.device.Properties()
	compiler := ""
	if m.cache.Compiler != nil {
		compiler = m.cache.Compiler.Identity()
	}
	h := fnv.New64a()
	for _, file := range []string{"matvec.hip", "matmul.hip", "attend.hip"} {
		io.WriteString(h, hip.Unit{File: file, Defines: "NSTF_SCHEME=q4k"}.Source())
	}
	return fmt.Sprintf("%s, %+v, %s, %x", p.Name, p.Target, compiler, h.Sum64())
}

// tuningPath is where a folder of compiled kernels keeps the tuning of a key.
func (m *machine) tuningPath(key string) string {
	h := fnv.New64a()
	io.WriteString(h, key)
	return filepath.Join(m.cache.Dir, fmt.Sprintf("tuning-%016x.json", h.Sum64()))
}

// maxTuning is the most that such a file holds.
const maxTuning = 1 << 20

// loadTuning returns what Tune has kept for this device, nil where that is nothing
// that can be used.
func (m *machine) loadTuning() *hip.Tuning {
	if m.cache.Dir == "" {
		return nil
	}
	key := m.tuningKey()
	data, err := formats.ReadFile(m.tuningPath(key), maxTuning, "a tuning")
	if err != nil {
		return nil
	}
	var f tuningFile
	if json.Unmarshal(data, &f) != nil || f.Key != key || !f.Sound(m.target) {
		return nil
	}
	return &f.Tuning
}

// saveTuning keeps a tuning for the next time, and returns the file: "" where there
// is no folder for it.
func (m *machine) saveTuning(u *hip.Tuning) (string, error) {
	if m.cache.Dir == "" {
		return "", nil
	}
	key := m.tuningKey()
	path := m.tuningPath(key)
	return path, atomicfile.Scratch(path).WriteJSON(tuningFile{m.device.Properties().Name, key, *u})
}
