package place

import (
	"errors"
	"fmt"
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
func (m *Machine) Path(dir string) string { return m.file(dir, "machine") }

// Load reads the profile of a machine, measured with so many threads, from a
// folder. A file that is not one is a FormatError, which means: measure again; so
// does one that does not exist, fs.ErrNotExist.
func Load(dir string, m *Machine, threads int) (*Profile, error) {
	path := m.Path(dir)
	p := &Profile{}
	if err := load(path, p); err != nil {
		return nil, err
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
func (p *Profile) Save(dir string) error { return atomicfile.Scratch(p.Machine.Path(dir)).WriteJSON(p) }
