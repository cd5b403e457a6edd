package hub

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
)

// Parts are an upload in parts on its way. Between commands they lie in the cache, for the
// same file and the same repository of the same hub: their addresses are the right to send
// those parts and nothing else, and good for hours.
type parts struct {
	Hub, Repo string
	Href      string // where it is said that all are there
	Chunk     int64
	Parts     []sentPart
}

// A sentPart is one of them: there where it has an ETag.
type sentPart struct{ Addr, ETag string }

// maxBegun is what a list of parts may take: 10,000 with addresses of a kilobyte.
const maxBegun = 32 << 20

func (p *push) partsFile(f *planned) string {
	return filepath.Join(p.Cache.Root, ".nstf-uploads", f.sum+".json")
}

// begun returns what an interrupted push left of a file, nil for nothing.
func (p *push) begun(f *planned) *parts {
	raw, err := formats.ReadFile(p.partsFile(f), maxBegun, "a list of parts")
	var m parts
	if err != nil || json.Unmarshal(raw, &m) != nil || m.Hub != p.Endpoint || m.Repo != p.Repo || m.Chunk <= 0 || int64(len(m.Parts)) != (f.Data.Size()+m.Chunk-1)/m.Chunk {
		return nil
	}
	return &m
}

// remember keeps what was sent.
func (p *push) remember(f *planned, m *parts) error {
	m.Hub, m.Repo = p.Endpoint, p.Repo
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	name := p.partsFile(f)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	return atomicfile.Scratch(name).WriteFile(raw)
}

func (p *push) forget(f *planned) { os.Remove(p.partsFile(f)) }
