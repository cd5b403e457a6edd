package place

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

const micro = "../../testdata/micro"

func open(t testing.TB, name string) *model.Model {
	t.Helper()
	m, err := checkpoint.Open(filepath.Join(micro, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*math.Abs(want) {
		t.Errorf("%s: %.1f, want %.1f", what, got, want)
	}
}

// costOf counts a float32 cache, as long as it is asked for.
func costOf(m *model.Model) *Cost {
	numbers := int64(0)
	for _, b := range m.Graph.Blocks {
		if b.Attn != nil {
			numbers += 2 * b.Attn.KVHeads * b.Attn.HeadDim
		}
	}
	return NewCost(m.Graph, m.Tensor, 100*4*numbers, 100)
}

// Counted by hand from config.json: bfloat16, 2 blocks of width 32, 4 query and 2
// key-value heads, vocabulary 264.
func TestCostByHand(t *testing.T) {
	const (
		width, vocab, head2 = 32, 264, 2 * 32 * 264
		headBytes           = 2 * vocab * width
	)
	t.Run("llama-3", func(t *testing.T) { // heads of 8, 64 wide inside
		const qo, kv, ffn = 2 * 32 * 32, 2 * 32 * 16, 3 * 32 * 64
		c := costOf(open(t, "llama-3"))
		weights, cache := c.Bytes(10)
		near(t, "weights", weights, 2*width+headBytes+2*width+2*2*(qo+kv+ffn+2*width))
		near(t, "cache", cache, 2*2*16*4*10)
		near(t, "operations of 1", c.Operations(1), 2*2*(qo+kv+ffn)+2*4*4*8+head2)
		// Ten tokens: 55 positions in block 0, 10 for the last token in block 1.
		near(t, "operations of 10", c.Operations(10), 10*2*(qo+kv+ffn)+2*(10*kv+qo+ffn)+4*4*8*(55+10)+head2)
	})
	t.Run("mixtral", func(t *testing.T) { // 4 experts 32 wide, 2 used
		const attn, expert, router = 2*32*32 + 2*32*16, 3 * 32 * 32, 4 * 32
		c := costOf(open(t, "mixtral"))
		weights, _ := c.Bytes(1)
		near(t, "weights", weights, 2*width+headBytes+2*width+2*2*(attn+2*expert+router+2*width))
		near(t, "operations", c.Operations(1), 2*2*(attn+2*expert+router)+2*4*4*8+head2)
	})
	t.Run("shared layer and sinks", func(t *testing.T) { // 24 wide, with a gate of one output; a bias of 4 and sinks of 4 numbers
		m := open(t, "mixtral")
		c := costOf(m)
		before, _ := c.Bytes(1)
		operations := c.Operations(1)
		b := &m.Graph.Blocks[0]
		gate, factor := b.MoE.Router, b.MoE.Router
		gate.Out, factor.Out = 24, 1
		gate.Weight, factor.Weight = "shared.gate", "shared_gate"
		up, down := gate, gate
		up.Weight, down.Weight, down.In, down.Out = "shared.up", "shared.down", 24, width
		b.MoE.Shared, b.MoE.SharedGate = &graph.FFN{Act: graph.SiLU, Gate: &gate, Up: up, Down: down}, &factor
		b.MoE.SelectBias, b.Attn.Sinks = "bias", "sinks"
		c.tensor = func(name string) formats.Tensor {
			shape, ok := map[string][]int64{"shared.gate": {24, width}, "shared.up": {24, width}, "shared.down": {width, 24}, "shared_gate": {1, width}, "bias": {4}, "sinks": {4}}[name]
			if !ok {
				return m.Tensor(name)
			}
			n, _ := tensor.Elements(shape)
			f32, _ := scheme.ByName("f32")
			x, err := scheme.New(name, f32, shape, nil, tensor.BytesBlob(make([]byte, 4*n)))
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		after, _ := c.Bytes(1)
		near(t, "weights", after-before, 4*(3*24*width+width+4+4))
		near(t, "operations", c.Operations(1)-operations, 2*(3*24*width+width))
	})
	t.Run("mistral-window", func(t *testing.T) { // window of 8, heads of 16
		c := costOf(open(t, "mistral-window"))
		_, few := c.Bytes(5)
		_, many := c.Bytes(100)
		near(t, "5 positions", few, 2*2*32*4*5)
		near(t, "100 positions", many, 2*2*32*4*8)
		// 1+2+...+8 and twelve times 8 in block 0, 8 for the last in block 1.
		const qo, kv, ffn = 2 * 32 * 64, 2 * 32 * 32, 3 * 32 * 64
		near(t, "operations", c.Operations(20), 20*2*(qo+kv+ffn)+2*(20*kv+qo+ffn)+4*4*16*(36+12*8+8)+head2)
	})
}

// For every architecture, a token reads all that is stored except the rows of the
// embedding that are not its own, and the experts that are not used.
func TestBytesAgainstTheFile(t *testing.T) {
	dirs, err := filepath.Glob(micro + "/*/config.json")
	if err != nil || len(dirs) < 20 {
		t.Fatalf("%d checkpoints: %v", len(dirs), err)
	}
	for _, path := range dirs {
		m, err := checkpoint.Open(filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		var want float64
		unused := map[string]float64{}
		for _, b := range m.Graph.Blocks {
			if x := b.MoE; x != nil {
				for _, l := range []*graph.Linear{x.Gate, &x.Up, &x.Down} {
					if l == nil {
						continue
					}
					unused[l.Weight] = float64(x.Experts-x.TopK) / float64(x.Experts)
					unused[l.Bias] = unused[l.Weight]
				}
				delete(unused, "")
			}
		}
		guesses := map[string]bool{} // further tokens, which nobody asks for
		for i := range m.Graph.MTP {
			guesses[m.Graph.MTP[i].Table] = true
			for _, p := range m.Graph.MTP[i].Parts(m.Graph.Width, m.Graph.Vocab) {
				switch {
				case p.Linear != nil:
					guesses[p.Linear.Weight], guesses[p.Linear.Bias] = true, true
				case p.Norm != nil:
					guesses[p.Norm.Weight], guesses[p.Norm.Bias] = true, true
				default:
					guesses[p.Vector] = true
				}
			}
		}
		for _, x := range m.Tensors() {
			if guesses[x.Name] && x.Name != m.Graph.Embed.Table && x.Name != m.Graph.Head.Weight {
				continue
			}
			size := float64(x.Size())
			rows, _ := x.Rows()
			switch {
			case x.Name == m.Graph.Embed.Table && m.Graph.Tied():
				want += size + size/float64(rows)
			case x.Name == m.Graph.Embed.Table || x.Name == m.Graph.Embed.Positions || m.Graph.PerLayer != nil && x.Name == m.Graph.PerLayer.Table:
				want += size / float64(rows)
			default:
				want += size * (1 - unused[x.Name])
			}
		}
		got, _ := costOf(m).Bytes(1)
		near(t, filepath.Dir(path), got, want)
		m.Close()
	}
}

// What attention over latents computes grows with the square of a prompt, like that over
// keys and values.
func TestLatentOperations(t *testing.T) {
	m := open(t, "deepseek_v3")
	c := NewCost(m.Graph, m.Tensor, 0, 0)
	var want float64
	for i := range m.Graph.Blocks[:len(m.Graph.Blocks)-1] { // of the last one all tokens but one attend to nothing
		a := m.Graph.Blocks[i].Latent
		want += float64(2*a.Heads*(a.KeyDim()+a.Rank)) * (20*20 - 10*10)
	}
	bend := func(n int64) float64 { return c.Operations(2*n) - 2*c.Operations(n) } // of what is linear, a constant
	near(t, "operations", bend(20)-bend(10), want)
}
