// Package export turns models into what other programs read: GGUF files for
// llama.cpp, directories for transformers. What the target would execute
// otherwise is refused: everything written is read back and compared.
package export

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/arch"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// A Model is a model in the terms of another format, ready to be written.
type Model struct {
	Keys     []gguf.KV    // GGUF only
	Files    []model.File // Hugging Face only
	Tensors  []formats.Tensor
	Warnings []string // what the target does otherwise than the source

	own    int    // how many of Tensors are the graph's
	around string // the type of the multimodal model that they lie in, "": none
}

// mostWarned is how many tensors that are left out are named.
const mostWarned = 20

// GGUF returns the model as llama.cpp loads it: its keys, names, fused
// projections and interleaved rotary rows. Tensors in a scheme that ggml does
// not have are cast to the scheme cast, or refused where it is nil. A model
// that came from GGUF keeps its metadata.
//
// What the target would execute otherwise is an [formats.UnsupportedError]:
// the graph is held to what package arch knows of llama.cpp, the keys are read back, and the graph that
// they make is compared with the model's.
func GGUF(m *model.Model, cast *scheme.Scheme) (*Model, error) {
	a, _ := arch.ByName(m.Graph.Arch)
	if err := a.LlamaCPP(m.Graph); err != nil {
		return nil, formats.In(m.Path, err)
	}
	tensors, err := unbind(m, a.GGUF(), cast, func(t formats.Tensor) (formats.Tensor, error) { return forGGML(m, t, cast) })
	if err != nil {
		return nil, err
	}
	var placed []formats.Tensor
	for _, t := range tensors {
		if t, err = inPlace(m, t); err != nil {
			return nil, err
		}
		split, err := splitFactors(m.Path, t)
		if err != nil {
			return nil, err
		}
		placed = append(placed, split...)
	}
	tensors = placed
	tensors = append(tensors, ropeTensors(m.Graph)...)
	x := &Model{Tensors: tensors}
	if other := a.Deviation(m.Graph); other != "" {
		x.Warnings = append(x.Warnings, other)
	}
	if m.Kind == model.KindGGUF || hasGGUFMetadata(m) {
		x.Tensors = append(x.Tensors, m.Passthrough...)
	} else {
		x.Warnings = append(x.Warnings, leftOut(m.Passthrough)...)
	}
	if err := ggufKeys(m, a, x); err != nil {
		return nil, err
	}
	if err := checkGGUF(m, x); err != nil {
		return nil, err
	}
	if a.CopiesHead() {
		err = copyHead(m, x)
	}
	return x, err
}

// leftOut names tensors for which GGUF has no name, those of other senses than text
// in one line.
func leftOut(tensors []formats.Tensor) []string {
	var out []string
	senses, others := 0, 0
	for i := range tensors {
		switch {
		case isSense(tensors[i].Name):
			senses++
			continue
		case others < mostWarned:
			out = append(out, fmt.Sprintf("%s is left out: GGUF has no name for it", tensors[i].Name))
		}
		others++
	}
	if others > mostWarned {
		out = append(out, fmt.Sprintf("%d tensors more are left out: GGUF has no names for them", others-mostWarned))
	}
	if senses > 0 {
		out = append(out, fmt.Sprintf("%d tensors of vision and audio are left out: the file is of the text model alone", senses))
	}
	return out
}

// isSense reports whether a tensor's name is one of an encoder for images or sound, or
// of what brings its results to the language model, in multimodal checkpoints of
// transformers.
func isSense(name string) bool {
	for _, module := range strings.Split(name, ".") {
		switch module {
		case "visual", "vision_tower", "vision_model", "vision_embedder", "embed_vision", "audio_tower", "embed_audio", "multi_modal_projector":
			return true
		}
	}
	return false
}

