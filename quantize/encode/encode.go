package encode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/quantize/fit"
)

// Options are how to write a package; the zero value copies everything.
type Options struct {
	// DType casts the graph's tensors to "f32", "f16" or "bf16", expanding
	// those that were quantized; "" keeps them. Tensors that the graph does
	// not know stay as they are. DType and Policy exclude each other.
	DType string
	// Policy quantizes the graph's matrices; nil keeps them.
	Policy *Policy
	// Fitted are tensors of the graph that were quantized before, by their
	// names; Policy, or keeping, decides on the others.
	Fitted map[string]formats.Tensor
	// Sources are files beside the model that decided something.
	Sources []nstf.Source
	// Files are attached beside the model's own, or in the place of those of the same
	// name. A model that is changed loses the plan, the ledger and the policy of attention
	// that it came with.
	Files []nstf.File
	// Tool and Flags go into the provenance: the program with its version,
	// and its arguments that decided something.
	Tool  string
	Flags []string
	// Progress is called with bytes written and their total; nil: nobody.
	Progress func(done, total int64)
}

// A Report says what became of a model.
type Report struct {
	Path        string   `json:"path"`
	FileBytes   int64    `json:"file_bytes"`
	SourceBytes int64    `json:"source_tensor_bytes"` // stored tensors of the source
	TensorBytes int64    `json:"tensor_bytes"`        // stored tensors of the package
	Params      int64    `json:"parameters"`          // of the graph
	BPW         float64  `json:"bpw"`                 // bits per weight of the graph's tensors, scales and fallbacks included
	Tensors     []Tensor `json:"tensors"`             // of the graph, in the package's order
	Passthrough []string `json:"passthrough"`         // tensors copied as they were
	Warnings    []string `json:"warnings"`
}

// A Tensor says what became of one tensor of the graph.
type Tensor struct {
	Name  string  `json:"name"`
	Role  string  `json:"role"`
	Shape []int64 `json:"shape"`
	From  string  `json:"from"` // scheme in the source
	To    string  `json:"to"`   // scheme in the package
	// Wanted is the scheme that the policy asked for where To is a fallback,
	// because its blocks do not divide the tensor's rows; else "".
	Wanted string `json:"wanted,omitempty"`
	Bytes  int64  `json:"bytes"`
}

// Fallbacks returns the tensors that did not get the scheme asked for.
func (r *Report) Fallbacks() []Tensor {
	var out []Tensor
	for _, t := range r.Tensors {
		if t.Wanted != "" {
			out = append(out, t)
		}
	}
	return out
}

// Run writes m as a package. Its errors are those of the options
// (an unknown dtype is a [formats.UnsupportedError]), of reading and fitting
// tensors, of a damaged tokenizer, of [nstf.Write], and the context's.
func Run(ctx context.Context, m *model.Model, out *atomicfile.Output, o Options) (*Report, error) {
	if o.DType != "" && o.Policy != nil {
		panic("encode: a dtype and a policy")
	}
	meta, items, err := m.Pack()
	if err != nil {
		return nil, err
	}
	r := &Report{Path: out.Path(), Params: m.Graph.Params(), Passthrough: []string{}, Warnings: []string{}}
	if err := r.convert(m, items, o); err != nil {
		return nil, err
	}
	meta.Files = attached(meta.Files, o)
	if err := r.checkTokenizer(m); err != nil {
		return nil, err
	}
	if m.Quantized != "" {
		note, warn := quantizedBefore(m, o, r.again())
		meta.Provenance.Notes = append(meta.Provenance.Notes, note)
		if warn {
			r.Warnings = append(r.Warnings, note)
		}
	}
	meta.Provenance.Tool, meta.Provenance.Flags = o.Tool, o.Flags
	meta.Provenance.Sources = append(meta.Provenance.Sources, o.Sources...)
	meta.Provenance = meta.Provenance.Spelled()
	err = nstf.Write(out, meta, items, nstf.WriteOptions{Progress: o.Progress, Context: ctx})
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(out.Path())
	if err != nil {
		return nil, err
	}
	r.FileBytes = info.Size()
	return r, nil
}

