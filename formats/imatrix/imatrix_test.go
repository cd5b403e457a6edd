package imatrix_test

import (
	"errors"
	"math"
	"os"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/imatrix"
	"github.com/nstf/nstf/formats/stats"
)

const folder = "../../testdata/imatrix/"

// TestStats reads both formats, which testdata/imatrix/make.py wrote, as
// statistics of the model that they are of.
func TestStats(t *testing.T) {
	m, err := checkpoint.Open("../../testdata/micro/mixtral")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, name := range []string{"mixtral.gguf", "mixtral.dat"} {
		f, err := imatrix.Open(folder + name)
		if err != nil {
			t.Fatal(err)
		}
		if f.Text != "some.txt" || len(f.Entries) != 8*len(m.Graph.Blocks) {
			t.Errorf("%s: text %q, %d entries", name, f.Text, len(f.Entries))
		}
		s, err := f.Stats(m)
		if err != nil {
			t.Fatal(name, err)
		}
		if err := s.Check(m); err != nil {
			t.Error(name, err)
		}
		b := &m.Graph.Blocks[0]
		for input, entry := range map[string]float64{b.Attn.Q.Input: 0, b.Attn.O.Input: 3, b.MoE.Router.Input: 4} {
			d, err := s.Inputs[input].Diagonal()
			if err != nil || math.Abs(d[1]-1-entry/100) > 1e-5 || s.Inputs[input].Full() || s.Inputs[input].Tokens != 1024 {
				t.Errorf("%s: %s: %v, %d tokens, %v", name, input, d, s.Inputs[input].Tokens, err)
			}
		}
		list := s.Experts[b.MoE.Down.Input]
		if len(list) != int(b.MoE.Experts) {
			t.Fatalf("%s: %d experts", name, len(list))
		}
		if d, _ := list[2].Diagonal(); math.Abs(d[1]-1.07) > 1e-5 || list[2].Tokens == 0 {
			t.Errorf("%s: expert %v, %d tokens", name, d, list[2].Tokens)
		}
		if name == "mixtral.gguf" && list[1].Cover() != stats.CoverBlock {
			t.Errorf("an expert that nothing came to is covered by %s", list[1].Cover())
		}
		other, err := checkpoint.Open("../../testdata/micro/llama-3")
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		var format *formats.FormatError
		if other.Graph.Width != m.Graph.Width {
			if _, err := f.Stats(other); !errors.As(err, &format) {
				t.Errorf("%s: statistics of another model: %v", name, err)
			}
		}
		gptj, err := checkpoint.Open("../../testdata/micro/gptj")
		if err != nil {
			t.Fatal(err)
		}
		defer gptj.Close()
		if _, err := f.Stats(gptj); !errors.As(err, &format) {
			t.Errorf("%s: statistics of another model: %v", name, err)
		}
	}
}

func TestMalformed(t *testing.T) {
	for _, name := range []string{"mixtral.gguf", "mixtral.dat"} {
		whole, err := os.ReadFile(folder + name)
		if err != nil {
			t.Fatal(err)
		}
		var format *formats.FormatError
		for n := 0; n < len(whole)-24; n += 31 {
			if _, err := imatrix.Parse("f", whole[:n]); !errors.As(err, &format) {
				t.Fatalf("%s cut at %d: %v", name, n, err)
			}
		}
		bad := append([]byte(nil), whole...)
		for i := len(bad) / 2; i < len(bad)/2+64; i++ {
			bad[i] = 0xff
		}
		if _, err := imatrix.Parse("f", bad); !errors.As(err, &format) {
			t.Errorf("%s with NaN: %v", name, err)
		}
	}
	if _, err := imatrix.Open("../../testdata/gguf"); err == nil {
		t.Error("a folder was read")
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"mixtral.gguf", "mixtral.dat"} {
		p, err := os.ReadFile(folder + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p)
	}
	f.Add([]byte("\x01\x00\x00\x00\x01\x00\x00\x00a\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00\x80\x3f"))
	f.Fuzz(func(t *testing.T, p []byte) {
		x, err := imatrix.Parse("f", p)
		if err != nil {
			return
		}
		n := 0
		for _, e := range x.Entries {
			for _, row := range e.Values {
				n += len(row)
			}
		}
		if 4*n > len(p) {
			t.Errorf("%d numbers out of %d bytes", n, len(p))
		}
	})
}
