package inspect_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/inspect"
)

// unknown makes a checkpoint of an architecture that nobody here knows.
func unknown(t *testing.T, config string) string {
	t.Helper()
	dir := t.TempDir()
	const source = "../../testdata/micro/llama-2/model.safetensors"
	p, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"model.safetensors": p, "config.json": []byte(config)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// An unknown architecture is shown by its name, as it is stored, from the
// directory and from the file in it.
func TestUnknownArchitecture(t *testing.T) {
	dir := unknown(t, `{"model_type":"unheard_of","hidden_size":64}`)
	for _, path := range []string{dir, filepath.Join(dir, "model.safetensors")} {
		r, err := inspect.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if r.Known || r.Architecture != "unheard_of" || !strings.Contains(r.Note, "unheard_of") || len(r.Tensors) == 0 {
			t.Errorf("%s: %+v", path, r)
		}
	}
}

// Damage is an error, not an unknown architecture.
func TestDamageIsNotShown(t *testing.T) {
	for _, config := range []string{`{"model_type":`, `{"hidden_size":64}`, `{"model_type":"llama","hidden_size":64}`} {
		if r, err := inspect.Open(unknown(t, config)); err == nil {
			t.Errorf("%s: %+v", config, r)
		}
	}
}
