package model

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// An Export is a model in the terms of another format, ready to be written.
type Export struct {
	Keys     []gguf.KV // GGUF only
	Files    []File    // Hugging Face only
	Tensors  []formats.Tensor
	Warnings []string // what the target does otherwise than the source
}

// GGUF returns the model as llama.cpp loads it: its keys, names, fused
// projections and interleaved rotary rows. Tensors in a scheme that ggml does
// not have are cast to the scheme cast, or refused where it is nil. A model
// that came from GGUF keeps its metadata.
//
// What the target would execute otherwise is an [formats.UnsupportedError]:
// the keys are read back, and the graph they make is compared with the
// model's.
func (m *Model) GGUF(cast *scheme.Scheme) (*Export, error) {
	a, ok := byName(m.Graph.Arch)
	if !ok || a.llama == nil {
		e := formats.Unsupportedf(m.Path, "", "llama.cpp does not run architecture %q", m.Graph.Arch)
		e.Hint = "export to a folder instead: -o DIR/ writes safetensors"
		return nil, e
	}
	if err := m.denseAmongExperts(); err != nil {
		return nil, err
	}
	if err := m.outputBias(a.llama.outputBias); err != nil {
		return nil, err
	}
	tensors, err := m.unbind(a.ggufLinks, func(t formats.Tensor) (formats.Tensor, error) { return m.forGGML(t, cast) })
	if err != nil {
		return nil, err
	}
	for i := range tensors {
		if tensors[i], err = m.inPlace(tensors[i]); err != nil {
			return nil, err
		}
	}
	tensors = append(tensors, ropeTensors(m.Graph)...)
	x := &Export{Tensors: tensors}
	for _, t := range m.Passthrough {
		if m.Kind == KindGGUF || m.hasGGUFMetadata() {
			x.Tensors = append(x.Tensors, t)
		} else {
			x.Warnings = append(x.Warnings, fmt.Sprintf("%s is left out: GGUF has no name for it", t.Name))
		}
	}
	if err := m.ggufKeys(a, x); err != nil {
		return nil, err
	}
	if err := m.checkGGUF(x); err != nil {
		return nil, err
	}
	if window := m.Graph.shortestWindow(); window > 0 && a.llama.windowUnused {
		x.Warnings = append(x.Warnings, beyondWindow(window))
	}
	if a.llama.copyHead {
		err = m.copyHead(x)
	}
	return x, err
}

// copyHead adds the head that llama.cpp insists on for two architectures (gpt2
// until early 2025) where the model's is tied to the embedding table.
func (m *Model) copyHead(x *Export) error {
	if !m.Graph.Tied() || m.hasGGUFMetadata() {
		return nil
	}
	for _, t := range x.Tensors {
		if t.Name == "token_embd.weight" {
			head, err := reshape(t, "output.weight", t.Shape)
			x.Tensors = append(x.Tensors, head)
			return err
		}
	}
	return nil
}

func (m *Model) hasGGUFMetadata() bool { _, ok := m.File(MetadataFile); return ok }

// forGGML returns a tensor in a scheme that ggml has.
func (m *Model) forGGML(t formats.Tensor, cast *scheme.Scheme) (formats.Tensor, error) {
	if s, ok := scheme.ByName(t.Scheme); ok && s.GGML >= 0 {
		return t, nil
	}
	if cast == nil {
		e := formats.Unsupportedf(m.Path, t.Name, "ggml has no scheme %q", t.Scheme)
		e.Hint = "--dtype f16 expands such tensors"
		return t, e
	}
	return scheme.Cast(t, cast)
}

// inPlace gives a tensor the type that llama.cpp expects in its place: norms,
// biases, routers and positions in float32, with the norms' offset added.
func (m *Model) inPlace(t formats.Tensor) (formats.Tensor, error) {
	if isNorm(t.Name) && m.normOffset() != 0 {
		return addConstant(t, m.normOffset())
	}
	small := isNorm(t.Name) || len(t.Shape) == 1 || strings.Contains(t.Name, "ffn_gate_inp") || t.Name == "position_embd.weight"
	if f32, _ := scheme.ByName("f32"); small && t.Scheme != f32.Name {
		return scheme.Cast(t, f32)
	}
	return t, nil
}

// normOffset returns the constant that the model's norms add to their stored
// weights; GGUF stores the sum.
func (m *Model) normOffset() float32 { return m.Graph.Norm.Offset }

// addConstant returns a tensor as float32 with c added to each number.
func addConstant(t formats.Tensor, c float32) (formats.Tensor, error) {
	f32, _ := scheme.ByName("f32")
	size := t.Elements() * 4
	return scheme.New(t.Name, f32, t.Shape, nil, tensor.Computed(size, func() ([]byte, error) {
		x, err := decodeAll(t)
		if err != nil {
			return nil, err
		}
		for i := range x {
			x[i] += c
		}
		p := make([]byte, size)
		tensor.FromFloat32(p, x, tensor.F32)
		return p, nil
	}))
}

// decodeAll returns a small tensor's numbers.
func decodeAll(t formats.Tensor) ([]float32, error) {
	n, k := t.Rows()
	x := make([]float32, n*k)
	return x, scheme.DecodeRows(x, &t, 0, n)
}

