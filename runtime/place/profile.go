package place

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
)

// profileVersion changes with the meaning of any figure: what an older version
// measured is then measured again.
const profileVersion = 1

// A Profile is a machine and what was measured on it, in GB/s and in 10^9
// operations per second.
type Profile struct {
	Version  int       `json:"version"`
	Key      string    `json:"key"` // see Machine.Key
	Machine  Machine   `json:"machine"`
	Measured time.Time `json:"measured"`
	Threads  int       `json:"threads"` // of "all"
	Buffer   int64     `json:"buffer"`  // bytes read for the bandwidth
	ReadOne  Rate      `json:"read_one_gbs"`
	ReadAll  Rate      `json:"read_all_gbs"`
	Peaks    []Peak    `json:"peaks"`
}

// A Peak is the most multiplications and additions of one kind.
type Peak struct {
	Kind string `json:"kind"` // see cpu.PeakF32 and its neighbours
	One  Rate   `json:"one_gops"`
	All  Rate   `json:"all_gops"`
}

// Path returns the file that keeps a machine's profile in a folder.
func (m *Machine) Path(dir string) string {
	h := fnv.New64a()
	io.WriteString(h, m.Key())
	return filepath.Join(dir, fmt.Sprintf("machine-%016x.json", h.Sum64()))
}

// maxProfile is the most that a profile's file holds.
const maxProfile = 1 << 20

// Load reads the profile of a machine, measured with so many threads, from a
// folder. A file that is not one is a FormatError, which means: measure again; so
// does one that does not exist, fs.ErrNotExist.
func Load(dir string, m *Machine, threads int) (*Profile, error) {
	path := m.Path(dir)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxProfile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxProfile {
		return nil, formats.Errorf(path, "", "more than %d bytes", maxProfile)
	}
	p := &Profile{}
	if err := json.Unmarshal(data, p); err != nil {
		return nil, formats.Errorf(path, "", "%v", err)
	}
	if err := p.check(m, threads); err != nil {
		return nil, formats.Errorf(path, "", "%v", err)
	}
	return p, nil
}

// check reports what keeps a profile from being this machine's.
func (p *Profile) check(m *Machine, threads int) error {
	switch {
	case p.Version != profileVersion:
		return fmt.Errorf("version %d is not %d", p.Version, profileVersion)
	case p.Key != m.Key():
		return fmt.Errorf("machine %q is not %q", p.Key, m.Key())
	case p.Threads != threads:
		return fmt.Errorf("%d threads are not %d", p.Threads, threads)
	case !p.ReadOne.sound() || !p.ReadAll.sound() || len(p.Peaks) == 0:
		return errors.New("figures are missing")
	}
	for _, k := range p.Peaks {
		if !k.One.sound() || !k.All.sound() {
			return fmt.Errorf("figures of %q are missing", k.Kind)
		}
	}
	return nil
}

// Save writes the profile into a folder, which is made where it is missing.
func (p *Profile) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(p.Machine.Path(dir), append(data, '\n'))
}
