package export_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/export"
	"github.com/nstf/nstf/formats/gguf"
)

// A GGUF may come without a vocabulary; the model is then whole, but mute.
func TestHasTokenizer(t *testing.T) {
	m, err := checkpoint.Open("../../testdata/micro/llama-2")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	x, err := export.GGUF(m, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, with := range []bool{true, false} {
		if !with {
			x.Keys = slices.DeleteFunc(x.Keys, func(kv gguf.KV) bool { return strings.HasPrefix(kv.Key, "tokenizer.") })
		}
		path := filepath.Join(t.TempDir(), "x.gguf")
		if err := x.WriteGGUF(context.Background(), atomicfile.Scratch(path), nil); err != nil {
			t.Fatal(err)
		}
		g, err := checkpoint.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.HasTokenizer(); got != with {
			t.Errorf("HasTokenizer is %v, want %v", got, with)
		}
		if _, err := g.Tokenizer(); (err == nil) != with {
			t.Errorf("Tokenizer: %v", err)
		}
		g.Close()
	}
}
