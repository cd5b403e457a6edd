package export

import (
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/arch"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// Replaced returns the model with some tensors of the directory that [Coded] makes of it
// in the place of what they were: parts of coded tensors, with other scales, and plain
// tensors. Types and shapes are those of the directory. A name that the directory does
// not have, a tensor that passes through or whose numbers stand in the graph itself, and
// another type or shape, are FormatErrors that name file. What the package says of its
// accuracy, which was another's, is left out.
func Replaced(m *model.Model, file string, with []formats.Tensor) (*model.Model, error) {
	a, ok := arch.ByName(m.Graph.Arch)
	if !ok {
		return nil, arch.Unknown(m.Path, m.Graph.Arch)
	}
	x, c, of, err := coded(m, a)
	if err != nil {
		return nil, err
	}
	r := replacer{m: m, x: x, c: c, file: file, by: map[string]formats.Tensor{}, used: map[string]bool{}}
	for _, t := range with {
		r.by[t.Name] = t
	}
	out := map[string]formats.Tensor{}
	if err := r.parts(out); err != nil {
		return nil, err
	}
	if err := r.plain(a, of, out); err != nil {
		return nil, err
	}
	for _, t := range with {
		if !r.used[t.Name] {
			return nil, formats.Errorf(file, t.Name, "no tensor of the directory that %s makes has that name", m.Path)
		}
	}
	made := m.With(out)
	made.Files = slices.DeleteFunc(slices.Clone(m.Files), func(f model.File) bool { return strings.HasPrefix(f.Name, "nstf/") })
	return made, nil
}

// A replacer puts tensors of a directory into a model.
type replacer struct {
	m    *model.Model
	x    *Model // the directory, with placeholders for coded tensors
	c    *codedModel
	file string
	by   map[string]formats.Tensor
	used map[string]bool
}

// parts gives out the coded tensors of which a part is replaced.
func (r *replacer) parts(out map[string]formats.Tensor) error {
	for i, e := range r.c.Tensors {
		t := r.m.Tensor(e.Name)
		data, changed := make([]tensor.Blob, len(t.Parts)), false
		for j, p := range t.Parts {
			data[j] = p.Data
			name := codedPart(i, &t, p.Name)
			n, ok := r.by[name]
			if !ok {
				continue
			}
			if n.Scheme != "u8" || len(n.Parts) != 1 || n.Parts[0].Data.Len() != p.Data.Len() {
				return formats.Errorf(r.file, name, "%s of shape %v where %d bytes belong", n.Scheme, n.Shape, p.Data.Len())
			}
			data[j], r.used[name], changed = n.Parts[0].Data, true, true
		}
		if !changed {
			continue
		}
		var err error
		if out[e.Name], err = withData(t, data); err != nil {
			return err
		}
	}
	return nil
}

// withData returns a tensor with other bytes.
func withData(t formats.Tensor, data []tensor.Blob) (formats.Tensor, error) {
	if t.Form == "" {
		s, _ := scheme.ByName(t.Scheme)
		return scheme.New(t.Name, s, t.Shape, t.Params, data...)
	}
	f, _ := form.ByName(t.Form)
	factors := slices.Clone(t.Factors)
	for i := range factors {
		n := len(factors[i].Parts)
		var err error
		if factors[i], err = withData(factors[i], data[:n]); err != nil {
			return t, err
		}
		data = data[n:]
	}
	return form.New(t.Name, f.ID, t.Shape, t.Params, factors...)
}

// plain gives out the graph's tensors that plain ones of the directory make. of says
// which make which.
func (r *replacer) plain(a *arch.Architecture, of map[string][]string, out map[string]formats.Tensor) error {
	offset := a.Offset() - normOffset(r.m)
	foreign, wanted := slices.Clone(r.x.Tensors), map[string]bool{}
	for i := range foreign {
		name := foreign[i].Name
		if i < r.x.own { // others pass through under their names
			name = r.x.named(name)
		}
		n, ok := r.by[name]
		if !ok || r.coded(name) {
			continue
		}
		was := foreign[i]
		if n.Scheme != was.Scheme || !slices.Equal(n.Shape, was.Shape) {
			return formats.Errorf(r.file, name, "%s of shape %v, not %s of %v", n.Scheme, n.Shape, was.Scheme, was.Shape)
		}
		graphs := of[was.Name]
		if graphs == nil {
			return formats.Errorf(r.file, name, "passes through %s, or is numbers of its graph: only tensors of the graph can be replaced", r.m.Path)
		}
		n.Name = was.Name
		if offset != 0 && isOffset(n.Name) {
			var err error
			if n, err = addConstant(n, offset); err != nil {
				return err
			}
		}
		foreign[i], r.used[name] = n, true
		for _, g := range graphs {
			wanted[g] = true
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	bound, _, err := checkpoint.Bind(r.file, r.m.Graph, a.HFWithin(r.x.around), foreign)
	if err != nil {
		return err
	}
	for name := range wanted {
		if out[name], err = scheme.Cast(bound[name], schemeOf(r.m.Tensor(name))); err != nil {
			return err
		}
	}
	return nil
}

func schemeOf(t formats.Tensor) *scheme.Scheme {
	s, _ := scheme.ByName(t.Scheme)
	return s
}

func (r *replacer) coded(name string) bool {
	return slices.ContainsFunc(r.c.Weights, func(w codedWeight) bool { return slices.Contains(w.Names, name) })
}
