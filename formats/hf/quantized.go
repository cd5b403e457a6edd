package hf

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
)

// methods are the values of quant_method that are read, each with what puts
// its groups of tensors together. One file each, quantized_*.go.
var methods = map[string]func(*joiner) error{
	"awq":                (*joiner).joinAWQ,
	"bitsandbytes":       (*joiner).joinBitsAndBytes,
	"compressed-tensors": (*joiner).joinCompressed,
	"fbgemm_fp8":         (*joiner).joinFP8,
	"fp8":                (*joiner).joinFP8,
	"gptq":               (*joiner).joinGPTQ,
	"modelopt":           (*joiner).joinModelOpt,
	"mxfp4":              (*joiner).joinMXFP4,
}

// marks are endings of names that only quantized checkpoints have.
var marks = []string{".qweight", ".weight_packed", "_blocks", ".quant_state.bitsandbytes__nf4", ".SCB", ".weight_scale_inv", ".weight_scale_2"}

// joinQuantized puts the tensors of quantized matrices together.
func (d *Dir) joinQuantized() error {
	q, method, err := d.quantization()
	if err != nil {
		return err
	}
	if q == nil {
		return d.checkPlain()
	}
	join, ok := methods[method]
	if !ok {
		e := formats.Unsupportedf(q.file, q.path+"quant_method", "quantized by %q", method)
		e.Hint = "convert the model that it was made from; these are read: " + strings.Join(slices.Sorted(maps.Keys(methods)), ", ")
		return e
	}
	j := &joiner{dir: d.path, q: q, in: d.tensors, byName: make(map[string]int), joined: make(map[int]formats.Tensor), used: make(map[int]bool)}
	for i := range j.in {
		j.byName[j.in[i].Name] = i
	}
	if err := join(j); err != nil {
		return err
	}
	d.tensors, err = j.result()
	d.method = method
	return err
}

// quantization returns the object that describes how the checkpoint was
// quantized, nil where there is none: in config.json, or in the files of its
// own that early AutoGPTQ and AutoAWQ wrote.
func (d *Dir) quantization() (q *Config, method string, err error) {
	for _, c := range []*Config{d.config, d.config.Text()} {
		if q, ok := c.Sub("quantization_config"); ok {
			method, err := q.String("quant_method")
			return q, method, err
		}
		if q, ok := c.Sub("compression_config"); ok {
			method, err := q.StringOr("quant_method", "compressed-tensors")
			return q, method, err
		}
	}
	for _, f := range []struct{ name, method string }{{"quantize_config.json", "gptq"}, {"quant_config.json", "awq"}} {
		if p, ok := d.files[f.name]; ok {
			q, err := ParseConfig(filepath.Join(d.path, f.name), p)
			if err != nil {
				return nil, "", err
			}
			method, err := q.StringOr("quant_method", f.method)
			return q, method, err
		}
	}
	return nil, "", nil
}

// checkPlain refuses tensors of a quantization that no file describes.
func (d *Dir) checkPlain() error {
	for i := range d.tensors {
		for _, mark := range marks {
			if strings.HasSuffix(d.tensors[i].Name, mark) {
				return formats.Errorf(d.path, d.tensors[i].Name, "part of a quantized matrix, but config.json has no quantization_config")
			}
		}
	}
	return nil
}

// A joiner replaces groups of stored tensors by matrices.
type joiner struct {
	dir    string
	q      *Config
	in     []formats.Tensor
	byName map[string]int
	used   map[int]bool           // members of a group
	joined map[int]formats.Tensor // in the place of the group's main member
}

// each calls join for every tensor whose name has the ending, with the rest of
// the name.
func (j *joiner) each(ending string, join func(i int, base string) error) error {
	for i := range j.in {
		if base, ok := strings.CutSuffix(j.in[i].Name, ending); ok && !j.used[i] {
			if err := join(i, base); err != nil {
				return err
			}
		}
	}
	return nil
}

// find returns a member of a group, nil where there is none.
func (j *joiner) find(name string) *formats.Tensor {
	i, ok := j.byName[name]
	if !ok {
		return nil
	}
	j.used[i] = true
	return &j.in[i]
}

// need is find for a member that must be there.
func (j *joiner) need(name, of string) (*formats.Tensor, error) {
	t := j.find(name)
	if t == nil {
		return nil, formats.Errorf(j.dir, name, "missing, though %q is there", of)
	}
	return t, nil
}

// put places a finished matrix where tensor i was.
func (j *joiner) put(i int, t formats.Tensor) error {
	if err := scheme.Check(&t); err != nil {
		return err
	}
	j.used[i] = true
	j.joined[i] = t
	return nil
}

// result returns the matrices and what belongs to none, in stored order.
func (j *joiner) result() ([]formats.Tensor, error) {
	var out []formats.Tensor
	names := make(map[string]bool)
	for i, t := range j.in {
		if m, ok := j.joined[i]; ok {
			t = m
		} else if j.used[i] {
			continue
		}
		if names[t.Name] {
			return nil, formats.Errorf(j.dir, t.Name, "both plain and quantized")
		}
		names[t.Name] = true
		out = append(out, t)
	}
	return out, nil
}

// wrongShape is the error for a member that does not fit the others.
func (j *joiner) wrongShape(t *formats.Tensor, want string, args ...any) error {
	return formats.Errorf(j.dir, t.Name, "%s of shape %v: "+want+" expected", append([]any{t.Scheme, t.Shape}, args...)...)
}
