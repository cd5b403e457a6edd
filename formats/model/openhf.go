package model

import (
	"io"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/hf"
)

func openHF(path string) (*Model, error) {
	d, err := hf.Open(folder(path))
	if err != nil {
		return nil, err
	}
	m, err := fromHF(path, d)
	if err != nil {
		d.Close()
		return nil, err
	}
	return m, nil
}

func fromHF(path string, d *hf.Dir) (*Model, error) {
	g, a, err := graphOfConfig(path, d.Config())
	if err != nil {
		return nil, err
	}
	m := &Model{Path: path, Kind: KindHF, Graph: g, Quantized: d.Method(), close: []io.Closer{d}}
	tensors := d.Tensors()
	b := newBinder(path, g, a.hfLinks, spellings(), tensors)
	if m.tensors, m.Passthrough, err = b.bind(tensors); err != nil {
		return nil, err
	}
	for _, name := range d.Files() {
		data, _ := d.File(name)
		m.Files = append(m.Files, File{name, data})
	}
	return m, nil
}

// graphOfConfig builds the graph that a config.json describes. A multimodal
// configuration holds the language model's under text_config.
func graphOfConfig(path string, c *hf.Config) (*Graph, *architecture, error) {
	kind, err := c.String("model_type")
	if err != nil {
		return nil, nil, err
	}
	a, err := byHFType(path, kind)
	if err != nil {
		return nil, nil, err
	}
	if text, ok := c.Sub("text_config"); ok {
		c = text
	}
	s := &settings{c: c}
	d := a.fromHF(s)
	if s.err != nil {
		return nil, nil, s.err
	}
	g, err := d.graph()
	if err != nil {
		return nil, nil, formats.Errorf(c.File(), kind, "%v", err)
	}
	return g, a, nil
}

// spellings are the prefixes under which checkpoints keep the same tensors: a
// bare decoder without its head's wrapper, or the language model inside a
// multimodal one, as before and since transformers 4.52.
func spellings() []prefix {
	out := []prefix{{"transformer.", ""}, {"gpt_neox.", ""}, {"model.", ""}}
	for _, inside := range []string{"language_model.", "model.language_model."} {
		out = append(out, prefix{"model.", inside + "model."}, prefix{"model.", inside}, prefix{"lm_head.", inside + "lm_head."})
	}
	return out
}
