package exec

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/export"
	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/formats/scheme"
)

// configsExports names an empty folder for exports that llama.cpp runs:
// docs/perf/export_configs.py compares their logits.
var configsExports = flag.String("exports", "", "folder for the exports to GGUF of TestConfigs, with refused.json")

// An exporter writes the cases of TestConfigs that GGUF can say.
type exporter struct {
	dir     string // "" writes nothing
	Refused map[int]string
}

// write exports the checkpoint in a folder as the case's number, with a
// vocabulary of numbers only.
func (e *exporter) write(t *testing.T, number int, folder string) {
	t.Helper()
	if e.dir == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(folder, "tokenizer.json"), smallTokenizer(t), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := checkpoint.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	f32, _ := scheme.ByName("f32")
	x, err := export.GGUF(m, f32)
	if err != nil {
		e.Refused[number] = strings.ReplaceAll(err.Error(), folder+": ", "")
		return
	}
	var keys []gguf.KV
	for _, kv := range x.Keys {
		if !strings.HasPrefix(kv.Key, "tokenizer.") {
			keys = append(keys, kv)
		}
	}
	x.Keys = append(keys, gguf.KV{Key: "tokenizer.ggml.model", Value: "none"})
	if err := x.WriteGGUF(t.Context(), atomicfile.Scratch(filepath.Join(e.dir, fmt.Sprint(number)+".gguf")), nil); err != nil {
		t.Fatal(err)
	}
}

// finish writes what was refused.
func (e *exporter) finish(t *testing.T) {
	t.Helper()
	if e.dir == "" {
		return
	}
	p, err := json.MarshalIndent(e.Refused, "", " ")
	if err == nil {
		err = os.WriteFile(filepath.Join(e.dir, "refused.json"), p, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// smallTokenizer is a micro checkpoint's, cut to the cases' vocabulary.
func smallTokenizer(t *testing.T) []byte {
	t.Helper()
	var v map[string]any
	readJSON(t, "../../testdata/micro/llama-2/tokenizer.json", &v)
	bpe := v["model"].(map[string]any)
	vocab := bpe["vocab"].(map[string]any)
	for token, id := range vocab {
		if id.(float64) >= 24 {
			delete(vocab, token)
		}
	}
	bpe["merges"] = []any{}
	p, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
