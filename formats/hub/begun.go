package hub

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
)

// Parts are an upload in parts on its way. Between commands they lie in the cache, for the
// same file and the same repository of the same hub: their addresses are the right to send
// those parts and nothing else, and good for hours. The list is JSON: a line with all of
// it, and one behind it for each part that was sent since.
type parts struct {
	Hub, Repo string
	Href      string // where it is said that all are there
	Chunk     int64
	Parts     []sentPart

	list *os.File // open once it was written
}

// A sentPart is one of them: there where it has an ETag.
type sentPart struct{ Addr, ETag string }

// A partSent is a line behind the first.
type partSent struct {
	Part int // from 0
	ETag string
}

// maxBegun is what a list of parts may take: 10,000 with addresses of a kilobyte.
const maxBegun = 32 << 20

func (p *push) partsFile(f *planned) string {
	return filepath.Join(p.Cache.Root, ".nstf-uploads", f.sum+".json")
}

// begun returns what an interrupted push left of a file, nil for nothing.
func (p *push) begun(f *planned) *parts {
	raw, err := formats.ReadFile(p.partsFile(f), maxBegun, "a list of parts")
	if err != nil {
		return nil
	}
	head, lines, _ := bytes.Cut(raw, []byte("\n"))
	var m parts
	if json.Unmarshal(head, &m) != nil || m.Hub != p.Endpoint || m.Repo != p.Repo || m.Chunk <= 0 || m.Chunk > maxSize || int64(len(m.Parts)) != (f.Data.Size()+m.Chunk-1)/m.Chunk {
		return nil
	}
	for line := range bytes.Lines(lines) {
		var s partSent
		if json.Unmarshal(line, &s) != nil || s.Part < 0 || s.Part >= len(m.Parts) {
			break // what an interrupt cut
		}
		m.Parts[s.Part].ETag = s.ETag
	}
	return &m
}

// remember keeps that part i was sent. The first time in a command it writes the list, so
// that nothing is behind a line that was cut, and then a line each.
func (p *push) remember(f *planned, m *parts, i int) error {
	if m.list != nil {
		raw, err := json.Marshal(partSent{i, m.Parts[i].ETag})
		if err == nil {
			_, err = m.list.Write(append(raw, '\n'))
		}
		return err
	}
	m.Hub, m.Repo = p.Endpoint, p.Repo
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	name := p.partsFile(f)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	if err := atomicfile.Scratch(name).WriteFile(append(raw, '\n')); err != nil {
		return err
	}
	m.list, err = os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	return err
}

// Close closes the list.
func (m *parts) Close() {
	if m.list != nil {
		m.list.Close() // a line that is lost is a part that is sent again
		m.list = nil
	}
}

func (p *push) forget(f *planned) { os.Remove(p.partsFile(f)) }
