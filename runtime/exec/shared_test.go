package exec

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// shared returns the folder of the trained models that NSTF_SHARED names.
func shared(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("NSTF_SHARED")
	if dir == "" {
		t.Skip("NSTF_SHARED does not name the folder with the trained models")
	}
	return filepath.Join(dir, "models")
}

// sharedModels lists the trained checkpoints and whose reference holds them.
// Q4_K_M has none of its own: see TestSharedQuantized.
func sharedModels() []struct{ file, reference string } {
	return []struct{ file, reference string }{
		{"tiny-llama", "tiny-llama"},
		{"tiny-llama-bf16.gguf", "tiny-llama"},
		{"tiny-qwen3", "tiny-qwen3"},
		{"tiny-qwen3-bf16.gguf", "tiny-qwen3"},
		{"tiny-gptj", "tiny-gptj"},
		{"tiny-gemma3", "tiny-gemma3"},
		{"tiny-mixtral", "tiny-mixtral"},
	}
}

// Trained models against transformers' float32 logits and greedy tokens.
func TestSharedModels(t *testing.T) {
	models := sharedModels()
	if os.Getenv("NSTF_BASE") != "" { // 54 M parameters: for reports
		models = append(models, struct{ file, reference string }{"base-llama", "base-llama"})
	}
	dir := shared(t)
	for _, m := range models {
		t.Run(m.file, func(t *testing.T) {
			ref := filepath.Join(dir, m.reference, "reference")
			s := sequence(t, open(t, filepath.Join(dir, m.file), Options{Exact: true}))
			ids := readIDs(t, filepath.Join(ref, "logits_ids.json"))
			want := readNPY(t, filepath.Join(ref, "logits_f32.npy"))
			checkLogits(t, "prefill", allLogits(t, s, ids), want, logitTolerance)
			s.Reset()
			checkLogits(t, "steps", stepLogits(t, s, ids), want, logitTolerance)
			var cases []greedyCase
			readJSON(t, filepath.Join(ref, "greedy.json"), &cases)
			if len(cases) == 0 {
				t.Error("the reference has no greedy cases")
			}
			for _, c := range cases {
				c.check(t, s, false)
			}
		})
	}
}

// Gemma 3 beyond its window of 128: rows for positions 200 to 299.
func TestSharedLongGemma(t *testing.T) {
	dir := filepath.Join(shared(t), "tiny-gemma3")
	ids := readIDs(t, filepath.Join(dir, "reference/long_ids.json"))
	want := readNPY(t, filepath.Join(dir, "reference/long_logits_f32.npy"))
	if len(ids) != 300 || len(want) != 100 {
		t.Fatalf("%d ids, %d rows", len(ids), len(want))
	}
	s := sequence(t, open(t, dir, Options{Exact: true}))
	checkLogits(t, "prefill", allLogits(t, s, ids)[200:], want, logitTolerance)
	s.Reset()
	checkLogits(t, "steps", stepLogits(t, s, ids)[200:], want, logitTolerance)
	s.Reset()
	got := slices.Concat(allLogits(t, s, ids[:150]), allLogits(t, s, ids[150:250]), stepLogits(t, s, ids[250:]))
	checkLogits(t, "parts of 150, 100 and single tokens", got[200:], want, logitTolerance)
}

// A quantized model has no reference: its logits are near those of the model
// that it was made from, and batches and steps agree with each other.
func TestSharedQuantized(t *testing.T) {
	dir := shared(t)
	s := sequence(t, open(t, filepath.Join(dir, "tiny-llama-Q4_K_M.gguf"), Options{Exact: true}))
	ids := readIDs(t, filepath.Join(dir, "tiny-llama/reference/logits_ids.json"))
	got := allLogits(t, s, ids)
	full := readNPY(t, filepath.Join(dir, "tiny-llama/reference/logits_f32.npy"))
	same := 0
	for r := range got {
		if argmax(got[r]) == argmax(full[r]) {
			same++
		}
	}
	if same < len(got)*3/4 {
		t.Errorf("the best token is that of the full model in %d of %d rows", same, len(got))
	}
	s.Reset()
	checkLogits(t, "steps against prefill", stepLogits(t, s, ids), got, 1e-5)
}

func readIDs(t testing.TB, path string) (ids []int32) {
	t.Helper()
	readJSON(t, path, &ids)
	if len(ids) == 0 {
		t.Fatalf("%s holds no ids", path)
	}
	return ids
}