// ropeTensors are the numbers of the graph that GGUF keeps in tensors.
func ropeTensors(g *Graph) []formats.Tensor {
	if len(g.Ropes) == 0 {
		return nil
	}
	r := &g.Ropes[0]
	vector := func(name string, x []float32) formats.Tensor {
		f32, _ := scheme.ByName("f32")
		p := make([]byte, 4*len(x))
		tensor.FromFloat32(p, x, tensor.F32)
		t, err := scheme.New(name, f32, []int64{int64(len(x))}, nil, tensor.BytesBlob(p))
		if err != nil {
			panic(err) // a vector of float32 is always one
		}
		return t
	}
	switch r.Scaling.Kind {
	case ScaleFactors:
		return []formats.Tensor{vector("rope_freqs.weight", r.Scaling.Short)}
	case ScaleLlama3:
		return []formats.Tensor{vector("rope_freqs.weight", r.divisors())}
	case ScaleLongRope:
		return []formats.Tensor{vector("rope_factors_long.weight", r.Scaling.Long), vector("rope_factors_short.weight", r.Scaling.Short)}
	}
	return nil
}

// divisors are what the scaling divides each unscaled frequency by.
func (r *Rope) divisors() []float32 {
	plain := *r
	plain.Scaling = RopeScaling{Kind: ScaleNone}
	own, _ := plain.Frequencies(1)
	scaled, _ := r.Frequencies(1)
	for i := range own {
		own[i] /= scaled[i]
	}
	return own
}

// checkGGUF reads an export back and compares the graphs.
func (m *Model) checkGGUF(x *Export) error {
	w, err := gguf.NewWriter(x.Keys, nil)
	if err != nil {
		return err
	}
	var meta bytes.Buffer
	if _, err := w.WriteTo(&meta); err != nil {
		return err
	}
	f, err := gguf.Parse(m.Path, meta.Bytes())
	if err != nil {
		return err
	}
	again, err := fromGGUF(m.Path, f, x.Tensors)
	if err != nil {
		return err
	}
	back := again.Graph
	warnings, ok := approximations(m.Graph, back)
	if !ok {
		return formats.Unsupportedf(m.Path, "", "GGUF cannot say that %s", graphDifference(m.Graph, back))
	}
	x.Warnings = append(x.Warnings, warnings...)
	return nil
}

// approximations says how llama.cpp's graph differs from the model's where
// that is only what llama.cpp does for everyone, false where it is more: it has
// no sliding window for some architectures, and it computes GELU by its tanh
// form only, which GGUF cannot tell from the exact one.
func approximations(want, back *Graph) ([]string, bool) {
	w := *want
	w.Blocks = slices.Clone(want.Blocks)
	window, gelu := int64(0), false
	for i := range w.Blocks {
		a, b := &w.Blocks[i], &back.Blocks[min(i, len(back.Blocks)-1)]
		if a.Attn.Window > 0 && b.Attn.Window == 0 {
			window, a.Attn.Window = want.shortestWindow(), 0
		}
		if a.FFN != nil && b.FFN != nil && isGELU(a.FFN.Act) && isGELU(b.FFN.Act) {
			f := *a.FFN
			gelu = gelu || f.Act == GELU
			f.Act, a.FFN = b.FFN.Act, &f
		}
	}
	if graphDifference(&w, back) != "" {
		return nil, false
	}
	var out []string
	if window > 0 {
		out = append(out, beyondWindow(window))
	}
	if gelu {
		out = append(out, "llama.cpp computes GELU by its tanh form, so its logits differ slightly")
	}
	return out, true
}

// shortestWindow returns the sliding window of the layer with the shortest, 0
// where none has any.
func (g *Graph) shortestWindow() int64 {
	shortest := int64(0)
	for i := range g.Blocks {
		if n := g.Blocks[i].Attn.Window; n > 0 && (shortest == 0 || n < shortest) {
			shortest = n
		}
	}
	return shortest
}

func beyondWindow(n int64) string {
	return fmt.Sprintf("llama.cpp attends beyond the sliding window of %d tokens here; up to there the model is the same", n)
}

func isGELU(a Activation) bool { return a == GELU || a == GELUTanh }

// denseAmongExperts refuses a mixture with dense layers in between, which
// llama.cpp's loader does not expect.
func (m *Model) denseAmongExperts() error {
	experts := 0
	for i := range m.Graph.Blocks {
		if m.Graph.Blocks[i].MoE != nil {
			experts++
		}
	}
	if experts == 0 || experts == len(m.Graph.Blocks) {
		return nil
	}
	return formats.Unsupportedf(m.Path, "", "llama.cpp expects experts in every layer of %q, here %d of %d have them",
		m.Graph.Arch, experts, len(m.Graph.Blocks))
}

// outputBias refuses a bias on attention's output where llama.cpp's loader has
// no place for it, and its absence where the loader insists.
func (m *Model) outputBias(expected presence) error {
	bias := m.Graph.Blocks[0].Attn.O.Bias
	switch {
	case expected == required && bias == "":
		return formats.Unsupportedf(m.Path, "", "llama.cpp expects biases in the attention of %q", m.Graph.Arch)
	case expected == forbidden && bias != "":
		return formats.Unsupportedf(m.Path, bias, "llama.cpp has no such bias in %q", m.Graph.Arch)
	}
	return nil
}

// isNorm reports whether a foreign name is that of a norm's weight: in both
// worlds, and in no other tensor's name, "norm" stands before ".weight".
func isNorm(name string) bool { return strings.HasSuffix(name, "norm.weight") }
