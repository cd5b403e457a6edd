package model

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/hf"
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
func (m *Model) HF(dtype *scheme.Scheme) (*Export, error) {
	a, ok := byName(m.Graph.Arch)
	if !ok {
		return nil, unknownArchitecture(m.Path, m.Graph.Arch)
	}
	expand := func(t formats.Tensor) (formats.Tensor, error) {
		if s, ok := scheme.ByName(t.Scheme); ok && s.Plain() {
			return t, nil
		}
		return scheme.Cast(t, dtype)
	}
	tensors, err := m.unbind(a.hfLinks, expand)
	if err != nil {
		return nil, err
	}
	offset := a.offset - m.normOffset()
	x := &Export{}
	for _, t := range tensors {
		if offset != 0 && isNorm(t.Name) {
			if t, err = addConstant(t, -offset); err != nil {
				return nil, err
			}
		}
		x.Tensors = append(x.Tensors, t)
	}
	for _, t := range m.Passthrough {
		if t, err = expand(t); err != nil {
			return nil, err
		}
		x.Tensors = append(x.Tensors, t)
	}
	if x.Files, err = m.hfFiles(a, dtype); err != nil {
		return nil, err
	}
	return x, m.checkHF(a, x)
}

// hfFiles returns the directory's small files.
func (m *Model) hfFiles(a *architecture, dtype *scheme.Scheme) ([]File, error) {
	if p, ok := m.File("config.json"); ok {
		files := slices.DeleteFunc(slices.Clone(m.Files), func(f File) bool { return strings.HasPrefix(f.Name, "nstf/") }) // the package's own
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
	config, err := json.MarshalIndent(a.config(m.Graph, dtype), "", "  ")
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
	return append([]File{{"config.json", append(config, '\n')}}, files...), nil
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
func (m *Model) checkHF(a *architecture, x *Export) error {
	for _, f := range x.Files {
		if f.Name != "config.json" {
			continue
		}
		c, err := hf.ParseConfig(m.Path, f.Data)
		if err != nil {
			return err
		}
		g, back, err := graphOfConfig(m.Path, c)
		if err != nil {
			return err
		}
		if what := graphDifference(m.Graph, g); what != "" {
			return formats.Unsupportedf(m.Path, "", "config.json of %q cannot say that %s", a.name, what)
		}
		b := newBinder(m.Path, g, back.hfLinks, nil, x.Tensors)
		_, _, err = b.bind(x.Tensors)
		return err
	}
	return formats.Errorf(m.Path, "config.json", "file is missing")
}
