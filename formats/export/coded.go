package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/arch"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// A codedModel is quantization_config: docs/python.md.
type codedModel struct {
	Method  string        `json:"quant_method"`
	Version int           `json:"version"`
	Tensors []codedTensor `json:"tensors"` // by their numbers in names of parts
	Weights []codedWeight `json:"weights"`
}

// A codedTensor is a tensor of the graph.
type codedTensor struct {
	codedMatrix
	Form    string        `json:"form,omitempty"`
	Factors []codedMatrix `json:"factors,omitempty"`
}

type codedMatrix struct {
	Name   string           `json:"name"`
	Shape  []int64          `json:"shape"`
	Scheme string           `json:"scheme"`
	Params map[string]int64 `json:"params,omitempty"`
	Parts  []codedBytes     `json:"parts,omitempty"`
}

type codedBytes struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`
	Size  int64   `json:"size"`
}

// A codedWeight says how a tensor of a Hugging Face checkpoint follows from some of the
// graph's, in the order of the fields: rows of the parts one after the other, or in
// turns; then rows and columns picked; then the last two dimensions turned.
type codedWeight struct {
	Names       []string   `json:"names"` // one for each expert, where it keeps them apart
	Of          []int      `json:"of"`
	Alternating bool       `json:"alternating,omitempty"`
	Latent      bool       `json:"latent,omitempty"` // of stacks, the first turned, head by head
	Rows        [][2]int64 `json:"rows,omitempty"`   // runs: first, count
	Columns     [][2]int64 `json:"columns,omitempty"`
	Transposed  bool       `json:"transposed,omitempty"`
	Shape       []int64    `json:"shape,omitempty"`
}

// codedPart names a part among the tensors of the directory.
func codedPart(i int, t *formats.Tensor, part string) string {
	if t.Form == "" {
		part = "w." + part
	}
	return fmt.Sprintf("nstf.%d.%s", i, part)
}

// runs are an order's runs of successive numbers, nil of none.
func runs(order []int64) [][2]int64 {
	var out [][2]int64
	for _, i := range order {
		if n := len(out); n > 0 && out[n-1][0]+out[n-1][1] == i {
			out[n-1][1]++
		} else {
			out = append(out, [2]int64{i, 1})
		}
	}
	return out
}

// Coded returns the model as a Hugging Face directory whose quantized and factored
// tensors keep their bytes, for the quantizer that the Python module gives to
// transformers. Each part of such a tensor is a tensor of bytes, nstf.INDEX.FACTOR.PART, with w for the factor of a dense one;
// quantization_config in config.json says what they are and which of transformers'
// tensors they make (docs/python.md). All else is as [HF] has it.
func Coded(m *model.Model) (*Model, error) {
	a, ok := arch.ByName(m.Graph.Arch)
	if !ok {
		return nil, arch.Unknown(m.Path, m.Graph.Arch)
	}
	x, c, _, err := coded(m, a)
	if err != nil {
		return nil, err
	}
	x.rename()
	if len(c.Tensors) == 0 {
		return x, nil
	}
	return x, x.keep(m, c)
}

// coded returns the directory under the graph's own names with placeholders for coded
// tensors, what these are, with the directory's names, and which tensors of the graph
// its others are made of.
func coded(m *model.Model, a *arch.Architecture) (*Model, *codedModel, map[string][]string, error) {
	dtype, _ := scheme.ByName("f32")
	x, err := asHF(m, a, dtype, func(t formats.Tensor) (formats.Tensor, error) {
		n, k := t.Rows()
		zeros := tensor.Computed(4*n*k, func() ([]byte, error) { return make([]byte, 4*n*k), nil })
		return scheme.New(t.Name, dtype, t.Shape, nil, zeros)
	})
	if err != nil {
		return nil, nil, nil, err
	}
	u := &unbinder{m: m, links: arch.Placed(a.HFWithin(x.around), m.Graph), done: map[string]bool{}, expand: dtype}
	u.coded, u.of = &codedModel{Method: "nstf", Version: 1}, map[string][]string{}
	u.cast = func(t formats.Tensor) (formats.Tensor, error) { return t, nil }
	if err := u.all(); err != nil {
		return nil, nil, nil, err
	}
	for _, w := range u.coded.Weights {
		for j, name := range w.Names {
			w.Names[j] = x.named(name)
		}
	}
	return x, u.coded, u.of, nil
}

// keep puts the bytes of coded tensors in the place of what they decode to.
func (x *Model) keep(m *model.Model, c *codedModel) error {
	made := map[string]bool{}
	for _, w := range c.Weights {
		for _, name := range w.Names {
			made[name] = true
		}
	}
	x.Tensors = slices.DeleteFunc(x.Tensors, func(t formats.Tensor) bool { return made[t.Name] })
	bytesOf, _ := scheme.ByName("u8")
	for i, e := range c.Tensors {
		t := m.Tensor(e.Name)
		for _, p := range t.Parts {
			part, err := scheme.New(codedPart(i, &t, p.Name), bytesOf, []int64{p.Data.Len()}, nil, p.Data)
			if err != nil {
				return err
			}
			x.Tensors = append(x.Tensors, part)
		}
	}
	for i := range x.Files {
		if x.Files[i].Name == "config.json" {
			var err error
			x.Files[i].Data, err = withCoded(m.Path, x.Files[i].Data, c)
			return err
		}
	}
	return formats.Errorf(m.Path, "config.json", "file is missing")
}

// withCoded adds quantization_config to a configuration.
func withCoded(path string, config []byte, c *codedModel) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(config))
	dec.UseNumber()
	var all map[string]any
	if err := dec.Decode(&all); err != nil {
		return nil, formats.Errorf(path, "config.json", "%v", err)
	}
	all["quantization_config"] = c
	out, err := json.Marshal(all)
	return append(out, '\n'), err
}

// isCoded reports whether a tensor is more than plain numbers.
func isCoded(t *formats.Tensor) bool {
	s, ok := scheme.ByName(t.Scheme)
	return t.Form != "" || !ok || !s.Plain()
}

// record says what a foreign tensor is made of, instead of making it.
func (u *unbinder) record(l *arch.Link, parts []formats.Tensor, block int, suffix string) error {
	if l.Written != nil && l.Written(u.m.Graph, block) != nil {
		return formats.Unsupportedf(u.m.Path, parts[0].Name, "codes of %s, whose numbers transformers keeps otherwise", parts[0].Scheme)
	}
	w := codedWeight{Alternating: l.Alternating, Transposed: l.Transposed && suffix == ".weight"}
	for i := range parts {
		w.Of = append(w.Of, u.index(&parts[i]))
	}
	if l.Latent {
		a := l.LatentOf(u.m.Graph, block)
		w.Latent = true
		w.Shape = []int64{a.Heads * (a.NopeDim + a.ValueDim), a.Rank}
	}
	if l.Order != nil {
		w.Rows = runs(l.Order(u.m.Graph, block))
	}
	if l.Columns != nil && suffix == ".weight" {
		w.Columns = runs(l.Columns(u.m.Graph, block))
	}
	first := parts[0].Shape
	switch {
	case l.Among != nil:
		n := int64(len(l.Among))
		w.Shape = []int64{n, first[0] / n, first[1]}
		for i := range l.Among {
			w.Names = append(w.Names, l.Name(block, i, suffix))
		}
	case l.PerExpert():
		for e := range first[0] {
			w.Names = append(w.Names, l.Name(block, int(e), suffix))
		}
	default:
		w.Names = []string{l.Name(block, 0, suffix)}
	}
	if l.Shape != nil {
		w.Shape = l.Shape(u.m.Graph, block)
	}
	u.coded.Weights = append(u.coded.Weights, w)
	return nil
}

// index returns the number of a tensor among the coded ones, which it joins.
func (u *unbinder) index(t *formats.Tensor) int {
	c := u.coded
	if i := slices.IndexFunc(c.Tensors, func(e codedTensor) bool { return e.Name == t.Name }); i >= 0 {
		return i
	}
	e := codedTensor{codedMatrix: matrixOf(t), Form: t.Form}
	for i := range t.Factors {
		e.Factors = append(e.Factors, matrixOf(&t.Factors[i]))
	}
	c.Tensors = append(c.Tensors, e)
	return len(c.Tensors) - 1
}

func matrixOf(t *formats.Tensor) codedMatrix {
	m := codedMatrix{Name: t.Name, Shape: t.Shape, Scheme: t.Scheme, Params: t.Params}
	if t.Form == "" {
		for _, p := range t.Parts {
			m.Parts = append(m.Parts, codedBytes{Name: p.Name, DType: p.DType.String(), Shape: p.Shape, Size: p.Data.Len()})
		}
	}
	return m
}
