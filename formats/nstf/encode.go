package nstf

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/nstf/nstf/formats"
)

// encode renders the header: keys in a fixed order, a line for each tensor,
// file and section, no other white space. Hashes have a fixed width, so the
// size is the same before and after they are known.
func (h *header) encode() []byte {
	var e encoder
	e.raw("{\"requires\":")
	e.strings(h.requires)
	e.raw(",\n\"provenance\":")
	e.provenance(&h.provenance)
	e.raw(",\n\"files\":[")
	for i := range h.files {
		e.line(i)
		e.file(&h.files[i])
	}
	e.raw("],\n\"model\":")
	e.p = append(e.p, h.model...)
	e.raw(",\n\"tensors\":[")
	for i := range h.tensors {
		e.line(i)
		e.tensor(&h.tensors[i])
	}
	e.raw("]}\n")
	return e.p
}

// An encoder appends JSON to p.
type encoder struct{ p []byte }

func (e *encoder) raw(s string) { e.p = append(e.p, s...) }

// line separates element i of a list from the one before.
func (e *encoder) line(i int) {
	if i > 0 {
		e.raw(",")
	}
	e.raw("\n")
}

func (e *encoder) tensor(r *tensorRecord) {
	e.raw(`{"name":`)
	e.str(r.Name)
	e.raw(`,"shape":`)
	e.ints(r.Shape)
	e.raw(`,"scheme":`)
	e.str(r.Scheme)
	e.params(r.Params)
	e.raw(`,"form":`)
	if r.Form == "" {
		e.str(denseForm)
	} else {
		e.str(r.Form)
		e.factors(r.Factors)
	}
	if r.Passthrough {
		e.raw(`,"passthrough":true`)
	}
	e.raw(`,"parts":[`)
	for i, p := range r.Parts {
		if i > 0 {
			e.raw(",")
		}
		e.part(&p, r.offsets[i])
	}
	e.raw(`],"hash":`)
	e.str(r.hash.String())
	e.raw("}")
}

func (e *encoder) params(params map[string]int64) {
	if len(params) == 0 {
		return
	}
	e.raw(`,"params":{`)
	for i, key := range slices.Sorted(maps.Keys(params)) {
		if i > 0 {
			e.raw(",")
		}
		e.str(key)
		e.raw(":")
		e.int(params[key])
	}
	e.raw("}")
}

func (e *encoder) factors(list []formats.Tensor) {
	e.raw(`,"factors":[`)
	for i := range list {
		if i > 0 {
			e.raw(",")
		}
		e.raw(`{"name":`)
		e.str(list[i].Name)
		e.raw(`,"shape":`)
		e.ints(list[i].Shape)
		e.raw(`,"scheme":`)
		e.str(list[i].Scheme)
		e.params(list[i].Params)
		e.raw("}")
	}
	e.raw("]")
}

func (e *encoder) part(p *formats.Part, offset int64) {
	e.raw(`{"name":`)
	e.str(p.Name)
	e.raw(`,"dtype":`)
	e.str(p.DType.String())
	e.raw(`,"shape":`)
	e.ints(p.Shape)
	e.raw(`,"offset":`)
	e.int(offset)
	e.raw(`,"size":`)
	e.int(p.Data.Len())
	e.raw("}")
}

func (e *encoder) file(f *fileRecord) {
	e.raw(`{"name":`)
	e.str(f.name)
	e.raw(`,"encoding":`)
	e.str(f.encoding)
	e.raw(`,"decoded":`)
	e.int(f.decoded)
	e.raw(`,"offset":`)
	e.int(f.offset)
	e.raw(`,"size":`)
	e.int(f.size)
	e.raw(`,"hash":`)
	e.str(f.hash.String())
	e.raw("}")
}

func (e *encoder) provenance(p *Provenance) {
	e.raw(`{"tool":`)
	e.str(p.Tool)
	e.raw(`,"flags":`)
	e.strings(p.Flags)
	e.raw(`,"sources":[`)
	for i, s := range p.Sources {
		e.line(i)
		e.raw(`{"role":`)
		e.str(s.Role)
		e.raw(`,"name":`)
		e.str(s.Name)
		e.raw(`,"size":`)
		e.int(s.Size)
		e.raw(`,"hash":`)
		e.str(s.Hash.String())
		e.raw("}")
	}
	e.raw("]")
	if len(p.Notes) > 0 {
		e.raw(`,"notes":`)
		e.strings(p.Notes)
	}
	if p.Created != "" {
		e.raw(`,"created":`)
		e.str(p.Created)
	}
	e.raw("}")
}

func (e *encoder) strings(list []string) {
	e.raw("[")
	for i, s := range list {
		if i > 0 {
			e.raw(",")
		}
		e.str(s)
	}
	e.raw("]")
}

func (e *encoder) int(n int64) { e.p = strconv.AppendInt(e.p, n, 10) }

func (e *encoder) ints(list []int64) {
	e.raw("[")
	for i, n := range list {
		if i > 0 {
			e.raw(",")
		}
		e.int(n)
	}
	e.raw("]")
}

// str writes a string with the fewest escapes (RFC 8785, 3.2.2.2): only the
// quote, the backslash and control characters. Broken UTF-8 stays as it is
// and is refused by the check that follows.
func (e *encoder) str(s string) {
	e.raw(`"`)
	for i := 0; i < len(s); i++ {
		switch b := s[i]; b {
		case '"', '\\':
			e.p = append(e.p, '\\', b)
		case '\b':
			e.raw(`\b`)
		case '\f':
			e.raw(`\f`)
		case '\n':
			e.raw(`\n`)
		case '\r':
			e.raw(`\r`)
		case '\t':
			e.raw(`\t`)
		default:
			if b < 0x20 {
				e.p = fmt.Appendf(e.p, `\u%04x`, b)
				continue
			}
			e.p = append(e.p, b)
		}
	}
	e.raw(`"`)
}
