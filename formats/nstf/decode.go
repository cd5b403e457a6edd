package nstf

import (
	"encoding/json"
	"io"
	"unicode/utf8"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// A decoder parses and checks the header. Everything that it accepts lies
// inside the file.
type decoder struct {
	cursor
	src       io.ReaderAt
	dataStart int64 // file offset of the data section
	dataSize  int64
}

// A section is one value of the header's object, still unparsed.
type section struct{ begin, end int }

// minTensor is less than the JSON of any tensor: its hash and keys alone.
const minTensor = 160

// newDecoder prepares to parse the JSON p of a file.
func newDecoder(p []byte, file string, src io.ReaderAt, dataStart, fileSize int64) *decoder {
	return &decoder{
		cursor:    cursor{p: p, file: file, base: preambleSize},
		src:       src,
		dataStart: dataStart,
		dataSize:  fileSize - dataStart,
	}
}

// decode parses the header and checks the layout it describes.
func (d *decoder) decode() (*header, error) {
	h, err := d.parse()
	if err != nil {
		return nil, err
	}
	return h, d.checkLayout(h)
}

// parse parses the header and checks each item by itself.
func (d *decoder) parse() (*header, error) {
	if !utf8.Valid(d.p) {
		return nil, d.fail("not UTF-8")
	}
	all := d.p
	sections, err := d.split()
	if err != nil {
		return nil, err
	}
	h := &header{}
	// Features first: one that is unknown explains whatever else looks wrong.
	for _, s := range []struct {
		key   string
		parse func(*header) error
	}{
		{"requires", d.requires},
		{"provenance", d.provenance},
		{"files", d.files},
		{"model", d.model},
		{"tensors", d.tensors},
	} {
		at, ok := sections[s.key]
		if !ok {
			return nil, d.failAt(0, "key %q is missing", s.key)
		}
		d.p, d.i = all[:at.end], at.begin
		if err := s.parse(h); err != nil {
			return nil, err
		}
	}
	d.p = all
	return h, nil
}

// split finds the sections and checks the syntax of the whole.
func (d *decoder) split() (map[string]section, error) {
	out := map[string]section{}
	err := d.object(func(key string) error {
		d.peek()
		begin := d.i
		err := d.skip()
		switch key {
		case "requires", "provenance", "files", "model", "tensors":
			out[key] = section{begin, d.i}
		}
		return err
	})
	if err == nil && (d.peek() != 0 || d.i < len(d.p)) {
		err = d.fail("bytes after the object")
	}
	d.depth = 1 // sections are parsed inside the object
	return out, err
}

func (d *decoder) requires(h *header) error {
	return d.array(func(int) error {
		at := d.i
		feature, err := d.id("feature")
		if err != nil {
			return err
		}
		// Version 1 has no optional features yet. "shards" is reserved.
		return d.unsupported(at, "feature %q, which this package requires", feature)
	})
}

func (d *decoder) model(h *header) error {
	begin := d.i
	if d.peek() != '{' {
		return d.unexpected("the model's object")
	}
	h.model = append(json.RawMessage(nil), d.p[begin:]...)
	return nil
}

// id parses a short name.
func (d *decoder) id(what string) (string, error) {
	d.peek()
	at := d.i
	s, err := d.short()
	if err == nil && !isID(s) {
		err = d.failAt(at, "%s %s is not 1 to %d of a-z, A-Z, 0-9, '_', '-', '.'", what, quoteBrief([]byte(s)), MaxID)
	}
	return s, err
}

// hash parses a hash.
func (d *decoder) hash() (Hash, error) {
	d.peek()
	at := d.i
	s, err := d.str()
	if err != nil {
		return Hash{}, err
	}
	h, ok := ParseHash(s)
	if !ok {
		return h, d.failAt(at, "hash %s is not 64 lower-case hexadecimal digits", quoteBrief([]byte(s)))
	}
	return h, nil
}

func (d *decoder) tensors(h *header) error {
	most := min((len(d.p)-d.i)/minTensor, MaxTensors)
	h.tensors = make([]tensorRecord, 0, most)
	h.byName = make(map[string]int, most)
	return d.array(func(i int) error {
		at := d.i
		if i >= MaxTensors {
			return d.fail("more than %d tensors", MaxTensors)
		}
		r, err := d.tensor()
		if err != nil {
			return err
		}
		if _, double := h.byName[r.Name]; double {
			return d.failAt(at, "two tensors of this name")
		}
		h.byName[r.Name] = i
		h.tensors = append(h.tensors, r)
		d.where = ""
		return nil
	})
}

// tensor parses one tensor and holds it to its form and scheme.
func (d *decoder) tensor() (r tensorRecord, err error) {
	begin := d.i
	err = d.object(func(key string) (err error) {
		at := d.i
		switch key {
		case "name":
			if r.Name, err = d.str(); err == nil {
				if problem := nameProblem(r.Name); problem != "" {
					return d.failAt(at, "%s: %s", problem, quoteBrief([]byte(r.Name)))
				}
			}
			d.where = r.Name
		case "shape":
			r.Shape, err = d.shape()
		case "scheme":
			r.Scheme, err = d.id("scheme")
		case "params":
			r.Params, err = d.params()
		case "form":
			r.Form, err = d.id("form")
		case "passthrough":
			r.Passthrough, err = d.boolean()
		case "parts":
			err = d.parts(&r)
		case "hash":
			r.hash, err = d.hash()
		default:
			return d.skip()
		}
		return err
	})
	if err != nil {
		return r, err
	}
	if err := d.require(begin, "name", "shape", "scheme", "form", "parts", "hash"); err != nil {
		return r, err
	}
	if _, ok := form.ByName(r.Form); !ok {
		return r, d.unsupported(begin, "form %q", r.Form)
	}
	return r, d.place(begin, scheme.Check(&r.Tensor))
}

// require refuses the object that just ended, at at, where it lacks one of
// keys.
func (d *decoder) require(at int, keys ...string) error {
	for _, key := range keys {
		if !d.keys.has(key) {
			return d.failAt(at, "key %q is missing", key)
		}
	}
	return nil
}

// place puts file and offset into an error that knows only the tensor.
func (d *decoder) place(at int, err error) error {
	switch e := err.(type) {
	case *formats.FormatError:
		c := *e
		c.File, c.Offset = d.file, d.base+int64(at)
		return &c
	case *formats.UnsupportedError:
		c := *e
		c.File, c.Offset = d.file, d.base+int64(at)
		return &c
	}
	return err
}

func (d *decoder) shape() ([]int64, error) {
	d.peek()
	at := d.i
	shape := []int64{}
	err := d.array(func(i int) error {
		if i >= MaxDims {
			return d.fail("more than %d dimensions", MaxDims)
		}
		n, err := d.size()
		shape = append(shape, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	if _, err := tensor.Elements(shape); err != nil {
		return nil, d.failAt(at, "%v", err)
	}
	return shape, nil
}

func (d *decoder) params() (map[string]int64, error) {
	params := map[string]int64{}
	err := d.object(func(key string) (err error) {
		if !isID(key) {
			return d.fail("bad parameter name %s", quoteBrief([]byte(key)))
		}
		if len(params) >= MaxParams {
			return d.fail("more than %d parameters", MaxParams)
		}
		params[key], err = d.integer()
		return err
	})
	if len(params) == 0 {
		params = nil
	}
	return params, err
}

func (d *decoder) parts(r *tensorRecord) error {
	d.peek()
	at := d.i
	err := d.array(func(i int) error {
		if i >= MaxParts {
			return d.fail("more than %d parts", MaxParts)
		}
		p, offset, err := d.part()
		r.Parts = append(r.Parts, p)
		r.offsets = append(r.offsets, offset)
		return err
	})
	if err == nil && len(r.Parts) == 0 {
		err = d.failAt(at, "a tensor without parts")
	}
	return err
}

func (d *decoder) part() (p formats.Part, offset int64, err error) {
	begin := d.i
	var size int64
	err = d.object(func(key string) (err error) {
		at := d.i
		switch key {
		case "name":
			p.Name, err = d.id("part")
		case "dtype":
			var name string
			if name, err = d.id("dtype"); err == nil {
				if p.DType = tensor.ParseDType(name); p.DType == tensor.Invalid {
					err = d.unsupported(at, "dtype %q", name)
				}
			}
		case "shape":
			p.Shape, err = d.shape()
		case "offset":
			offset, err = d.size()
		case "size":
			size, err = d.size()
		default:
			return d.skip()
		}
		return err
	})
	if err == nil {
		err = d.require(begin, "name", "dtype", "shape", "offset", "size")
	}
	if err == nil {
		err = d.inside(begin, offset, size)
	}
	if err == nil {
		p.Data = tensor.NewBlob(d.src, d.dataStart+offset, size)
	}
	return p, offset, err
}

// inside holds a range to the data section.
func (d *decoder) inside(at int, offset, size int64) error {
	if size > d.dataSize || offset > d.dataSize-size {
		return d.failAt(at, "%d bytes at %d lie beyond the %d bytes of data", size, offset, d.dataSize)
	}
	return nil
}
