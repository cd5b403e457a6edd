package stats

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/zeebo/blake3"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/pyjson"
	"github.com/nstf/nstf/formats/safetensors"
	"github.com/nstf/nstf/formats/tensor"
)

const (
	key     = "nstf.stats" // of the metadata
	version = 2            // 1 has no checksum

	// checksum is the metadata's key of BLAKE3 over the document, then for each tensor
	// by name its name, a zero byte, its size in 8 bytes and its data.
	checksum = "nstf.stats.blake3"

	absMaxOf, momentsOf, diagonalOf = "absmax:", "moments:", "diagonal:"
)

// Open reads a .nstats file; moments stay in it. The caller closes it. Errors
// are those of the operating system, [formats.FormatError] and
// [formats.UnsupportedError].
func Open(path string) (*File, error) {
	c, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := read(path, c)
	if err != nil {
		c.Close()
		return nil, err
	}
	f.Owns(c)
	return f, nil
}

// Parse reads a file that lies in memory; name is for messages.
func Parse(name string, data []byte) (*File, error) {
	c, err := safetensors.Parse(name, data)
	if err != nil {
		return nil, err
	}
	return read(name, c)
}

func read(path string, c *safetensors.File) (*File, error) {
	head, ok := c.Metadata()[key]
	if !ok {
		return nil, formats.Errorf(path, "", "no %q in its metadata: this is not a .nstats file", key)
	}
	r := reader{path: path, tensors: map[string]*formats.Tensor{}, f: &File{Path: path, Inputs: map[string]*Input{}, Experts: map[string][]*Input{}, Sensitivity: map[string]float64{}}}
	for _, t := range c.Tensors() {
		r.tensors[t.Name] = &t
	}
	err := r.document(head)
	if err == nil && r.version > 1 {
		err = verify(path, head, c)
	}
	if err == nil {
		err = r.numbers()
	}
	if err != nil {
		return nil, err
	}
	for name := range r.tensors {
		return nil, formats.Errorf(path, name, "a tensor that belongs to no input")
	}
	return r.f, nil
}

// verify checks the whole file.
func verify(path, head string, c *safetensors.File) error {
	got, err := sum(head, c.Tensors())
	if err != nil {
		return err
	}
	if want := c.Metadata()[checksum]; got != want {
		return formats.Errorf(path, "", "damaged: what it holds hashes to %s, its metadata say %.64q", got, want)
	}
	return nil
}

// sum returns the checksum of a document and tensors.
func sum(head string, tensors []formats.Tensor) (string, error) {
	h := blake3.New()
	io.WriteString(h, head)
	tensors = slices.Clone(tensors)
	slices.SortFunc(tensors, func(a, b formats.Tensor) int { return cmp.Compare(a.Name, b.Name) })
	for i := range tensors {
		t := &tensors[i]
		io.WriteString(h, t.Name+"\x00")
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(t.Size())))
		if _, err := t.Parts[0].Data.WriteTo(h); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// A reader takes tensors away as inputs claim them.
type reader struct {
	path    string
	version int64
	tensors map[string]*formats.Tensor
	f       *File
}

// document reads the JSON object.
func (r *reader) document(head string) error {
	s := pyjson.NewScanner(r.path, 0, []byte(head))
	found, err := s.Fields(key, []string{"version", "source", "inputs", "experts", "sensitivity"}, func(i int) error {
		switch i {
		case 0:
			v, err := s.Uint("version")
			if err == nil && (v < 1 || v > version) {
				err = formats.Unsupportedf(r.path, "version", "version %d of .nstats files", v)
			}
			r.version = v
			return err
		case 1:
			return r.source(s)
		case 2:
			return r.inputs(s)
		case 3:
			return r.experts(s)
		}
		return r.sensitivity(s)
	})
	if err == nil {
		err = s.End()
	}
	if err == nil && found&7 != 7 {
		err = formats.Errorf(r.path, key, "version, source or inputs are missing")
	}
	return err
}

func (r *reader) source(s *pyjson.Scanner) error {
	o := &r.f.Source
	texts := map[int]*string{0: &o.Model, 1: &o.ModelHash, 2: &o.Text, 3: &o.TextHash, 8: &o.Level, 9: &o.Tool}
	_, err := s.Fields("source", []string{"model", "model_hash", "text", "text_hash", "context", "windows", "seed", "tokens", "level", "tool"}, func(i int) (err error) {
		if t := texts[i]; t != nil {
			*t, err = s.String()
			return err
		}
		if i == 6 {
			return r.seed(s)
		}
		n, err := s.Uint("source")
		switch {
		case err != nil:
			return err
		case i == 7:
			o.Tokens = n
		case n > math.MaxInt32:
			return s.Errorf("source", "%d windows, or tokens of one", n)
		case i == 4:
			o.Context = int(n)
		default:
			o.Windows = int(n)
		}
		return nil
	})
	return err
}

