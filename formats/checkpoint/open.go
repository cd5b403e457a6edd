// Package checkpoint reads a model out of the three containers: which tensor of
// a file is which of the graph's, by the names and orders that package arch
// has for its architecture. Splitting, stacking and reordering move ranges of
// bytes; no number is read.
package checkpoint

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/arch"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/scheme"
)

// Open reads a model, whatever it lies in: a Hugging Face directory (or a
// .safetensors or .index.json file in one), a GGUF file (or any part of a
// split one), or a .nstf package. Tensors are not read; every name, shape and
// size is checked.
//
// Errors are those of the operating system, [formats.FormatError] and
// [formats.UnsupportedError].
func Open(path string) (*model.Model, error) { return OpenFrom(nil, path) }

// OpenFrom is [Open] where some of the model's files may not be on the disk.
func OpenFrom(remote formats.Remote, path string) (*model.Model, error) {
	kind, magic, err := container(remote, path)
	if err != nil {
		return nil, err
	}
	var m *model.Model
	switch kind {
	case model.KindHF:
		m, err = openHF(remote, path)
	case model.KindGGUF:
		m, err = openGGUF(remote, path)
	case model.KindNSTF:
		m, err = openNSTF(remote, path)
	}
	if m != nil || err != nil {
		if m != nil {
			m.Remote = remote
		}
		return m, err
	}
	return nil, formats.ErrorAt(path, "", 0, "not a model: starts with %q, which is neither GGUF, NSTF nor the name of a safetensors file", magic)
}

// Container tells by its first bytes, or its name, what a path leads to, without reading
// more; "" is something else. Errors are those of [Open] for a path that leads nowhere.
func Container(path string) (model.Kind, error) {
	kind, _, err := container(nil, path)
	return kind, err
}

// container tells by its first bytes, or its name, what a path leads to; "" is
// something else. A file cut inside its magic is still taken for what it was.
func container(remote formats.Remote, path string) (model.Kind, []byte, error) {
	if _, ok := remote[path]; !ok {
		info, err := formats.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil, &formats.FormatError{File: path, Offset: -1, Reason: "there is no such file or directory"}
		}
		if err != nil {
			return "", nil, err
		}
		if info.IsDir() {
			return model.KindHF, nil, nil
		}
	}
	magic, err := remote.ReadHead(path, 8)
	if err != nil {
		return "", nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte("GGUF")), bytes.HasPrefix(magic, []byte("FUGG")):
		return model.KindGGUF, magic, nil
	case strings.HasPrefix(nstf.Magic, string(magic)) && len(magic) > 0, strings.HasSuffix(path, ".nstf"):
		return model.KindNSTF, magic, nil
	case strings.HasSuffix(path, ".safetensors"), strings.HasSuffix(path, ".safetensors.index.json"):
		return model.KindHF, magic, nil
	}
	return "", magic, nil
}

// folder returns the directory that a path names or lies in.
func folder(remote formats.Remote, path string) string {
	if _, ok := remote[path]; ok {
		return filepath.Dir(path)
	}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return filepath.Dir(path)
	}
	return path
}

func openGGUF(remote formats.Remote, path string) (*model.Model, error) {
	f, err := gguf.OpenFrom(remote, path)
	if err != nil {
		return nil, err
	}
	m, err := FromGGUF(path, f, f.Tensors())
	if err != nil {
		f.Close()
		return nil, err
	}
	return m, nil
}

// FromGGUF makes a model of a parsed GGUF and its tensors, which need not be
// those of the file. Errors name path.
func FromGGUF(path string, f *gguf.File, tensors []formats.Tensor) (*model.Model, error) {
	g, a, err := arch.OfGGUF(path, f, tensors)
	if err != nil {
		return nil, err
	}
	quantized := quantizedAs(tensors)
	own := func(name string) bool {
		pattern, _, _ := arch.Split(name)
		return slices.ContainsFunc(a.GGUF(), func(l arch.Link) bool { return l.Bare && l.Foreign == pattern })
	}
	if tensors, err = joinFactors(path, tensors, own); err != nil {
		return nil, err
	}
	b := newBinder(path, g, a.GGUF(), nil, tensors)
	for _, factors := range arch.RopeFactors {
		b.used[factors] = true // they are numbers of the graph
	}
	bound, rest, err := b.bind(tensors)
	if err != nil {
		return nil, err
	}
	m := model.New(g, bound, f)
	m.Path, m.Kind, m.Quantized, m.Passthrough = path, model.KindGGUF, quantized, rest
	if err := nothingOfTheGraph(m, a); err != nil {
		return nil, err
	}
	meta, err := f.Metadata()
	if err != nil {
		return nil, err
	}
	m.Files = []model.File{{Name: model.MetadataFile, Data: meta}}
	return m, nil
}

// nothingOfTheGraph refuses a GGUF that has a tensor left over where the
// architecture may have one: a bias, a head's norm, a second copy of a fused
// matrix. Computing without it would be another model, and llama.cpp loads no
// file of which it leaves a tensor out.
func nothingOfTheGraph(m *model.Model, a *arch.Architecture) error {
	known := map[string]bool{}
	for _, l := range a.GGUF() {
		known[l.Foreign] = true
	}
	for _, t := range m.Passthrough {
		pattern, block, _ := arch.Split(t.Name)
		if known[pattern] && block < len(m.Graph.Blocks) && !a.Unused(m.Graph, pattern, block) {
			return formats.Unsupportedf(m.Path, t.Name, "a tensor that %q does not use there", m.Graph.Arch)
		}
	}
	return nil
}

// quantizedAs names the scheme that holds most weights, "" where that is a
// plain element type.
func quantizedAs(tensors []formats.Tensor) string {
	size := map[string]int64{}
	best := ""
	for _, t := range tensors {
		size[t.Scheme] += t.Elements()
		if best == "" || size[t.Scheme] > size[best] {
			best = t.Scheme
		}
	}
	if s, ok := scheme.ByName(best); ok && s.Block <= 1 {
		return ""
	}
	return best
}