// attached returns the files that go into the package.
func attached(files []nstf.File, o Options) []nstf.File {
	changed := o.DType != "" || o.Policy != nil || o.Fitted != nil
	files = slices.DeleteFunc(slices.Clone(files), func(f nstf.File) bool {
		return changed && slices.Contains([]string{nstf.LedgerFile, nstf.PlanFile, nstf.AttentionFile, nstf.KVFile}, f.Name) ||
			slices.ContainsFunc(o.Files, func(own nstf.File) bool { return own.Name == f.Name })
	})
	return append(files, o.Files...)
}

// checkTokenizer refuses a damaged tokenizer before everything else is
// written beside it, and warns of one that is missing or that only others can
// use: it travels along all the same.
func (r *Report) checkTokenizer(m *model.Model) error {
	if !m.HasTokenizer() {
		r.Warnings = append(r.Warnings, "the source has no tokenizer: the package will not read or write text")
		return nil
	}
	_, err := m.Tokenizer()
	var unsupported *formats.UnsupportedError
	if errors.As(err, &unsupported) {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the tokenizer is carried along, but this program cannot use it: %v", err))
		return nil
	}
	return err
}

// quantizedBefore says what became of a quantized source, and whether the
// user should know at once.
func quantizedBefore(m *model.Model, o Options, again bool) (note string, warn bool) {
	note = fmt.Sprintf("the source is quantized already (%s)", m.Quantized)
	switch {
	case !again:
	case o.Policy != nil || o.Fitted != nil:
		return note + ": quantizing it again adds to its error", true
	case o.DType != "":
		return note + ": its values were expanded to " + o.DType + ", their precision stays what it was", true
	}
	return note + ": its codes are kept as they are", false
}

// again reports whether a tensor in codes became something else.
func (r *Report) again() bool {
	return slices.ContainsFunc(r.Tensors, func(t Tensor) bool {
		s, ok := scheme.ByName(t.From)
		return ok && !s.Plain() && t.To != t.From
	})
}

// convert replaces the items' tensors by what they become and records it.
func (r *Report) convert(m *model.Model, items []nstf.Item, o Options) error {
	var dtype *scheme.Scheme
	if o.DType != "" {
		var ok bool
		if dtype, ok = scheme.ByName(o.DType); !ok || !slices.Contains(DTypes(), o.DType) {
			e := formats.Unsupportedf("", "", "casting to dtype %q", o.DType)
			e.Hint = "dtypes: " + strings.Join(DTypes(), ", ")
			return e
		}
	}
	weights := m.Graph.Weights()
	var graphBytes int64
	for i := range items {
		t := &items[i].Tensor
		r.SourceBytes += t.Size()
		if items[i].Passthrough {
			r.Passthrough = append(r.Passthrough, t.Name)
			r.TensorBytes += t.Size()
			continue
		}
		row := Tensor{Name: t.Name, Role: string(weights[i].Role), Shape: t.Shape, From: t.Scheme}
		var err error
		fitted, ok := o.Fitted[t.Name]
		switch {
		case ok:
			*t = fitted
		case dtype != nil:
			*t, err = scheme.Cast(*t, dtype)
		case o.Policy != nil:
			*t, row.Wanted, err = quantize(*t, o.Policy.Choose(m.Graph, &weights[i]))
		}
		if err != nil {
			return err
		}
		row.To, row.Bytes = t.Scheme, t.Size()
		graphBytes += row.Bytes
		r.Tensors = append(r.Tensors, row)
	}
	r.TensorBytes += graphBytes
	r.BPW = 8 * float64(graphBytes) / float64(r.Params)
	return nil
}

// DTypes lists what [Options].DType may be.
func DTypes() []string { return []string{"f32", "f16", "bf16"} }

// quantize fits a tensor to a scheme, or to the nearest that its rows fit;
// wanted is then the scheme's name. nil keeps the tensor, and so do the
// scheme that it is in already and one that [Settled] speaks of.
func quantize(t formats.Tensor, to *scheme.Scheme) (out formats.Tensor, wanted string, err error) {
	if to == nil || t.Scheme == to.Name || Settled(&t, bits(to), to.GGML >= 0) {
		return t, "", nil
	}
	_, k := t.Rows()
	s := fit.Fallback(to, k)
	if s != to {
		wanted = to.Name
	}
	if t.Scheme == s.Name {
		return t, wanted, nil
	}
	out, err = fit.Tensor(t, s, nil)
	return out, wanted, err
}
