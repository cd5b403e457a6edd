package place

import (
	"errors"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
)

// pacesVersion changes with what predictions are made of: paces of older ones are then passed over.
const pacesVersion = 2

// maxPaces bounds what is kept; the oldest go first.
const maxPaces = 256

// A Work is what a device does of a token: what it reads, and how it shares a model.
type Work struct {
	Device  Request `json:"device"`
	Name    string  `json:"name"`
	Split   Sharing `json:"split,omitempty"` // Tensors, or ""
	Weights string  `json:"weights"`         // scheme that most bytes of blocks are in
	Exact   bool    `json:"exact,omitempty"`
	Block   float64 `json:"block_bytes"` // that a token reads of a block, of the whole model
}

// A Pace is how many times as long as predicted a device took for a work.
type Pace struct {
	Work
	Factor float64   `json:"factor"`
	Spread float64   `json:"variance"` // of the factor
	Runs   int       `json:"runs"`     // that it was learned from
	Last   time.Time `json:"last"`     // of them
}

// Paces are what a machine's runs took, held to what was predicted from single measurements.
type Paces struct {
	Version int    `json:"version"`
	Key     string `json:"key"` // see Machine.Key
	Paces   []Pace `json:"paces"`
}

// A Part of a token is a work, and the seconds that were predicted for it without any pace.
type Part struct {
	Work
	Seconds float64
}

// Paces of a work apply to those whose blocks read up to like times as much, or as little; same is within
// which they are one.
const (
	like = 4
	same = 1.25
)

// What is learned of runs is an estimate with a variance.
const (
	leastPace, mostPace = 1.0 / 8, 8
	unknown             = 0.25   // variance of a factor that no run has told of
	drift               = 0.0004 // by which it grows with each run: machines change
	noise               = 0.03   // of the time that is predicted, relative deviation
	forgotten           = 7      // days after which 1/e is left of what runs told of
)

// PacesPath returns the file that keeps a machine's paces in a folder.
func (m *Machine) PacesPath(dir string) string { return m.file(dir, "paces") }

// LoadPaces returns what was learned on a machine: nothing where there is no file, and a FormatError with nothing
// where it is not one of this machine.
func LoadPaces(dir string, m *Machine) (*Paces, error) {
	path, p := m.PacesPath(dir), &Paces{}
	fresh := &Paces{Version: pacesVersion, Key: m.Key()}
	switch err := load(path, p); {
	case errors.Is(err, fs.ErrNotExist):
		return fresh, nil
	case err != nil:
		return fresh, err
	case p.Version != pacesVersion || p.Key != m.Key():
		return fresh, formats.Errorf(path, "", "version %d, machine %q are not those of machine %q", p.Version, p.Key, m.Key())
	}
	for _, x := range p.Paces {
		if !(x.Factor >= leastPace && x.Factor <= mostPace) || !(x.Spread >= 0 && x.Spread <= unknown) || x.Runs < 1 || !(x.Block > 0) {
			return fresh, formats.Errorf(path, "paces", "%v has a pace of %g from %d runs", x.Device, x.Factor, x.Runs)
		}
	}
	return p, nil
}

// Save writes the paces into a folder, which is made where it is missing.
func (p *Paces) Save(dir string, m *Machine) error {
	return atomicfile.Scratch(m.PacesPath(dir)).WriteJSON(p)
}

// find returns the pace of a work or the nearest that is like it, nil for none, and how many times as much one of
// the blocks reads.
func (p *Paces) find(w *Work) (nearest *Pace, apart float64) {
	apart = like
	for i := range p.Paces {
		x := &p.Paces[i]
		alike := x.Work
		alike.Block = w.Block
		if d := math.Exp(math.Abs(math.Log(x.Block / w.Block))); alike == *w && d <= apart && (nearest == nil || d < apart) {
			nearest, apart = x, d
		}
	}
	return nearest, apart
}

// aged returns a pace's factor and variance at a time. A slow one goes back to 1, since a device that layouts leave out
// for it is timed no more, and the reason may have gone; whatever runs told of grows uncertain.
func (x *Pace) aged(now time.Time) (factor, spread float64) {
	left := math.Exp(-max(0, now.Sub(x.Last).Hours()) / (24 * forgotten))
	if factor = x.Factor; factor > 1 {
		factor = 1 + (factor-1)*left
	}
	return factor, unknown - (unknown-x.Spread)*left
}

// Of returns how many times as long as predicted a work takes at a time, and from how many runs that is known: 1 and 0
// where nothing is.
func (p *Paces) Of(w Work, now time.Time) (factor float64, runs int) {
	if x, _ := p.find(&w); x != nil {
		factor, _ = x.aged(now)
		return factor, x.Runs
	}
	return 1, 0
}

// Learn holds the seconds that a token took to its parts, which came one after the other: a Kalman filter of factors
// whose errors are taken as independent. So those change that few runs, or only shared ones, have told of.
//
//	off     = seconds - sum of factor*p
//	gain    = variance * p / (sum of variance*p*p + (noise * predicted)^2)
//	factor += gain * off,  variance *= 1 - gain*p
func (p *Paces) Learn(parts []Part, seconds float64, now time.Time) {
	if !(seconds > 0) || math.IsInf(seconds, 0) {
		return
	}
	off, sum := seconds, 0.0
	parts = slices.DeleteFunc(slices.Clone(parts), func(x Part) bool {
		if x.Seconds > 0 && !(x.Block > 0) { // reads no blocks: there is no work to keep it for
			off -= x.Seconds
		}
		return !(x.Seconds > 0 && x.Block > 0)
	})
	all := make([]Pace, len(parts))
	for i, x := range parts {
		n := Pace{Work: x.Work, Factor: 1, Spread: unknown, Last: now}
		if old, apart := p.find(&x.Work); old != nil {
			factor, spread := old.aged(now)
			if n.Factor = factor; apart <= same {
				n = *old
				n.Factor, n.Spread, n.Last = factor, min(spread+drift, unknown), now
			}
		}
		n.Runs++
		off -= n.Factor * x.Seconds
		sum += n.Spread * x.Seconds * x.Seconds
		all[i] = n
	}
	sum += noise * noise * (seconds - off) * (seconds - off)
	if math.IsInf(sum, 0) || math.IsNaN(sum) {
		return
	}
	for i, x := range parts {
		n := &all[i]
		gain := n.Spread * x.Seconds / sum
		n.Factor = min(max(n.Factor+gain*off, leastPace), mostPace)
		n.Spread *= 1 - gain*x.Seconds
		if own, apart := p.find(&n.Work); own != nil && apart <= same {
			*own = *n
		} else {
			p.Paces = append(p.Paces, *n)
		}
	}
	if len(p.Paces) > maxPaces {
		slices.SortStableFunc(p.Paces, func(a, b Pace) int { return a.Last.Compare(b.Last) })
		p.Paces = slices.Delete(p.Paces, 0, len(p.Paces)-maxPaces)
	}
}

// Paced returns the site as slow as a pace says, and what it was learned from.
func (s Site) Paced(factor float64, runs int) Site {
	v := &s.Speed
	v.Read, v.Block, v.Copy, v.Link = v.Read/factor, v.Block*factor, v.Copy*factor, v.Link/factor
	s.Pace, s.Runs = factor, runs
	return s
}
