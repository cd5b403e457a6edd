package checkpoint

import (
	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/arch"
	"github.com/nstf/nstf/formats/hf"
	"github.com/nstf/nstf/formats/model"
)

func openHF(remote formats.Remote, path string) (*model.Model, error) {
	d, err := hf.OpenFrom(remote, folder(remote, path))
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

func fromHF(path string, d *hf.Dir) (*model.Model, error) {
	g, a, err := arch.OfConfig(path, d.Config())
	if err != nil {
		return nil, err
	}
	tensors := d.Tensors()
	b := newBinder(path, g, a.HF(), spellings(), tensors)
	if err := b.untie(); err != nil {
		return nil, err
	}
	if err := b.numbers(a); err != nil {
		return nil, err
	}
	bound, rest, err := b.bind(tensors)
	if err != nil {
		return nil, err
	}
	m := model.New(g, bound, d)
	m.Path, m.Kind, m.Quantized, m.Passthrough = path, model.KindHF, d.Method(), rest
	for _, name := range d.Files() {
		data, _ := d.File(name)
		m.Files = append(m.Files, model.File{Name: name, Data: data})
	}
	return m, nil
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
