package random_test

import (
	"bytes"
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/model/random"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/formats/tokenizer"
	"github.com/nstf/nstf/runtime/exec"
)

var small = random.Shape{Layers: 2, Width: 64, Inner: 160, Heads: 4, KVHeads: 2, Vocab: 300, Context: 128, RopeTheta: 1e4}

func write(t *testing.T, s random.Shape, d tensor.DType, seed uint64) string {
	t.Helper()
	x, err := random.Checkpoint(s, d, seed)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "model")
	if err := x.WriteDir(context.Background(), atomicfile.Scratch(dir), 100<<10, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What is written opens as the shape that was asked for, in several shards,
// and computes finite logits that vary.
func TestCheckpointRuns(t *testing.T) {
	for _, d := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16} {
		dir := write(t, small, d, 1)
		shards, err := filepath.Glob(filepath.Join(dir, "model-*.safetensors"))
		if err != nil || len(shards) < 2 {
			t.Errorf("%v: shards %q, %v", d, shards, err)
		}
		m, err := checkpoint.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if len(m.Passthrough) > 0 || m.Graph.Context != small.Context || len(m.Graph.Blocks) != int(small.Layers) {
			t.Errorf("%v: passed through %v, context %d, %d blocks", d, m.Passthrough, m.Graph.Context, len(m.Graph.Blocks))
		}
		checkTokenizer(t, m)
		checkLogits(t, m)
	}
}

func checkTokenizer(t *testing.T, m *model.Model) {
	t.Helper()
	tok, err := m.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	const text = "Ä b\n\x00"
	ids, err := tok.Encode(text, tokenizer.EncodeOptions{})
	if err != nil || len(ids) != 1+len(text) || ids[0] != 0 {
		t.Errorf("ids %v, %v", ids, err)
	}
	if back, err := tok.Decode(ids, true); err != nil || back != text {
		t.Errorf("%q comes back as %q, %v", text, back, err)
	}
}

