package imatrix

import (
	"math"
	"path/filepath"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/tensor"
)

const (
	sumsSuffix   = ".in_sum2"
	countsSuffix = ".counts"
)

func (f *File) parseGGUF(p []byte) error {
	g, err := gguf.Parse(f.Path, p)
	if err != nil {
		return err
	}
	if kind, err := g.String("general.type"); err != nil || kind != "imatrix" {
		return formats.Errorf(f.Path, "general.type", "%q: this GGUF is no importance matrix", kind)
	}
	if texts, err := g.Strings("imatrix.datasets"); err == nil && len(texts) > 0 {
		f.Text = filepath.Base(texts[0])
	}
	all := map[string]*formats.Tensor{}
	for _, t := range g.Tensors() {
		all[t.Name] = &t
	}
	for name, sums := range all {
		base, ok := strings.CutSuffix(name, sumsSuffix)
		if !ok {
			continue
		}
		counts := all[base+countsSuffix]
		if counts == nil {
			return formats.Errorf(f.Path, name, "sums without %s%s", base, countsSuffix)
		}
		if f.Entries[base], err = f.entry(base, sums, counts); err != nil {
			return err
		}
	}
	return nil
}

// entry divides sums by counts.
func (f *File) entry(name string, sums, counts *formats.Tensor) (*Entry, error) {
	n, err := f.numbers(counts)
	if err != nil {
		return nil, err
	}
	v, err := f.numbers(sums)
	if err != nil {
		return nil, err
	}
	if len(n) == 0 || len(v) == 0 || len(v)%len(n) != 0 {
		return nil, formats.Errorf(f.Path, name, "%d sums for %d counts", len(v), len(n))
	}
	e, k := &Entry{}, len(v)/len(n)
	for i, c := range n {
		if !(c >= 0 && c < 1<<53) || c != float32(math.Trunc(float64(c))) {
			return nil, formats.Errorf(f.Path, name, "a count of %v", c)
		}
		row := v[i*k : (i+1)*k]
		for j := range row {
			if row[j] != 0 && c > 0 {
				row[j] /= c
			} else if c == 0 && row[j] != 0 {
				return nil, formats.Errorf(f.Path, name, "row %d has sums and no count", i)
			}
		}
		e.Tokens, e.Values = append(e.Tokens, int64(c)), append(e.Values, row)
	}
	return e, check(f.Path, name, e)
}

func (f *File) numbers(t *formats.Tensor) ([]float32, error) {
	if t.Scheme != tensor.F32.String() {
		return nil, formats.Errorf(f.Path, t.Name, "%s, not float32", t.Scheme)
	}
	raw, err := t.Parts[0].Data.Bytes()
	if err != nil {
		return nil, err
	}
	out := make([]float32, len(raw)/4)
	return out, tensor.ToFloat32(out, raw, tensor.F32)
}
