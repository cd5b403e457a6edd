package export

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/arch"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/hf"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
)

// HF returns the model as a Hugging Face directory: tensors under
// transformers' names, in their own element type or, where they are
// quantized, expanded to dtype (f32, f16 or bf16). A model that came from
// such a directory gets its files back as they were, but for the entries of
// config.json that speak of quantization and element type; for one from GGUF
// they are written anew.
//
// What config.json cannot say is an [formats.UnsupportedError]: it is read
// back, and the graph it makes is compared with the model's.
func HF(m *model.Model, dtype *scheme.Scheme) (*Model, error) {
	a, ok := arch.ByName(m.Graph.Arch)
	if !ok {
		return nil, arch.Unknown(m.Path, m.Graph.Arch)
	}
	x, err := asHF(m, a, dtype, func(t formats.Tensor) (formats.Tensor, error) { return scheme.Cast(t, dtype) })
	if err != nil {
		return nil, err
	}
	x.rename()
	return x, nil
}

// asHF is HF with what is done to tensors that are not plain, and before names are those
// within a multimodal model.
func asHF(m *model.Model, a *arch.Architecture, dtype *scheme.Scheme, cast func(formats.Tensor) (formats.Tensor, error)) (*Model, error) {
	expand := func(t formats.Tensor) (formats.Tensor, error) {
		if isCoded(&t) {
			return cast(t)
		}
		return t, nil
	}
	around, err := nestedIn(m)
	if err != nil {
		return nil, err
	}
	tensors, err := unbind(m, a.HFWithin(around), dtype, expand)
	if err != nil {
		return nil, err
	}
	offset := a.Offset() - normOffset(m)
	x := &Model{own: len(tensors), around: around}
	for _, t := range tensors {
		if offset != 0 && isOffset(t.Name) {
			if t, err = addConstant(t, -offset); err != nil {
				return nil, err
			}
		}
		x.Tensors = append(x.Tensors, t)
	}
	for _, n := range a.Numbers(m.Graph) {
		x.Tensors = append(x.Tensors, floats(n.Tensor, n.Shape, *n.Value))
	}
	for _, t := range m.Passthrough {
		if t, err = expand(t); err != nil {
			return nil, err
		}
		x.Tensors = append(x.Tensors, t)
	}
	if x.Files, err = hfFiles(m, a, dtype); err != nil {
		return nil, err
	}
	if err := checkHF(m, a, x); err != nil {
		return nil, err
	}
	return x, nil
}

// named is the directory's name of a tensor of the graph. By other names transformers
// would fill those of multimodal models with random numbers, and warn.
func (x *Model) named(name string) string {
	if x.around == "" {
		return name
	}
	return arch.NameWithin(x.around, name)
}

func (x *Model) rename() {
	for i := range x.own {
		x.Tensors[i].Name = x.named(x.Tensors[i].Name)
	}
}

// nestedIn returns the type of the multimodal model whose configuration holds the
// graph's, "" where it lies in none.
func nestedIn(m *model.Model) (string, error) {
	p, ok := m.File("config.json")
	if !ok {
		return "", nil
	}
	c, err := hf.ParseConfig("config.json", p)
	if err != nil {
		return "", err
	}
	if _, nested := c.Sub("text_config"); !nested {
		return "", nil
	}
	return c.String("model_type")
}

// hfFiles returns the directory's small files.
func hfFiles(m *model.Model, a *arch.Architecture, dtype *scheme.Scheme) ([]model.File, error) {
	if p, ok := m.File("config.json"); ok {
		files := slices.DeleteFunc(slices.Clone(m.Files), func(f model.File) bool { return strings.HasPrefix(f.Name, "nstf/") }) // the package's own
		for i := range files {
			if files[i].Name == "config.json" {
				var err error
				if files[i].Data, err = plainConfig(m.Path, p, dtype, m.Quantized != ""); err != nil {
					return nil, err
				}
			}
		}
		return files, nil
	}
	config, err := json.MarshalIndent(fractions(a.Config(m.Graph, torchName(dtype))), "", "  ")
	if err != nil {
		return nil, err
	}
	tok, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
	files, err := tokenizerFiles(tok)
	if err != nil {
		return nil, err
	}
	return append([]model.File{{Name: "config.json", Data: append(config, '\n')}}, files...), nil
}

// fractions writes whole numbers of floating point as 5.0: classes of
// transformers refuse 5 where they want a fraction.
func fractions(v any) any {
	switch v := v.(type) {
	case float64:
		return fraction(v, 64)
	case float32:
		return fraction(float64(v), 32)
	case []float32:
		return each(v, func(f float32) any { return fraction(float64(f), 32) })
	case []float64:
		return each(v, func(f float64) any { return fraction(f, 64) })
	case []any:
		return each(v, fractions)
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = fractions(e)
		}
		return out
	}
	return v
}

func each[T any](list []T, as func(T) any) []any {
	out := make([]any, len(list))
	for i, e := range list {
		out[i] = as(e)
	}
	return out
}

func fraction(f float64, bits int) json.Number {
	s := strconv.FormatFloat(f, 'g', -1, bits)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return json.Number(s)
}

// plainConfig returns config.json without the entries that a cast makes
// untrue. One that needs no change stays as it is, byte for byte.
func plainConfig(path string, data []byte, dtype *scheme.Scheme, quantized bool) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var c map[string]any
	if err := dec.Decode(&c); err != nil {
		return nil, formats.Errorf(path, "config.json", "%v", err)
	}
	if !quantized && c["quantization_config"] == nil {
		return data, nil
	}
	delete(c, "quantization_config")
	for _, key := range []string{"dtype", "torch_dtype"} {
		if _, ok := c[key]; ok {
			c[key] = torchName(dtype)
		}
	}
	p, err := json.MarshalIndent(c, "", "  ")
	return append(p, '\n'), err
}

func torchName(s *scheme.Scheme) string {
	return map[string]string{"f32": "float32", "f16": "float16", "bf16": "bfloat16"}[s.Name]
}

// checkHF reads an export back and compares the graphs.
func checkHF(m *model.Model, a *arch.Architecture, x *Model) error {
	for _, f := range x.Files {
		if f.Name != "config.json" {
			continue
		}
		c, err := hf.ParseConfig(m.Path, f.Data)
		if err != nil {
			return err
		}
		g, back, err := arch.OfConfig(m.Path, c)
		if err != nil {
			return err
		}
		if err := checkpoint.Untie(m.Path, g, back.HF(), x.Tensors); err != nil {
			return err
		}
		if err := checkpoint.Numbers(m.Path, g, back, x.Tensors); err != nil {
			return err
		}
		if what := graph.Difference(m.Graph, g); what != "" {
			return formats.Unsupportedf(m.Path, "", "config.json of %q cannot say that %s", a.Name(), what)
		}
		_, _, err = checkpoint.Bind(m.Path, g, back.HF(), x.Tensors)
		return err
	}
	return formats.Errorf(m.Path, "config.json", "file is missing")
}
