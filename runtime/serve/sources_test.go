package serve

import "testing"

func TestModelName(t *testing.T) {
	for path, want := range map[string]string{
		"a/b/model.nstf": "model", "model.gguf": "model", "folder/": "folder", "x.y": "x.y",
		"/c/models--org--Some-Model-1B/snapshots/0123abcd": "Some-Model-1B", "/c/models--gpt2/snapshots/0123abcd": "gpt2", "/c/models--org--x/snapshots/01/model.q4.gguf": "model.q4",
	} {
		if got := modelName(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
