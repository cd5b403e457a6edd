package ledger_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/ledger"
)

func example() *ledger.Ledger {
	return &ledger.Ledger{
		Version: 1,
		Source:  ledger.Source{Model: "m", Hash: "00", Text: "calib.jsonl", TextHash: "ff", Context: 512, Windows: 112, Held: "calib.jsonl", HeldCount: 16, Seed: 1},
		Model: ledger.Model{Bytes: 4096, BPW: 3, PredictedKLD: 0.02, KLD: &ledger.Figure{Mean: 0.019, SE: 0.001}, Floor: &ledger.Figure{Mean: -1e-9},
			Perplexity: &ledger.Figure{Mean: 12, SE: 0.5}, Original: &ledger.Figure{Mean: 11.5, SE: 0.5}, Top1: &ledger.Figure{Mean: 0.95, SE: 0.01}},
		Notes:   []string{"block 1 was planned again"},
		Experts: []ledger.Expert{{Input: "blocks.0.ffn", Expert: 3, Tokens: 0, Used: "the block's"}},
		Blocks:  []ledger.Block{{0, 0.01}, {1, 0.02}},
		Layers: []ledger.Layer{
			{Block: 0, Bytes: 128, Loss: 0.01, Bits: &ledger.Saving{Tensors: 1, Bytes: 64, Loss: 0.02}, Factors: &ledger.Saving{Tensors: 1, Bytes: 32, Loss: 0.03},
				KV: &ledger.KeptKV{Format: "q4", Bytes: 100.5, KLD: 0.001}, Pages: &ledger.PagesOf{Read: 0.1, KLD: 0.002}},
			{Block: -1, Bytes: 4096, Loss: 0.02},
		},
		Tensors: []ledger.Tensor{
			{Name: "embed", Role: "embed", Block: -1, Recipe: "tcq3", Method: "feedback", Bits: 3.01, Bytes: 4096, Predicted: 0.01, Obtained: 0.012, Loss: 0.02, Seconds: 1.5,
				RunnerUp: &ledger.Alternative{Recipe: "tcq4", Bytes: 5000, Loss: 0.005}},
			{Name: "norm", Role: "norm", Block: 0, Recipe: "keep", Bits: 32, Bytes: 128},
		},
	}
}

// TestRoundTrip writes a ledger, reads it, and writes it again.
func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.json")
	if err := example().Write(atomicfile.Scratch(path)); err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(l, example()) {
		t.Errorf("read %+v", l)
	}
	if string(l.Encode()) != string(example().Encode()) {
		t.Errorf("written again it is\n%s", l.Encode())
	}
	if x, ok := l.Tensor("norm"); !ok || x.Bits != 32 {
		t.Errorf("tensor %+v", x)
	}
}

// TestMalformed damages a ledger in one place at a time.
func TestMalformed(t *testing.T) {
	good := string(example().Encode())
	for _, c := range []struct{ from, to, says string }{
		{`"version": 1`, `"version": 3`, `version 3`},
		{`"version": 1`, `"version": 0`, `version`},
		{`"drift": 0.01`, `"drift": Infinity`, `"drift"`},
		{`"drift": 0.01`, `"draft": 0.01`, `unknown field "draft"`},
		{`, "drift": 0.01`, ``, `field "drift" is missing`},
		{`"block": -1`, `"block": -2`, `"block"`},
		{`"format": "q4"`, `"format": 4`, `expected`},
		{`"read": 0.1, `, ``, `"read"`},
		{`"bits": {"tensors": 1`, `"bits": {"tensors": 1.5`, `"bits.tensors"`},
		{`"mean": 0.019`, `"mean": "0.019"`, `number expected`},
		{`"bytes": 128`, `"bytes": -128`, `"bytes"`},
	} {
		bad := strings.Replace(good, c.from, c.to, 1)
		if bad == good {
			t.Fatalf("%q is not in the ledger", c.from)
		}
		_, err := ledger.Parse("l.json", []byte(bad))
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "l.json: ") || !strings.Contains(err.Error(), "at byte ") {
			t.Errorf("%s: %v", c.to, err)
		}
	}
	for i := range good {
		if _, err := ledger.Parse("", []byte(good[:i])); err == nil && strings.TrimSpace(good[i:]) != "" {
			t.Fatalf("cut at %d it is read", i)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(example().Encode())
	f.Add((&ledger.Ledger{}).Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := ledger.Parse("f", data)
		if err != nil {
			var format *formats.FormatError
			var unsupported *formats.UnsupportedError
			if !errors.As(err, &format) && !errors.As(err, &unsupported) {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		once := l.Encode()
		again, err := ledger.Parse("f", once)
		if err != nil || string(again.Encode()) != string(once) {
			t.Fatalf("%v: %s", err, once)
		}
	})
}

func Example() {
	l, err := ledger.Parse("nstf/ledger.json", (&ledger.Ledger{Model: ledger.Model{PredictedKLD: 0.02}}).Encode())
	fmt.Println(l.Model.PredictedKLD, err)
	// Output: 0.02 <nil>
}
