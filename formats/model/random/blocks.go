package random

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/arch"
	"github.com/nstf/nstf/formats/export"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/hf"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// A blockForm is what random blocks of a scheme need: what its scales, one behind
// the other, are for weights with a root mean square of 1 where all other bits are
// random.
type blockForm struct {
	scheme string
	scales []float32
}

// blockForms lists the schemes of Blocks. With codes and scales of independent bits,
// the root mean squares of d*sc*q - dmin*m (dmin = 7.5 d brings the mean to 0), of
// d*sc*(q-32), of d*q, of d*(q-8) and of d times e2m1's numbers are 256, 1367, 73.9,
// 4.64 and 2.926 times d.
func blockForms() []blockForm {
	return []blockForm{
		{"q4_k", []float32{1. / 256, 7.5 / 256}},
		{"q6_k", []float32{1. / 1367}},
		{"q8_0", []float32{1 / 73.9}},
		{"q4_0", []float32{1 / 4.64}},
		{"mxfp4", []float32{1 / 2.926}},
	}
}

// formOf returns the form of blocks of a scheme.
func formOf(name string) (blockForm, bool) {
	forms := blockForms()
	i := slices.IndexFunc(forms, func(f blockForm) bool { return f.scheme == name })
	if i < 0 {
		return blockForm{}, false
	}
	return forms[i], true
}

// BlockSchemes lists the schemes that Blocks writes.
func BlockSchemes() []string {
	var names []string
	for _, f := range blockForms() {
		names = append(names, f.scheme)
	}
	return names
}

// blocks is a tensor of coded weights that are computed where they are read: codes
// are random bits, and scales the same in every block. It makes gigabytes a second,
// where fitting codes to random weights takes minutes.
type blocks struct {
	seed  uint64
	size  int64 // bytes of all
	bytes int64 // of a block
	at    int
	scale []byte // from at on
}

// newBlocks makes blocks of that root mean square, or of the power of two's beside it
// where scales are none other.
func newBlocks(f blockForm, of *scheme.Scheme, seed uint64, size int64, rms float64) *blocks {
	b := &blocks{seed: seed, size: size, bytes: int64(of.BlockBytes), at: of.ScaleAt[0]}
	scales := slices.Clone(f.scales)
	for i := range scales {
		scales[i] *= float32(rms)
	}
	if of.Scale == scheme.ScaleE8M0 {
		b.scale = []byte{byte(127 + math.Round(math.Log2(float64(scales[0]))))}
		return b
	}
	b.scale = make([]byte, 2*len(scales))
	if err := tensor.FromFloat32(b.scale, scales, tensor.F16); err != nil {
		panic(err) // the lengths agree
	}
	return b
}

// ReadAt implements io.ReaderAt. Large reads are computed on all cores.
func (b *blocks) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= b.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), b.size-off))
	part := n/runtime.GOMAXPROCS(0) + int(b.bytes)
	var g sync.WaitGroup
	for at := 0; at < n; at += part {
		g.Go(func() { b.read(p[at:min(at+part, n)], off+int64(at)) })
	}
	g.Wait()
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (b *blocks) read(p []byte, off int64) {
	words := (b.bytes + 7) / 8
	block := make([]byte, 8*words)
	for len(p) > 0 {
		i, skip := off/b.bytes, off%b.bytes
		for w := range words {
			binary.LittleEndian.PutUint64(block[8*w:], mix(b.seed+uint64(i*words+w)))
		}
		copy(block[b.at:], b.scale)
		n := copy(p, block[skip:b.bytes])
		p, off = p[n:], off+int64(n)
	}
}

// Blocks returns the checkpoint of a shape as GGUF, with every matrix in a scheme of
// BlockSchemes, or, where its rows are no whole blocks, in the one that stands in for
// it there; "" is what files of the shape mostly hold. Names, keys and the tokenizer are
// made as those of any checkpoint are, of the model that the shape's config.json
// describes.
func Blocks(s Shape, name string, seed uint64) (*export.Model, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if _, ok := formOf(name); name != "" && !ok {
		return nil, fmt.Errorf("scheme %q is not one of %s", name, strings.Join(BlockSchemes(), ", "))
	}
	m, err := s.holes(seed)
	if err != nil {
		return nil, err
	}
	out, err := export.GGUF(m, nil)
	if err != nil {
		return nil, err
	}
	for i := range out.Tensors {
		if t := &out.Tensors[i]; t.Scheme == holeScheme {
			if *t, err = code(t, s.schemeOf(t.Name, name), seed); err != nil {
				return nil, err
			}
		}
	}
	most, _ := scheme.ByName(s.schemeOf("blk.0.ffn_down_exps.weight", name))
	for i := range out.Keys {
		if out.Keys[i].Key == "general.file_type" {
			out.Keys[i].Value = most.GGUFFileType()
		}
	}
	return out, nil
}

