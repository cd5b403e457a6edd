package tokenizer

import (
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/gguf"
	"github.com/nstf/nstf/testdata/packed"
)

// shared returns a path in the folder of shared test data, which is not part
// of the repository.
func shared(t testing.TB, path ...string) string {
	root := os.Getenv("NSTF_SHARED")
	if root == "" {
		t.Skip("NSTF_SHARED is not set: the trained models and large vocabularies are not here")
	}
	return filepath.Join(append([]string{root}, path...)...)
}

// mustRead reads a file, which may be kept compressed.
func mustRead(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return packed.Read(t, path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// read returns a file's bytes, or nil when there is none.
func read(path string) []byte {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return b
}

func openDir(t testing.TB, dir string, change func(*Files)) *Tokenizer {
	t.Helper()
	f := Files{
		JSON: read(filepath.Join(dir, "tokenizer.json")), Config: read(filepath.Join(dir, "tokenizer_config.json")),
		Special: read(filepath.Join(dir, "special_tokens_map.json")), Generation: read(filepath.Join(dir, "generation_config.json")),
		Model: read(filepath.Join(dir, "tokenizer.model")), ChatTemplate: read(filepath.Join(dir, "chat_template.jinja")),
		ConfigJSON: read(filepath.Join(dir, "config.json")),
	}
	if change != nil {
		change(&f)
	}
	tok, err := FromFiles(dir, f)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func openGGUF(t testing.TB, path string) *Tokenizer {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tok, err := FromGGUF(path, metadataFunc(func(k string) (any, bool) { return f.Get(k) }))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

type refCase struct {
	Text         string  `json:"text"`
	IDs          []int32 `json:"ids"`
	IDsNoSpecial []int32 `json:"ids_no_special"`
	Decoded      string  `json:"decoded"`
}

// checkReference compares with ids that transformers computed.
func checkReference(t *testing.T, tok *Tokenizer, path string) {
	var cases []refCase
	if err := json.Unmarshal(mustRead(t, path), &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%s: %d cases, %v", path, len(cases), err)
	}
	for _, c := range cases {
		ids, err := tok.Encode(c.Text, EncodeOptions{})
		if err != nil || !slices.Equal(ids, c.IDs) {
			t.Errorf("%q: %v\n got %v\nwant %v", c.Text, err, ids, c.IDs)
		}
		plain, err := tok.Encode(c.Text, EncodeOptions{NoSpecial: true})
		if err != nil || !slices.Equal(plain, c.IDsNoSpecial) {
			t.Errorf("%q without specials: %v\n got %v\nwant %v", c.Text, err, plain, c.IDsNoSpecial)
		}
		text, err := tok.Decode(c.IDsNoSpecial, false)
		if err != nil || text != c.Decoded {
			t.Errorf("decoded %q, want %q, %v", text, c.Decoded, err)
		}
		checkStream(t, tok, c.IDs)
	}
}

// checkStream compares a stream with Decode.
func checkStream(t *testing.T, tok *Tokenizer, ids []int32) {
	t.Helper()
	for _, skip := range []bool{false, true} {
		s := tok.NewStream(StreamOptions{SkipSpecial: skip})
		var b strings.Builder
		for _, id := range ids {
			b.WriteString(s.Next(id))
		}
		b.WriteString(s.Flush())
		if want, _ := tok.Decode(ids, skip); b.String() != want {
			t.Errorf("stream of %v gave %q, want %q", ids, b.String(), want)
		}
	}
}

func TestModelsAgainstTransformers(t *testing.T) {
	for _, m := range []string{"base-llama", "tiny-llama", "tiny-qwen3", "tiny-gptj", "tiny-gemma3", "tiny-mixtral"} {
		t.Run(m, func(t *testing.T) {
			dir := shared(t, "models", m)
			checkReference(t, openDir(t, dir, nil), filepath.Join(dir, "reference", "tokenizer.json"))
		})
	}
	t.Run("tiny-gemma3 from tokenizer.model", func(t *testing.T) {
		dir := shared(t, "models", "tiny-gemma3")
		tok := openDir(t, dir, func(f *Files) { f.JSON = nil })
		checkReference(t, tok, filepath.Join(dir, "reference", "tokenizer.json"))
	})
	for _, m := range []string{"tiny-llama", "tiny-qwen3"} {
		t.Run(m+" from GGUF", func(t *testing.T) {
			tok := openGGUF(t, shared(t, "models", m+"-bf16.gguf"))
			checkReference(t, tok, shared(t, "models", m, "reference", "tokenizer.json"))
		})
	}
}

// checkVocab compares with the .inp and .out files of llama.cpp's tests, whose
// ids are without special tokens.
// vocabulary opens one of testdata/vocab.
func vocabulary(t testing.TB, name string) *Tokenizer {
	t.Helper()
	return openGGUF(t, packed.File(t, vocabularyPath(name)))
}

func vocabularyPath(name string) string {
	return filepath.Join(testdata, "vocab", "ggml-vocab-"+name+".gguf")
}

// checkVocab holds a vocabulary to the ids of llama.cpp that lie beside path.
func checkVocab(t *testing.T, tok *Tokenizer, path string) {
	in := strings.Split(string(mustRead(t, path+".inp")), "\n__ggml_vocab_test__\n")
	out := strings.Split(string(mustRead(t, path+".out")), "\n")
	if len(in) < 40 || len(out) < len(in) {
		t.Fatalf("%d texts, %d answers", len(in), len(out))
	}
	for i, text := range in {
		var want []int32
		for _, f := range strings.Fields(out[i]) {
			n, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, int32(n))
		}
		got, err := tok.Encode(text, EncodeOptions{NoSpecial: true})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("case %d %q: %v\n got %v\nwant %v", i, text, err, got, want)
		}
		checkStream(t, tok, got)
	}
}

func TestSharedVocabularies(t *testing.T) {
	for _, v := range []string{"gpt-2", "deepseek-coder", "llama-spm", "phi-3"} {
		t.Run(v, func(t *testing.T) {
			path := shared(t, "vocab", "ggml-vocab-"+v+".gguf")
			checkVocab(t, openGGUF(t, path), path)
		})
	}
}

func nan() float64 { return math.NaN() }

func sharedOrEmpty() string { return os.Getenv("NSTF_SHARED") }
