package corpus_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/corpus"
)

// TestParquet reads what pyarrow wrote (testdata/parquet/make.py).
func TestParquet(t *testing.T) {
	texts, err := corpus.Read("../../testdata/parquet/text.parquet")
	if err != nil || fmt.Sprintf("%q", texts) != `["one" "zwölf" "" ""]` {
		t.Errorf("%q, %v", texts, err)
	}
	samples, err := corpus.ReadSamples("../../testdata/parquet/chat.parquet")
	if err != nil || len(samples) != 4 {
		t.Fatalf("%v, %v", samples, err)
	}
	for i, want := range []string{`[{"content":"Hi <b>","role":"user"},{"content":"Hello","role":"assistant"}]`, `[]`, `[{"content":"","role":"system"}]`, `[]`} {
		if got := string(samples[i].Messages); got != want {
			t.Errorf("row %d: %s, want %s", i, got, want)
		}
	}
	var u *formats.UnsupportedError
	if _, err := corpus.Read("../../testdata/parquet/chat.parquet"); !errors.As(err, &u) {
		t.Errorf("conversations were read as texts: %v", err)
	}
	var f *formats.FormatError
	if _, err := corpus.Read("../../testdata/parquet/other.parquet"); !errors.As(err, &f) || !strings.Contains(err.Error(), `"body"`) {
		t.Errorf("no column of text: %v", err)
	}
	whole, err := os.ReadFile("../../testdata/parquet/text.parquet")
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(whole); n += 5 {
		if _, err := corpus.ParseSamples("cut.parquet", whole[:n]); !errors.As(err, &f) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
}

func TestMessages(t *testing.T) {
	samples, err := corpus.ParseSamples("a.jsonl", []byte("{\"text\":\"a\"}\n{\"id\":1, \"messages\": [ {\"role\": \"user\"} ] , \"x\": 2}\n"))
	if err != nil || len(samples) != 2 || string(samples[1].Messages) != `[ {"role": "user"} ]` || samples[0].Messages != nil {
		t.Errorf("%q, %v", samples, err)
	}
	for _, c := range []struct {
		file   string
		offset int64
	}{{"{\"messages\":{}}", 12}, {"\n{\"messages\":[],\"text\":\"a\"}", 1}, {"{\"messages\":[}", 13}, {"{\"messages\":[],\"messages\":[]}", 26}} {
		_, err := corpus.ParseSamples("a.jsonl", []byte(c.file))
		var f *formats.FormatError
		if !errors.As(err, &f) || f.Offset != c.offset {
			t.Errorf("%q: %v, want a FormatError at byte %d", c.file, err, c.offset)
		}
	}
}

func FuzzParquet(f *testing.F) {
	for _, name := range []string{"text", "chat", "other"} {
		p, err := os.ReadFile("../../testdata/parquet/" + name + ".parquet")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		samples, err := corpus.ParseSamples("f.parquet", p)
		if err != nil && samples != nil {
			t.Error("samples beside an error")
		}
		var format *formats.FormatError
		var unsupported *formats.UnsupportedError
		if err != nil && !errors.As(err, &format) && !errors.As(err, &unsupported) {
			t.Errorf("%T: %v", err, err)
		}
	})
}

// TestDefault finds enough text for 128 windows of 512 tokens of four bytes.
func TestDefault(t *testing.T) {
	samples, err := corpus.Default()
	n := 0
	for _, s := range samples {
		n += len(s.Text)
	}
	if err != nil || n < 128*512*4 || len(samples) < 30 {
		t.Errorf("%d texts of %d bytes: %v", len(samples), n, err)
	}
}

// A folder, and a file that a compressor made, are named as what they are.
func TestOtherThanText(t *testing.T) {
	dir := t.TempDir()
	var format *formats.FormatError
	if _, err := corpus.ReadSamples(dir); !errors.As(err, &format) || !strings.Contains(err.Error(), "folder") {
		t.Errorf("%v", err)
	}
	for _, magic := range []string{"\x1f\x8b\x08\x00", "\x28\xb5\x2f\xfd\x00"} {
		if _, err := corpus.ParseSamples("t.txt", []byte(magic)); !errors.As(err, &format) || !strings.Contains(err.Error(), "unpacked") {
			t.Errorf("%q: %v", magic, err)
		}
	}
}
