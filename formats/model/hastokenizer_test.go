package model

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/gguf"
)

// A GGUF may come without a vocabulary; the model is then whole, but mute.
func TestHasTokenizer(t *testing.T) {
	m, err := Open("../../testdata/micro/llama-2")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	x, err := m.GGUF(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, with := range []bool{true, false} {
		if !with {
			x.Keys = slices.DeleteFunc(x.Keys, func(kv gguf.KV) bool { return strings.HasPrefix(kv.Key, "tokenizer.") })
		}
		path := filepath.Join(t.TempDir(), "x.gguf")
		if err := x.WriteGGUF(context.Background(), path, nil); err != nil {
			t.Fatal(err)
		}
		g, err := Open(path)
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
