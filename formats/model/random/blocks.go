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
	"sync"

	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// blocks is a tensor of q4_k blocks that are computed where they are read: codes
// and scales are random bits, d and dmin the same in every block, so that the
// weights have a mean of 0 and a root mean square of rms. It makes gigabytes a
// second, where fitting codes to random weights takes minutes.
type blocks struct {
	seed  uint64
	size  int64 // bytes
	scale [4]byte
}

const blockBytes = 144

// newBlocks makes blocks of that root mean square. A weight is d*sc*q - dmin*m
// with sc and m of 0 to 63 and q of 0 to 15: dmin = 7.5 d brings the mean to 0,
// and then the root mean square of independent bits is 256 d.
func newBlocks(seed uint64, size int64, rms float64) *blocks {
	b := &blocks{seed: seed, size: size}
	d := float32(rms / 256)
	half := make([]byte, 4)
	if err := tensor.FromFloat32(half, []float32{d, 7.5 * d}, tensor.F16); err != nil {
		panic(err) // the lengths agree
	}
	copy(b.scale[:], half)
	return b
}

// ReadAt implements io.ReaderAt. Large reads are computed on all cores.
func (b *blocks) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= b.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), b.size-off))
	part := n/runtime.GOMAXPROCS(0) + blockBytes
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
	var block [blockBytes]byte
	for len(p) > 0 {
		i, skip := off/blockBytes, off%blockBytes
		for w := range blockBytes / 8 {
			binary.LittleEndian.PutUint64(block[8*w:], mix(b.seed+uint64(i)*(blockBytes/8)+uint64(w)))
		}
		copy(block[:], b.scale[:])
		n := copy(p, block[skip:])
		p, off = p[n:], off+int64(n)
	}
}

// Blocks returns the checkpoint of a shape as GGUF, with every matrix in q4_k.
// Names, keys and the tokenizer are made as those of any checkpoint are, from a
// directory in dir whose weights are a hole; close it when the export is written.
func Blocks(s Shape, seed uint64, dir string) (*model.Export, io.Closer, error) {
	if s.Width%256 != 0 || s.Inner%256 != 0 {
		return nil, nil, fmt.Errorf("rows of %d and %d weights are not whole blocks of 256", s.Width, s.Inner)
	}
	x, err := Checkpoint(s, tensor.BF16, seed)
	if err != nil {
		return nil, nil, err
	}
	if err := hole(x, dir); err != nil {
		return nil, nil, err
	}
	m, err := model.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	out, err := m.GGUF(nil)
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	norms := &maker{dtype: tensor.F32, seed: seed, tails: tails()}
	q4k, _ := scheme.ByName("q4_k")
	for i := range out.Tensors {
		t := &out.Tensors[i]
		if len(t.Shape) == 1 {
			norms.norm(t.Name, t.Shape[0])
			*t = norms.tensors[len(norms.tensors)-1]
			continue
		}
		size, err := q4k.Size(t.Shape, nil)
		if err == nil {
			b := newBlocks(streamSeed(seed, t.Name), size, 1/math.Sqrt(float64(t.Shape[1])))
			*t, err = scheme.New(t.Name, q4k, t.Shape, nil, tensor.NewBlob(b, 0, size))
		}
		if err != nil {
			m.Close()
			return nil, nil, err
		}
	}
	return out, m, nil
}

// hole writes a checkpoint's small files and, of its weights, only the header.
func hole(x *model.Export, dir string) error {
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