func checkLogits(t *testing.T, m *model.Model) {
	t.Helper()
	x, err := exec.New(m, exec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	seq, err := x.NewSequence()
	if err != nil {
		t.Fatal(err)
	}
	logits, err := seq.PrefillLast(context.Background(), []int32{0, 70, 80, 90})
	if err != nil {
		t.Fatal(err)
	}
	lo, hi := slices.Min(logits), slices.Max(logits)
	if math.IsNaN(float64(lo)) || math.IsInf(float64(hi-lo), 0) || hi-lo < 1 || hi-lo > 100 {
		t.Errorf("logits from %v to %v", lo, hi)
	}
}

// The same options give the same bytes, another seed others.
func TestCheckpointIsDeterministic(t *testing.T) {
	read := func(seed uint64) []byte {
		p, err := os.ReadFile(filepath.Join(write(t, small, tensor.BF16, seed), "model-00001-of-00003.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if a, b := read(1), read(1); string(a) != string(b) {
		t.Error("two runs differ")
	}
	if a, b := read(1), read(2); string(a) == string(b) {
		t.Error("two seeds agree")
	}
}

// Any range of a tensor reads as the same bytes as the whole.
func TestReadsAnywhere(t *testing.T) {
	s := small
	s.Vocab = 5000 // 640,000 elements: several goroutines and blocks
	for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
		x, err := random.Checkpoint(s, d, 7)
		if err != nil {
			t.Fatal(err)
		}
		b := x.Tensors[0].Parts[0].Data
		all, err := b.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range [][2]int64{{0, 1}, {1, 1}, {3, 9}, {5, 70001}, {65533, 131075}, {b.Len() - 3, 3}} {
			p := make([]byte, r[1])
			if n, err := b.ReadAt(p, r[0]); err != nil || int64(n) != r[1] || string(p) != string(all[r[0]:r[0]+r[1]]) {
				t.Errorf("%v: bytes %d to %d differ, %v", d, r[0], r[0]+r[1], err)
			}
		}
		if n, err := b.ReadAt(make([]byte, 8), b.Len()-4); n != 4 || err != io.EOF {
			t.Errorf("%v: a read over the end gives %d, %v", d, n, err)
		}
	}
}

// The weights have what the package promises: the size asked for, tails, and
// columns that stand out; norms lie around 1.
func TestWeightsHaveOutliers(t *testing.T) {
	s := random.Shape{Layers: 1, Width: 1024, Inner: 1024, Heads: 8, KVHeads: 8, Vocab: 300, Context: 128, RopeTheta: 1e4}
	x, err := random.Checkpoint(s, tensor.F32, 3)
	if err != nil {
		t.Fatal(err)
	}
	for i := range x.Tensors {
		p, err := x.Tensors[i].Parts[0].Data.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		w := make([]float32, len(p)/4)
		if err := tensor.ToFloat32(w, p, tensor.F32); err != nil {
			t.Fatal(err)
		}
		switch name := x.Tensors[i].Name; name {
		case "model.layers.0.mlp.gate_proj.weight":
			checkMatrix(t, w, int(s.Width), 1/math.Sqrt(1024))
		case "model.norm.weight":
			mean, rms := moments(w)
			if spread := math.Sqrt(rms*rms - mean*mean); math.Abs(mean-1) > 0.02 || spread < 0.08 || spread > 0.12 {
				t.Errorf("%s: mean %v, spread %v", name, mean, spread)
			}
		}
	}
}

func checkMatrix(t *testing.T, w []float32, k int, wantRMS float64) {
	t.Helper()
	mean, rms := moments(w)
	if math.Abs(rms/wantRMS-1) > 0.02 || math.Abs(mean) > 0.01*rms {
		t.Errorf("mean %v, root mean square %v instead of %v", mean, rms, wantRMS)
	}
	scale := make([]float64, k)
	for c := range scale {
		var column []float32
		for i := c; i < len(w); i += k {
			column = append(column, w[i])
		}
		_, scale[c] = moments(column)
	}
	slices.Sort(scale)
	if median, top := scale[k/2], scale[k-1]; top < 4*median || scale[k-k/32] > 4*median {
		t.Errorf("columns: median %v, one in 32 above %v, largest %v", median, scale[k-k/32], top)
	}
	tail := 0 // beyond 4 root mean squares: 6 in 100,000 of a normal distribution
	for _, x := range w {
		if math.Abs(float64(x)) > 4*rms {
			tail++
		}
	}
	if share := float64(tail) / float64(len(w)); share < 5e-4 || share > 2e-2 {
		t.Errorf("%v of the weights lie in the tails", share)
	}
}

func moments(w []float32) (mean, rms float64) {
	var sum, squares float64
	for _, x := range w {
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	return sum / float64(len(w)), math.Sqrt(squares / float64(len(w)))
}

func TestRefusals(t *testing.T) {
	for name, change := range map[string]func(*random.Shape){
		"no layers":                       func(s *random.Shape) { s.Layers = 0 },
		"a huge width":                    func(s *random.Shape) { s.Width = 1 << 40 },
		"an odd head":                     func(s *random.Shape) { s.Width = 4 * 15 },
		"uneven groups":                   func(s *random.Shape) { s.KVHeads = 3 },
		"a small vocabulary":              func(s *random.Shape) { s.Vocab = 257 },
		"no theta":                        func(s *random.Shape) { s.RopeTheta = 0 },
		"half a delta net":                func(s *random.Shape) { s.Delta.Heads = 4 },
		"a delta net's head without keys": func(s *random.Shape) { s.Delta = random.DeltaShape{Heads: 4, KeyHeads: 3, HeadDim: 32} },
		"a mixture of delta nets": func(s *random.Shape) {
			s.Delta, s.Experts, s.Used = random.DeltaShape{Heads: 4, KeyHeads: 4, HeadDim: 32}, 4, 2
		},
	} {
		s := small
		change(&s)
		if _, err := random.Checkpoint(s, tensor.BF16, 0); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if _, err := random.Checkpoint(small, tensor.I8, 0); err == nil {
		t.Error("i8 was accepted")
	}
	for _, name := range random.ShapeNames() {
		if s, ok := random.ShapeByName(name); !ok || s.Check() != nil {
			t.Errorf("%s: %v", name, s.Check())
		}
	}
	if _, ok := random.ShapeByName("9b"); ok {
		t.Error("an unknown name has a shape")
	}
}

// Random blocks are a GGUF file that opens, whose weights have the size they
// should.
// writeBlocks writes a shape in blocks of q4_0.
func writeBlocks(t *testing.T, s random.Shape) string {
	t.Helper()
	x, err := random.Blocks(s, "q4_0", 5)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "blocks.gguf")
	if err := x.WriteGGUF(context.Background(), atomicfile.Scratch(path), nil); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBlocks(t *testing.T) {
	s := random.Shape{Layers: 1, Width: 256, Inner: 512, Heads: 4, KVHeads: 2, Vocab: 300, Context: 64, RopeTheta: 1e4}
	for _, name := range random.BlockSchemes() {
		x, err := random.Blocks(s, name, 5)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "blocks.gguf")
		if err := x.WriteGGUF(context.Background(), atomicfile.Scratch(path), nil); err != nil {
			t.Fatal(err)
		}
		m, err := checkpoint.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		down := m.Tensor(m.Graph.Blocks[0].FFN.Down.Weight)
		if down.Scheme != name {
			t.Errorf("the matrices are %s instead of %s", down.Scheme, name)
		}
		checkSpread(t, &down)
	}
	s.Experts, s.Used, s.HeadDim, s.Inner = 4, 2, 64, 256
	for _, dir := range []string{writeBlocks(t, s), write(t, s, tensor.BF16, 3)} {
		m, err := checkpoint.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if x := m.Graph.Blocks[0].MoE; x == nil || x.Experts != 4 || x.TopK != 2 || m.Graph.Blocks[0].Attn.HeadDim != 64 {
			t.Errorf("%s: %+v", dir, m.Graph.Blocks[0])
		}
		checkLogits(t, m)
	}
	delta := random.Shape{Layers: 4, Width: 256, Inner: 512, Heads: 4, KVHeads: 2, HeadDim: 64, Delta: random.DeltaShape{Heads: 8, KeyHeads: 4, HeadDim: 32},
		Vocab: 300, Context: 64, RopeTheta: 1e4, Tied: true}
	for _, dir := range []string{writeBlocks(t, delta), write(t, delta, tensor.BF16, 3)} {
		m, err := checkpoint.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		b := m.Graph.Blocks
		if b[0].Delta == nil || b[0].Delta.Heads != 8 || b[0].Delta.KeyHeads != 4 || b[3].Attn == nil || b[3].Attn.HeadDim != 64 {
			t.Errorf("%s: %+v", dir, b)
		}
		checkLogits(t, m)
	}
	if _, err := random.Blocks(s, "q3_k", 5); err == nil {
		t.Error("blocks of an unlisted scheme were made")
	}
	if _, err := random.Blocks(random.Shape{Layers: 1, Width: 48, Inner: 512, Heads: 4, KVHeads: 2, Vocab: 300, Context: 64, RopeTheta: 1e4}, "q4_k", 5); err == nil {
		t.Error("rows of half a block were made")
	}
}

// Shapes of published models, of few blocks, open as what the model has and compute.
func TestPublishedShapes(t *testing.T) {
	for _, c := range []struct {
		name   string
		layers int64
		holds  func(b []graph.Block) bool
		scheme string // of the last block's down projection
	}{
		{"qwen3.5-9b", 4, func(b []graph.Block) bool {
			return b[0].Delta.Heads == 32 && b[3].Attn.HeadDim == 256 && b[3].FFN != nil
		}, "q4_k"},
		{"qwen3.6-35b-a3b", 4, func(b []graph.Block) bool { return b[2].Delta != nil && b[3].MoE.Experts == 256 && b[3].MoE.TopK == 8 }, "q4_k"},
		{"kimi-linear-48b-a3b", 4, func(b []graph.Block) bool {
			return b[0].Delta.ByChannel && b[0].FFN != nil && b[1].MoE.Experts == 256 && b[3].Latent.Rank == 512 && b[3].Latent.Rope < 0
		}, "q4_k"},
		{"gpt-oss-20b", 2, func(b []graph.Block) bool {
			return b[0].Attn.Window == 128 && b[1].Attn.Window == 0 && b[1].Attn.Sinks != ""
		}, "mxfp4"},
		{"gemma-4-26b-a4b", 2, func(b []graph.Block) bool {
			return b[0].Attn.HeadDim == 256 && b[1].Attn.HeadDim == 512 && b[1].FFN != nil && b[1].MoE != nil
		}, "q4_0"},
	} {
		s, _ := random.ShapeByName(c.name)
		s.Layers = c.layers
		x, err := random.Blocks(s, "", 5)
		if err != nil {
			t.Fatal(c.name, err)
		}
		w, err := gguf.NewWriter(x.Keys, nil)
		if err != nil {
			t.Fatal(c.name, err)
		}
		var meta bytes.Buffer
		w.WriteTo(&meta)
		f, err := gguf.Parse(c.name, meta.Bytes())
		if err != nil {
			t.Fatal(c.name, err)
		}
		m, err := checkpoint.FromGGUF(c.name, f, x.Tensors)
		if err != nil {
			t.Fatal(c.name, err)
		}
		want := map[bool]uint32{true: 38, false: 15}[c.scheme == "mxfp4"] // as llama.cpp numbers files: mxfp4, q4_k
		if got, err := f.Int("general.file_type"); err != nil || uint32(got) != want {
			t.Errorf("%s: file type %v instead of %v, %v", c.name, got, want, err)
		}
		if len(m.Graph.Blocks) != int(c.layers) || !c.holds(m.Graph.Blocks) {
			t.Errorf("%s: %+v", c.name, m.Graph.Blocks)
		}
		last := m.Graph.Blocks[c.layers-1]
		name := ""
		if last.MoE != nil {
			name = last.MoE.Down.Weight
		} else {
			name = last.FFN.Down.Weight
		}
		if got := m.Tensor(name).Scheme; got != c.scheme {
			t.Errorf("%s: %s is %s instead of %s", c.name, name, got, c.scheme)
		}
		if _, err := random.Checkpoint(s, tensor.BF16, 5); err == nil {
			t.Errorf("%s: a checkpoint of plain weights was made", c.name)
		}
		s.Width = 64
		if s.Check() == nil {
			t.Errorf("%s of another width was accepted", c.name)
		}
	}
}

// checkSpread holds a [256][512] matrix to a mean of 0 and a root mean square of
// 1/sqrt(512). The codes of q4_0 have a mean of half a step, a ninth of that.
func checkSpread(t *testing.T, x *formats.Tensor) {
	t.Helper()
	w := make([]float32, 256*512)
	if err := scheme.DecodeRows(w, x, 0, 256); err != nil {
		t.Fatal(err)
	}
	var sum, squares float64
	for _, v := range w {
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	mean, rms := sum/float64(len(w)), math.Sqrt(squares/float64(len(w)))
	if want := 1 / math.Sqrt(512); math.Abs(rms/want-1) > 0.05 || math.Abs(mean) > want/8 {
		t.Errorf("%s: mean %v, root mean square %v instead of %v", x.Scheme, mean, rms, want)
	}
}