// copyHead adds the head that llama.cpp insists on for two architectures (gpt2
// until early 2025) where the model's is tied to the embedding table.
func copyHead(m *model.Model, x *Model) error {
	if !m.Graph.Tied() || hasGGUFMetadata(m) {
		return nil
	}
	for _, t := range x.Tensors {
		if t.Name == "token_embd.weight" {
			head, err := checkpoint.Reshape(t, "output.weight", t.Shape)
			x.Tensors = append(x.Tensors, head)
			return err
		}
	}
	return nil
}

func hasGGUFMetadata(m *model.Model) bool { _, ok := m.File(model.MetadataFile); return ok }

// forGGML returns a tensor in a scheme that ggml has.
func forGGML(m *model.Model, t formats.Tensor, cast *scheme.Scheme) (formats.Tensor, error) {
	if s, ok := scheme.ByName(t.Scheme); ok && s.GGML >= 0 {
		return t, nil
	}
	if cast == nil {
		e := formats.Unsupportedf(m.Path, t.Name, "ggml has no scheme %q", t.Scheme)
		e.Hint = "--dtype f16 expands such tensors"
		if strings.HasPrefix(t.Scheme, "tcq") {
			e.Hint += "; nstf quantize --schemes ggml, of the model that this was made from, makes what needs no expanding"
		}
		return t, e
	}
	return scheme.Cast(t, cast)
}

// inPlace gives a tensor the type that llama.cpp expects in its place: norms,
// biases, routers, convolutions and positions in float32, with the norms' offset added.
func inPlace(m *model.Model, t formats.Tensor) (formats.Tensor, error) {
	if isOffset(t.Name) && normOffset(m) != 0 {
		return addConstant(t, normOffset(m))
	}
	small := isNorm(t.Name) || len(t.Shape) == 1 || strings.HasSuffix(t.Name, ".bias") || strings.Contains(t.Name, "ffn_gate_inp") ||
		strings.Contains(t.Name, ".ssm_conv1d") || strings.HasSuffix(t.Name, ".shortconv.conv.weight") || t.Name == "position_embd.weight"
	if f32, _ := scheme.ByName("f32"); small && t.Scheme != f32.Name {
		return scheme.Cast(t, f32)
	}
	return t, nil
}

// normOffset returns the constant that the model's norms add to their stored
// weights; GGUF stores the sum.
func normOffset(m *model.Model) float32 { return m.Graph.Norm.Offset }

// addConstant returns a tensor as float32 with c added to each number.
func addConstant(t formats.Tensor, c float32) (formats.Tensor, error) {
	return mapped(t, func(x float32) float32 { return x + c })
}

// mapped returns a small tensor as float32 with each number turned into another.
func mapped(t formats.Tensor, to func(float32) float32) (formats.Tensor, error) {
	f32, _ := scheme.ByName("f32")
	size := t.Elements() * 4
	return scheme.New(t.Name, f32, t.Shape, nil, tensor.Computed(size, func() ([]byte, error) {
		x, err := form.Decode(&t)
		if err != nil {
			return nil, err
		}
		for i := range x {
			x[i] = to(x[i])
		}
		p := make([]byte, size)
		tensor.FromFloat32(p, x, tensor.F32)
		return p, nil
	}))
}

// ropeTensors are the numbers of the graph that GGUF keeps in tensors.
func ropeTensors(g *graph.Graph) []formats.Tensor {
	if len(g.Ropes) == 0 {
		return nil
	}
	r := &g.Ropes[0]
	vector := func(name string, x []float32) formats.Tensor { return floats(name, []int64{int64(len(x))}, x...) }
	switch r.Scaling.Kind {
	case graph.ScaleFactors:
		return []formats.Tensor{vector("rope_freqs.weight", r.Scaling.Short)}
	case graph.ScaleLlama3:
		return []formats.Tensor{vector("rope_freqs.weight", divisors(r))}
	case graph.ScaleLongRope:
		return []formats.Tensor{vector("rope_factors_long.weight", r.Scaling.Long), vector("rope_factors_short.weight", r.Scaling.Short)}
	}
	return nil
}

