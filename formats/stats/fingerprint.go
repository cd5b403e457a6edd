package stats

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/zeebo/blake3"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/tensor"
)

// sampled is how many bytes of a part are hashed: so many from its beginning,
// its middle and its end.
const sampled = 4 << 10

// Fingerprint hashes what a model is: its graph, and each tensor's name, shape,
// scheme and a sample of its bytes, so that it takes milliseconds for a model of
// any size. A checkpoint and the package that it was converted to without loss
// have the same. Errors are those of reading.
func Fingerprint(m *model.Model) (string, error) {
	h := blake3.New()
	g, err := json.Marshal(m.Graph)
	if err != nil {
		return "", fmt.Errorf("%s: %w", m.Path, err)
	}
	h.Write(g)
	for _, w := range m.Graph.Weights() {
		t := m.Tensor(w.Name)
		fmt.Fprintf(h, "\n%q %v %s", t.Name, t.Shape, t.Scheme)
		for _, p := range t.Parts {
			if err := sample(h, p.Data); err != nil {
				return "", fmt.Errorf("%s: %q: %w", m.Path, w.Name, err)
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

func sample(h *blake3.Hasher, b tensor.Blob) error {
	n := min(sampled, b.Len())
	for _, at := range []int64{0, (b.Len() - n) / 2, b.Len() - n} {
		p, err := b.Slice(at, n).Bytes()
		if err != nil {
			return err
		}
		h.Write(p)
	}
	return nil
}

// HashWindows hashes the token ids of a text's windows.
func HashWindows(windows [][]int32) string {
	h := blake3.New()
	var p []byte
	for _, w := range windows {
		p = binary.LittleEndian.AppendUint32(p[:0], uint32(len(w)))
		for _, id := range w {
			p = binary.LittleEndian.AppendUint32(p, uint32(id))
		}
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Check refuses statistics of another model: other contents, or inputs that the
// graph does not have. Foreign files without a model's hash are held to names
// and sizes alone.
func (f *File) Check(m *model.Model) error {
	if f.Source.ModelHash != "" {
		hash, err := Fingerprint(m)
		if err != nil {
			return err
		}
		if hash != f.Source.ModelHash {
			return formats.Errorf(f.Path, "", "statistics of another model (%s, %.12s) than %s (%.12s): make them anew by nstf calibrate",
				f.Source.Model, f.Source.ModelHash, m.Path, hash)
		}
	}
	known := map[string]int64{}
	for _, l := range m.Graph.Readers() {
		known[l.Input] = l.In
	}
	for _, name := range sortedKeys(f.Inputs) {
		if k, ok := known[name]; !ok || k != int64(f.Inputs[name].K) {
			return formats.Errorf(f.Path, name, "an input of %d features that %s does not have", f.Inputs[name].K, m.Path)
		}
	}
	return nil
}