// schemeOf returns the scheme of a tensor by its name in GGUF where name was asked for:
// of gpt-oss the experts are published in mxfp4, and go with q8_0.
func (s *Shape) schemeOf(tensor, name string) string {
	switch {
	case name != "":
		return name
	case s.Published != gptOSS20B:
		return "q4_k"
	case strings.Contains(tensor, "_exps."):
		return "mxfp4"
	}
	return "q8_0"
}

// code returns a tensor of random blocks in another's place.
func code(t *formats.Tensor, name string, seed uint64) (formats.Tensor, error) {
	k := t.Shape[len(t.Shape)-1]
	of, _ := scheme.ByName(name)
	if smaller, ok := scheme.ByName(of.Smaller); ok && k%int64(of.Block) != 0 {
		of = smaller
	}
	size, err := of.Size(t.Shape, nil)
	if err != nil {
		return formats.Tensor{}, fmt.Errorf("%s: %w", t.Name, err)
	}
	f, _ := formOf(of.Name)
	b := newBlocks(f, of, streamSeed(seed, t.Name), size, unit(k))
	return scheme.New(t.Name, of, t.Shape, nil, tensor.NewBlob(b, 0, size))
}

// holeScheme is that of matrices whose weights nobody has made.
const holeScheme = "bf16"

// holes returns the model that a shape's config.json describes, whose vectors and
// routers have weights and whose other matrices are zeros.
func (s *Shape) holes(seed uint64) (*model.Model, error) {
	files := s.files(tensor.BF16)
	c, err := hf.ParseConfig(files[0].Name, files[0].Data)
	if err != nil {
		return nil, err
	}
	g, _, err := arch.OfConfig(files[0].Name, c)
	if err != nil {
		return nil, err
	}
	tensors := map[string]formats.Tensor{}
	small := maker{dtype: tensor.F32, offset: g.Norm.Offset, seed: seed, tails: tails()}
	matrix, _ := scheme.ByName(holeScheme)
	for _, w := range g.Weights() {
		if w.Role != graph.RoleNorm && w.Role != graph.RoleRouter {
			size, err := matrix.Size(w.Shape, nil)
			if err == nil {
				tensors[w.Name], err = scheme.New(w.Name, matrix, w.Shape, nil, tensor.NewBlob(zeros{}, 0, size))
			}
			if err != nil {
				return nil, err
			}
			continue
		}
		small.plain(&w)
		tensors[w.Name] = small.tensors[len(small.tensors)-1]
	}
	m := model.New(g, tensors)
	m.Path, m.Kind, m.Files = s.name(), model.KindHF, files
	return m, nil
}

// plain adds what no scheme codes, by its name in graphs.
func (m *maker) plain(w *graph.Weight) {
	n := int64(1)
	for _, d := range w.Shape {
		n *= d
	}
	x, mean, spread := m.weights(w.Name, n), float32(0), float32(0.1)
	switch name := w.Name; {
	case w.Role == graph.RoleRouter, strings.HasSuffix(name, ".conv.weight"):
		spread = float32(unit(w.Shape[len(w.Shape)-1]))
	case strings.HasSuffix(name, ".delta.decay"):
		mean = -2 // see maker.delta
	case strings.HasSuffix(name, ".delta.norm.weight"), strings.HasSuffix(name, ".dt_bias"):
		mean = 1
	case strings.HasSuffix(name, "norm.weight"), strings.HasSuffix(name, "_scale.weight"):
		mean = 1 - m.offset
	}
	x.columns, x.mean = []float32{spread}, mean
	m.add(w.Name, x, w.Shape...)
}

// zeros is the bytes of any range of a hole.
type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) {
	clear(p)
	return len(p), nil
}