// floats returns a tensor of the numbers given.
func floats(name string, shape []int64, x ...float32) formats.Tensor {
	f32, _ := scheme.ByName("f32")
	p := make([]byte, 4*len(x))
	tensor.FromFloat32(p, x, tensor.F32)
	t, err := scheme.New(name, f32, shape, nil, tensor.BytesBlob(p))
	if err != nil {
		panic(err) // float32 of a shape's numbers is always a tensor
	}
	return t
}

// divisors are what the scaling divides each unscaled frequency by.
func divisors(r *graph.Rope) []float32 {
	plain := *r
	plain.Scaling = graph.RopeScaling{Kind: graph.ScaleNone}
	own, _ := plain.Frequencies(1)
	scaled, _ := r.Frequencies(1)
	for i := range own {
		own[i] /= scaled[i]
	}
	return own
}

// checkGGUF reads an export back and compares the graphs.
func checkGGUF(m *model.Model, x *Model) error {
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
	again, err := checkpoint.FromGGUF(m.Path, f, x.Tensors)
	if wrong, ok := errors.AsType[*formats.FormatError](err); ok { // it asks for what this graph has not
		return formats.Unsupportedf(m.Path, wrong.Tensor, "what GGUF cannot say; read back: %s", wrong.Reason)
	}
	if err != nil {
		return err
	}
	back := again.Graph
	warnings, ok := approximations(m.Graph, back)
	if !ok {
		return formats.Unsupportedf(m.Path, "", "GGUF cannot say that %s", graph.Difference(m.Graph, back))
	}
	x.Warnings = append(x.Warnings, warnings...)
	return nil
}

// approximations says how llama.cpp's graph differs from the model's where
// that is only what llama.cpp does for everyone, false where it is more: it
// computes GELU by its tanh form only, which GGUF cannot tell from the exact
// one, and chooses LongRoPE's factors by the context that it is opened with, not
// by the text. A window that no context exceeds need not be said.
func approximations(want, back *graph.Graph) ([]string, bool) {
	w := *want
	w.Blocks = slices.Clone(want.Blocks)
	gelu := false
	for i := range w.Blocks {
		a, b := &w.Blocks[i], &back.Blocks[min(i, len(back.Blocks)-1)]
		if a.Attn != nil && b.Attn != nil && a.Attn.Window >= want.Context && b.Attn.Window == 0 {
			everywhere := *a.Attn
			everywhere.Window, a.Attn = 0, &everywhere
		}
		if a.FFN != nil && b.FFN != nil && isGELU(a.FFN.Act) && isGELU(b.FFN.Act) {
			f := *a.FFN
			gelu = gelu || f.Act == graph.GELU
			f.Act, a.FFN = b.FFN.Act, &f
		}
	}
	if graph.Difference(&w, back) != "" {
		return nil, false
	}
	var out []string
	if gelu {
		out = append(out, "llama.cpp computes GELU by its tanh form, so its logits differ slightly")
	}
	if len(want.Ropes) > 0 && want.Ropes[0].Scaling.Kind == graph.ScaleLongRope {
		out = append(out, fmt.Sprintf("llama.cpp takes LongRoPE's long factors for every text where its context (-c) is above %d tokens", want.Ropes[0].Scaling.Original))
	}
	return out, true
}

func isGELU(a graph.Activation) bool { return a == graph.GELU || a == graph.GELUTanh }

// isNorm reports whether a foreign name is that of a norm's weight: in both
// worlds, and in no other tensor's name, "norm" stands before ".weight", but for two
// of Qwen's multi-token prediction.
func isNorm(name string) bool {
	return strings.HasSuffix(name, "norm.weight") || strings.HasPrefix(name, "mtp.pre_fc_norm_")
}

// isOffset reports whether it is one that the model's offset is added to: those of
// delta nets are stored as they are.
func isOffset(name string) bool {
	return isNorm(name) && !strings.HasSuffix(name, ".linear_attn.norm.weight") && !strings.HasSuffix(name, ".ssm_norm.weight")
}
