package nstf

import (
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// Parsing of the header's tensors.

// minTensor is less than the JSON of any tensor: its hash and keys alone.
const minTensor = 160

func (d *decoder) tensors(h *header) error {
	most := min((len(d.p)-d.i)/minTensor, MaxTensors)
	h.tensors = make([]tensorRecord, 0, most)
	h.byName = make(map[string]int, most)
	err := d.array(func(i int) error {
		at := d.i
		if i >= MaxTensors {
			return d.fail("more than %d tensors", MaxTensors)
		}
		var unknown string
		r, err := d.tensor(&unknown)
		if err != nil {
			return err
		}
		if unknown != "" {
			if h.unknown == nil {
				h.unknown = map[int]string{}
			}
			h.unknown[i] = unknown
		}
		if _, double := h.byName[r.Name]; double {
			return d.failAt(at, "two tensors of this name")
		}
		h.byName[r.Name] = i
		h.tensors = append(h.tensors, r)
		d.where = ""
		return nil
	})
	for i := range h.tensors {
		if g := h.tensors[i].guard; g != nil {
			g.record = &h.tensors[i]
		}
	}
	return err
}

// tensor parses one tensor and holds it to its form and scheme, or notes which of them is
// not known.
func (d *decoder) tensor(unknown *string) (r tensorRecord, err error) {
	begin := d.i
	if d.src != nil {
		r.guard = &guard{at: d.origin}
	}
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
		case "factors":
			err = d.factors(&r)
		case "passthrough":
			r.Passthrough, err = d.boolean()
		case "parts":
			err = d.parts(&r, unknown)
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
		return r, d.unknown(unknown, begin, "form %q", r.Form)
	}
	if r.Form == denseForm {
		r.Form = ""
	}
	if err := d.bindFactors(&r, begin, unknown); err != nil || *unknown != "" {
		return r, err
	}
	if _, ok := scheme.ByName(r.Scheme); !ok && r.Form == "" {
		return r, d.unknown(unknown, begin, "scheme %q", r.Scheme)
	}
	return r, formats.At(d.file, "", d.base+int64(begin), form.Check(&r.Tensor))
}

// denseForm is how a package spells the form of a tensor without factors.
const denseForm = "dense"

// factors parses the matrices of a form other than dense.
func (d *decoder) factors(r *tensorRecord) error {
	return d.array(func(i int) error {
		if i >= MaxParts {
			return d.fail("more than %d factors", MaxParts)
		}
		begin := d.i
		var f formats.Tensor
		err := d.object(func(key string) (err error) {
			switch key {
			case "name":
				f.Name, err = d.id("factor")
			case "shape":
				f.Shape, err = d.shape()
			case "scheme":
				f.Scheme, err = d.id("scheme")
			case "params":
				f.Params, err = d.params()
			default:
				return d.skip()
			}
			return err
		})
		r.Factors = append(r.Factors, f)
		if err != nil {
			return err
		}
		return d.require(begin, "name", "shape", "scheme")
	})
}

// bindFactors deals the parts out to the factors, as many to each as its
// scheme's page says.
func (d *decoder) bindFactors(r *tensorRecord, begin int, unknown *string) error {
	if (r.Form == "") != (len(r.Factors) == 0) {
		return d.failAt(begin, "%d factors in a tensor of this form", len(r.Factors))
	}
	parts := r.Parts
	for i := range r.Factors {
		f := &r.Factors[i]
		s, ok := scheme.ByName(f.Scheme)
		if !ok {
			return d.unknown(unknown, begin, "scheme %q", f.Scheme)
		}
		specs, err := s.Parts(f.Shape, f.Params)
		if err != nil {
			return formats.At(d.file, "", d.base+int64(begin), err)
		}
		if len(specs) > len(parts) {
			return d.failAt(begin, "too few parts for factor %q", f.Name)
		}
		for _, p := range parts[:len(specs)] {
			name, ok := strings.CutPrefix(p.Name, f.Name+".")
			if !ok {
				return d.failAt(begin, "part %q stands where one of factor %q belongs", p.Name, f.Name)
			}
			p.Name = name
			f.Parts = append(f.Parts, p)
		}
		parts = parts[len(specs):]
	}
	if len(r.Factors) > 0 && len(parts) > 0 {
		return d.failAt(begin, "part %q belongs to no factor", parts[0].Name)
	}
	return nil
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

func (d *decoder) parts(r *tensorRecord, unknown *string) error {
	d.peek()
	at := d.i
	err := d.array(func(i int) error {
		if i >= MaxParts {
			return d.fail("more than %d parts", MaxParts)
		}
		p, offset, err := d.part(r, unknown)
		r.Parts = append(r.Parts, p)
		r.offsets = append(r.offsets, offset)
		return err
	})
	if err == nil && len(r.Parts) == 0 {
		err = d.failAt(at, "a tensor without parts")
	}
	return err
}

func (d *decoder) part(r *tensorRecord, unknown *string) (p formats.Part, offset int64, err error) {
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
					err = d.unknown(unknown, at, "dtype %q", name)
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
	if err == nil && d.stored && p.DType != tensor.Invalid {
		if want, sizeErr := tensor.Size(p.DType, p.Shape); sizeErr != nil || want != size {
			err = d.failAt(begin, "part %q has %d bytes, which %v of %v does not take", p.Name, size, p.Shape, p.DType)
		}
	}
	if err == nil {
		if g := r.guard; g != nil {
			p.Data = tensor.NewBlob(g, d.dataStart+offset, size)
		} else {
			p.Data = tensor.NewBlob(d.src, d.dataStart+offset, size)
		}
	}
	return p, offset, err
}
