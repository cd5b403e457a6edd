package inspect

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/hf"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/safetensors"
)

// A container is a file of tensors, opened without knowing what they mean.
type container struct {
	kind    model.Kind
	arch    string
	tensors []formats.Tensor
	parts   []string
	pkg     *nstf.Package // or nil
	close   io.Closer
}

// openRaw describes a container that is no model for the reason why, or
// returns why where that is all there is to say.
func openRaw(path string, why error) (*Report, error) {
	c, err := openContainer(path)
	if err != nil {
		return nil, why
	}
	defer c.close.Close()
	note, ok := rawReason(path, why)
	if !ok && c.kind == model.KindGGUF && len(c.tensors) == 0 {
		note, ok = "a vocabulary without tensors", true
	}
	if !ok {
		return nil, why
	}
	r := &Report{Path: path, Kind: string(c.kind), Architecture: c.arch, Note: note, Files: []File{}}
	if c.pkg != nil {
		r.describe(c.pkg)
		return r, r.sum(c.parts)
	}
	for _, t := range c.tensors {
		r.tensors = append(r.tensors, roleTensor{Tensor: t, role: graph.RoleOther})
	}
	return r, r.sum(c.parts)
}

// describe adds a package that is no model to this program: by its graph, where that is
// known and a scheme is not.
func (r *Report) describe(p *nstf.Package) {
	r.readPackage(p)
	if r.Unknown = p.Unknown(); len(r.Unknown) > 0 {
		r.Note = "only a newer release decodes " + strings.Join(r.Unknown, ", ")
	}
	roles := map[string]graph.Role{}
	if g, err := graph.Parse(p.Model()); err == nil {
		r.Architecture, r.Known, r.Shape = g.Arch, true, shape(g)
		for _, w := range g.Weights() {
			roles[w.Name] = w.Role
		}
	}
	for _, item := range p.Tensors() {
		t := roleTensor{Tensor: item.Tensor, role: graph.RoleOther, unknown: p.UnknownOf(item.Name)}
		if role, ok := roles[item.Name]; ok {
			t.role = role
		}
		r.tensors = append(r.tensors, t)
	}
}

func openContainer(path string) (*container, error) {
	info, err := formats.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return openDir(path)
	}
	magic, err := formats.ReadHead(path, 8)
	if err != nil {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte("GGUF")):
		return openGGUF(path)
	case string(magic) == nstf.Magic:
		return openPackage(path)
	}
	return openSafetensors(path)
}

// openDir opens the tensors of a Hugging Face directory: an index, else every
// safetensors file by itself is not one model, so there must be one.
func openDir(dir string) (*container, error) {
	for _, pattern := range []string{"*.safetensors.index.json", "*.safetensors"} {
		found, err := filepath.Glob(filepath.Join(escape(dir), pattern))
		if err == nil && len(found) == 1 {
			return openSafetensors(found[0])
		}
	}
	return nil, formats.Errorf(dir, "", "no safetensors file or index, or several")
}

// escape quotes what Glob would take for a pattern.
func escape(dir string) string {
	return strings.NewReplacer(`*`, `[*]`, `?`, `[?]`, `[`, `[[]`).Replace(dir)
}

func openSafetensors(path string) (*container, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	arch := modelType(filepath.Dir(path))
	if arch == "" {
		arch = f.Metadata()["architecture"]
	}
	return &container{kind: model.KindHF, arch: arch, tensors: f.Tensors(), parts: f.Parts(), close: f}, nil
}

// modelType returns what the config.json of a directory calls the model, ""
// where there is none that says so: the tensors are shown without a name then.
func modelType(dir string) string {
	path := filepath.Join(dir, "config.json")
	p, err := formats.ReadFile(path, hf.MaxSmall("config.json"), "a config.json")
	if err != nil {
		return ""
	}
	c, err := hf.ParseConfig(path, p)
	if err != nil {
		return ""
	}
	kind, _ := c.StringOr("model_type", "")
	return kind
}

func openGGUF(path string) (*container, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	c := &container{kind: model.KindGGUF, tensors: f.Tensors(), parts: f.Parts(), close: f}
	if f.Has("general.architecture") {
		if c.arch, err = f.String("general.architecture"); err != nil {
			f.Close()
			return nil, err
		}
	}
	return c, nil
}

func openPackage(path string) (*container, error) {
	p, err := nstf.OpenStored(path)
	if err != nil {
		return nil, err
	}
	return &container{kind: model.KindNSTF, parts: []string{path}, pkg: p, close: p}, nil
}
