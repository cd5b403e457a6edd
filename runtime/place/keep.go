package place

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"path/filepath"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
)

// maxKept is the most that a file about a machine holds.
const maxKept = 1 << 20

// file returns where a folder keeps one kind of thing about a machine.
func (m *Machine) file(dir, kind string) string {
	h := fnv.New64a()
	io.WriteString(h, m.Key())
	return filepath.Join(dir, fmt.Sprintf("%s-%016x.json", kind, h.Sum64()))
}

// Learning calls learn, which reads what a folder keeps, adds to it and writes it, while no other process does so. It
// waits for one that does, two seconds at most, after which nothing is learned; a folder that takes no lock is changed
// without one.
func Learning(dir string, learn func()) {
	var busy *atomicfile.BusyError
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		lock, err := atomicfile.TakeLock(filepath.Join(dir, "learning.lock"))
		if !errors.As(err, &busy) {
			defer lock.Close() // nil is none
			learn()
			return
		}
		if time.Since(began) > 2*time.Second {
			return
		}
	}
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
