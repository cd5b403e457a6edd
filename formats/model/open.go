package model

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/gguf"
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
func Open(path string) (*Model, error) {
	kind, magic, err := container(path)
	if err != nil {
		return nil, err
	}
	switch kind {
	case KindHF:
		return openHF(path)
	case KindGGUF:
		return openGGUF(path)
	case KindNSTF:
		return openNSTF(path)
	}
	return nil, formats.ErrorAt(path, "", 0, "not a model: starts with %q, which is neither GGUF, NSTF nor the name of a safetensors file", magic)
}

// container tells by its first bytes, or its name, what a path leads to; "" is
// something else. A file cut inside its magic is still taken for what it was.
func container(path string) (Kind, []byte, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, &formats.FormatError{File: path, Offset: -1, Reason: "there is no such file or directory"}
	}
	if err != nil {
		return "", nil, err
	}
	if info.IsDir() {
		return KindHF, nil, nil
	}
	magic, err := sniff(path)
	if err != nil {
		return "", nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte("GGUF")), bytes.HasPrefix(magic, []byte("FUGG")):
		return KindGGUF, magic, nil
	case strings.HasPrefix(nstf.Magic, string(magic)) && len(magic) > 0, strings.HasSuffix(path, ".nstf"):
		return KindNSTF, magic, nil
	case strings.HasSuffix(path, ".safetensors"), strings.HasSuffix(path, ".safetensors.index.json"):
		return KindHF, magic, nil
	}
	return "", magic, nil
}

// folder returns the directory that a path names or lies in.
func folder(path string) string {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return filepath.Dir(path)
	}
	return path
}

// sniff returns the first bytes of a file.
func sniff(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := make([]byte, 8)
	n, err := io.ReadFull(f, p)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return p[:n], err
}

// MetadataFile is the name under which a GGUF's metadata travels: a GGUF file
// of its own, without tensors.
const MetadataFile = "metadata.gguf"

func openGGUF(path string) (*Model, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	m, err := fromGGUF(path, f, f.Tensors())
	if err != nil {
		f.Close()
		return nil, err
	}
	return m, nil
}

func fromGGUF(path string, f *gguf.File, tensors []formats.Tensor) (*Model, error) {
	name, err := f.String("general.architecture")
	if err != nil {
		return nil, err
	}
	a, err := byGGUF(path, name)
	if err != nil {
		return nil, err
	}
	if len(tensors) == 0 {
		return nil, formats.Errorf(path, "", "no tensors: a vocabulary alone is no model")
	}
	k := newKeys(f, name, tensors)
	d := a.fromGGUF(k)
	if k.err != nil {
		return nil, k.err
	}
	g, err := d.graph()
	if err != nil {
		return nil, formats.Errorf(path, name, "%v", err)
	}
	a, _ = byName(g.Arch) // GGUF's llama may have been a mixtral
	m := &Model{Path: path, Kind: KindGGUF, Graph: g, Quantized: quantizedAs(tensors), close: []io.Closer{f}}
	b := newBinder(path, g, a.ggufLinks, nil, tensors)
	for _, factors := range []string{"rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"} {
		b.used[factors] = true // they are numbers of the graph
	}
	if m.tensors, m.Passthrough, err = b.bind(tensors); err != nil {
		return nil, err
	}
	if err := m.nothingOfTheGraph(a); err != nil {
		return nil, err
	}
	meta, err := f.Metadata()
	if err != nil {
		return nil, err
	}
	m.Files = []File{{MetadataFile, meta}}
	return m, nil
}

// nothingOfTheGraph refuses a GGUF that has a tensor left over where the
// architecture may have one: a bias, a head's norm, a second copy of a fused
// matrix. Computing without it would be another model, and llama.cpp loads no
// file of which it leaves a tensor out.
func (m *Model) nothingOfTheGraph(a *architecture) error {
	known := map[string]bool{}
	for i := range a.ggufLinks {
		known[a.ggufLinks[i].foreign] = true
	}
	for _, t := range m.Passthrough {
		pattern, block, _ := split(t.Name)
		if known[pattern] && block < len(m.Graph.Blocks) {
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

// base returns a path's last element without the suffixes of model files.
func base(path string) string {
	b := filepath.Base(path)
	for _, s := range []string{".gguf", ".nstf", ".safetensors"} {
		b = strings.TrimSuffix(b, s)
	}
	return b
}
