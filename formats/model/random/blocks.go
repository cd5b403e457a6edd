package random

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/export"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// A blockForm is what random blocks of a scheme need: what its half-precision
// scales, one behind the other, are for weights with a root mean square of 1 where
// all other bits are random.
type blockForm struct {
	scheme string
	scales []float32
}

// blockForms lists the schemes of Blocks. With codes and scales of independent bits,
// the root mean squares of d*sc*q - dmin*m (dmin = 7.5 d brings the mean to 0), of
// d*sc*(q-32), of d*q and of d*(q-8) are 256, 1367, 73.9 and 4.64 times d.
func blockForms() []blockForm {
	return []blockForm{
		{"q4_k", []float32{1. / 256, 7.5 / 256}},
		{"q6_k", []float32{1. / 1367}},
		{"q8_0", []float32{1 / 73.9}},
		{"q4_0", []float32{1 / 4.64}},
	}
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

// newBlocks makes blocks of that root mean square.
func newBlocks(f blockForm, of *scheme.Scheme, seed uint64, size int64, rms float64) *blocks {
	b := &blocks{seed: seed, size: size, bytes: int64(of.BlockBytes), at: of.ScaleAt[0], scale: make([]byte, 2*len(f.scales))}
	scales := slices.Clone(f.scales)
	for i := range scales {
		scales[i] *= float32(rms)
	}
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
// BlockSchemes. Names, keys and the tokenizer are made as those of any checkpoint are, from a
// directory in dir whose weights are a hole; close it when the export is written.
func Blocks(s Shape, name string, seed uint64, dir string) (*export.Model, io.Closer, error) {
	forms := blockForms()
	at := slices.IndexFunc(forms, func(f blockForm) bool { return f.scheme == name })
	if at < 0 {
		return nil, nil, fmt.Errorf("scheme %q is not one of %s", name, strings.Join(BlockSchemes(), ", "))
	}
	coded, _ := scheme.ByName(name)
	if of, out := int64(coded.Block), s.Heads*s.headDim(); s.Width%of != 0 || s.Inner%of != 0 || out%of != 0 || s.Delta.Heads*s.Delta.HeadDim%of != 0 {
		return nil, nil, fmt.Errorf("rows of %d, %d, %d and %d weights are not whole blocks of %d", s.Width, s.Inner, out, s.Delta.Heads*s.Delta.HeadDim, of)
	}
	x, err := Checkpoint(s, tensor.BF16, seed)
	if err != nil {
		return nil, nil, err
	}
	if err := hole(x, dir); err != nil {
		return nil, nil, err
	}
	m, err := checkpoint.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	out, err := export.GGUF(m, nil)
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	norms := &maker{dtype: tensor.F32, seed: seed, tails: tails()}
	for i := range out.Tensors {
		t := &out.Tensors[i]
		if len(t.Shape) == 1 || isConvolution(t.Name) {
			norms.plain(t.Name, t.Shape)
			*t = norms.tensors[len(norms.tensors)-1]
			continue
		}
		size, err := coded.Size(t.Shape, nil)
		if err == nil {
			b := newBlocks(forms[at], coded, streamSeed(seed, t.Name), size, 1/math.Sqrt(float64(t.Shape[len(t.Shape)-1])))
			*t, err = scheme.New(t.Name, coded, t.Shape, nil, tensor.NewBlob(b, 0, size))
		}
		if err != nil {
			m.Close()
			return nil, nil, err
		}
	}
	return out, m, nil
}

// isConvolution reports a delta net's in GGUF, which llama.cpp takes in float32 alone.
func isConvolution(name string) bool { return strings.Contains(name, ".ssm_conv1d.") }

// plain adds what no scheme codes, by its name in GGUF.
func (m *maker) plain(name string, shape []int64) {
	switch {
	case isConvolution(name):
		m.matrix(name, shape[0], shape[1], unit(shape[1]))
	case strings.HasSuffix(name, ".ssm_a"):
		m.vector(name, shape[0], float32(-math.Exp(-2))) // of maker.delta's A_log
	default:
		m.vector(name, shape[0], 1)
	}
}

// hole writes a checkpoint's small files and, of its weights, only the header.
func hole(x *export.Model, dir string) error {
	for _, f := range x.Files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o666); err != nil {
			return err
		}
	}
	header, at := map[string]any{}, int64(0)
	for _, t := range x.Tensors {
		n := t.Size()
		header[t.Name] = map[string]any{"dtype": "BF16", "shape": t.Shape, "data_offsets": []int64{at, at + n}}
		at += n
	}
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "model.safetensors")
	data := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	if err := os.WriteFile(path, data, 0o666); err != nil {
		return err
	}
	return os.Truncate(path, int64(len(data))+at)
}