// seed is a number of 64 bits.
func (r *reader) seed(s *pyjson.Scanner) error {
	n, err := s.Number()
	if err != nil {
		return err
	}
	if r.f.Source.Seed, err = strconv.ParseUint(string(n), 10, 64); err != nil {
		return s.Errorf("source", "%s is not a seed", n)
	}
	return nil
}

func (r *reader) inputs(s *pyjson.Scanner) error {
	return s.Object(func(name string) error {
		if r.f.Inputs[name] != nil {
			return s.Errorf(name, "duplicate input")
		}
		in := &Input{}
		r.f.Inputs[name] = in
		found, err := s.Fields(name, []string{"k", "tokens"}, func(i int) error {
			n, err := s.Uint(name)
			if err == nil && i == 0 && (n == 0 || n > math.MaxInt32) {
				err = s.Errorf(name, "%d features", n)
			}
			if i == 0 {
				in.K = int(n)
			} else {
				in.Tokens = n
			}
			return err
		})
		if err == nil && found != 3 {
			err = s.Errorf(name, "k or tokens are missing")
		}
		return err
	})
}

func (r *reader) experts(s *pyjson.Scanner) error {
	return s.Object(func(name string) error {
		if r.f.Experts[name] != nil {
			return s.Errorf(name, "duplicate input")
		}
		r.f.Experts[name] = []*Input{}
		return s.Array(func() error {
			n, err := s.Uint(name)
			r.f.Experts[name] = append(r.f.Experts[name], &Input{Tokens: n})
			return err
		})
	})
}

func (r *reader) sensitivity(s *pyjson.Scanner) error {
	return s.Object(func(name string) error {
		if _, ok := r.f.Sensitivity[name]; ok {
			return s.Errorf(name, "duplicate tensor")
		}
		n, err := s.Number()
		if err != nil {
			return err
		}
		v, ok := n.Float64()
		if !ok || !(v >= 0) || math.IsInf(v, 0) {
			return s.Errorf(name, "%s is not a sensitivity", n)
		}
		r.f.Sensitivity[name] = v
		return nil
	})
}

// numbers gives the inputs their tensors.
func (r *reader) numbers() error {
	for _, name := range sortedKeys(r.f.Inputs) {
		if err := r.fill(name, r.f.Inputs[name]); err != nil {
			return err
		}
	}
	for _, name := range sortedKeys(r.f.Experts) {
		all := r.f.Inputs[name]
		if all == nil {
			return formats.Errorf(r.path, name, "experts of an input that is not here")
		}
		for i, in := range r.f.Experts[name] {
			in.K = all.K
			if err := r.fill(expertName(name, i), in); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *reader) fill(name string, in *Input) error {
	if in.Tokens == 0 {
		return nil
	}
	var err error
	if in.AbsMax, err = r.small(absMaxOf+name, in.K); err != nil {
		return err
	}
	n, err := Triangle(int64(in.K))
	if err != nil {
		return err
	}
	if t, err := r.take(momentsOf+name, n); err != nil {
		return err
	} else if t != nil {
		in.moments = t.Parts[0].Data
		return nil
	}
	in.diagonal, err = r.small(diagonalOf+name, in.K)
	if err == nil && in.diagonal == nil {
		err = formats.Errorf(r.path, name, "an input with %d tokens and neither moments nor a diagonal", in.Tokens)
	}
	return err
}

// take returns a tensor of n float32 and forgets it, nil where there is none.
func (r *reader) take(name string, n int64) (*formats.Tensor, error) {
	t := r.tensors[name]
	if t == nil {
		return nil, nil
	}
	delete(r.tensors, name)
	if t.Scheme != tensor.F32.String() || len(t.Shape) != 1 || t.Shape[0] != n {
		return nil, formats.Errorf(r.path, name, "%s %v, not %d float32", t.Scheme, t.Shape, n)
	}
	return t, nil
}

// small reads a vector of numbers that are finite and not negative, nil where
// there is none.
func (r *reader) small(name string, k int) ([]float32, error) {
	t, err := r.take(name, int64(k))
	if t == nil || err != nil {
		return nil, err
	}
	raw, err := t.Parts[0].Data.Bytes()
	if err != nil {
		return nil, err
	}
	out := make([]float32, k)
	if err := tensor.ToFloat32(out, raw, tensor.F32); err != nil {
		return nil, err
	}
	for i, v := range out {
		if !(v >= 0) || math.IsInf(float64(v), 0) {
			return nil, formats.Errorf(r.path, name, "feature %d is %v", i, v)
		}
	}
	return out, nil
}

func expertName(input string, e int) string { return input + "#" + strconv.Itoa(e) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
