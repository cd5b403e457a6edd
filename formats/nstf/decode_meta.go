package nstf

import (
	"strings"
	"unicode"
)

// Parsing of the header's attached files and provenance.

func (d *decoder) files(h *header) error {
	defer func() { d.where = "" }()
	return d.array(func(i int) error {
		at := d.i
		if i >= MaxFiles {
			return d.fail("more than %d files", MaxFiles)
		}
		f, err := d.attached()
		if err != nil {
			return err
		}
		if i > 0 && f.name <= h.files[i-1].name {
			return d.failAt(at, "file name does not sort after %q before it", h.files[i-1].name)
		}
		h.files = append(h.files, f)
		return nil
	})
}

// attached parses one attached file.
func (d *decoder) attached() (f fileRecord, err error) {
	begin := d.i
	d.where = ""
	err = d.object(func(key string) (err error) {
		at := d.i
		switch key {
		case "name":
			if f.name, err = d.str(); err == nil {
				if problem := fileNameProblem(f.name); problem != "" {
					return d.failAt(at, "%s: %s", problem, quoteBrief([]byte(f.name)))
				}
			}
			d.where = f.name
		case "encoding":
			f.encoding, err = d.id("encoding")
		case "decoded":
			f.decoded, err = d.size()
		case "offset":
			f.offset, err = d.size()
		case "size":
			f.size, err = d.size()
		case "hash":
			f.hash, err = d.hash()
		default:
			return d.skip()
		}
		return err
	})
	if err == nil {
		err = d.require(begin, "name", "encoding", "decoded", "offset", "size", "hash")
	}
	if err == nil {
		err = d.inside(begin, f.offset, f.size)
	}
	if err == nil {
		err = d.encoding(begin, &f)
	}
	return f, err
}

// encoding holds the two sizes of a file to its encoding.
func (d *decoder) encoding(at int, f *fileRecord) error {
	switch f.encoding {
	case encodingNone:
		if f.decoded != f.size {
			return d.failAt(at, "%d bytes stored as they are cannot be %d bytes", f.size, f.decoded)
		}
	case encodingZstd:
		if f.decoded > MaxDecoded {
			return d.failAt(at, "%d bytes decoded are more than %d", f.decoded, int64(MaxDecoded))
		}
		if f.decoded > MaxRatio*min(f.size, MaxDecoded) {
			return d.failAt(at, "%d bytes decoded are more than %d times the %d stored", f.decoded, MaxRatio, f.size)
		}
	default:
		return d.unknown(&f.unknown, at, "encoding %q", f.encoding)
	}
	return nil
}

func (d *decoder) provenance(h *header) error {
	begin := d.i
	p := &h.provenance
	err := d.object(func(key string) (err error) {
		switch key {
		case "tool":
			p.Tool, err = d.shown()
		case "flags":
			p.Flags, err = d.allShown()
		case "sources":
			err = d.array(func(int) error {
				s, err := d.source()
				p.Sources = append(p.Sources, s)
				return err
			})
		case "notes":
			p.Notes, err = d.allShown()
		case "created":
			p.Created, err = d.shown()
		default:
			return d.skip()
		}
		return err
	})
	if err == nil {
		err = d.require(begin, "tool", "flags", "sources")
	}
	return err
}

func (d *decoder) source() (s Source, err error) {
	begin := d.i
	err = d.object(func(key string) (err error) {
		at := d.i
		switch key {
		case "role":
			s.Role, err = d.id("role")
		case "name":
			if s.Name, err = d.str(); err == nil {
				if problem := nameProblem(s.Name); problem != "" {
					return d.failAt(at, "source: %s: %s", problem, quoteBrief([]byte(s.Name)))
				}
			}
		case "size":
			s.Size, err = d.size()
		case "hash":
			s.Hash, err = d.hash()
		default:
			return d.skip()
		}
		return err
	})
	if err == nil {
		err = d.require(begin, "role", "name", "size", "hash")
	}
	return s, err
}

// shown parses a string that is shown to people.
func (d *decoder) shown() (string, error) {
	at := d.i
	s, err := d.str()
	if err == nil && strings.ContainsFunc(s, unicode.IsControl) {
		err = d.failAt(at, "control character in the provenance: %s", quoteBrief([]byte(s)))
	}
	return s, err
}

func (d *decoder) allShown() ([]string, error) {
	var out []string
	err := d.array(func(int) error {
		s, err := d.shown()
		out = append(out, s)
		return err
	})
	return out, err
}
