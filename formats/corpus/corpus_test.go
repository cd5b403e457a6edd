package corpus_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/corpus"
)

func ExampleParse() {
	texts, err := corpus.Parse("two.jsonl", []byte("{\"text\": \"one\"}\n{\"source\": {\"n\": 1}, \"text\": \"zw\\u00f6lf\"}\n"))
	fmt.Printf("%q %v\n", texts, err)
	// Output: ["one" "zwölf"] <nil>
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, file string
		want       []string
	}{
		{"a.txt", "one\r\ntwo\n", []string{"one\r\ntwo\n"}},
		{"wiki.test.raw", "", []string{""}},
		{"bytes", "\xff\xfe", []string{"\xff\xfe"}},
		{"a.jsonl", "", nil},
		{"a.jsonl", "\n  \r\n{\"text\":\"\"}\r\n\n{\"text\":\"b\\nc\"}", []string{"", "b\nc"}},
	} {
		got, err := corpus.Parse(c.name, []byte(c.file))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s %q: %q, %v", c.name, c.file, got, err)
		}
	}
}

func TestMalformed(t *testing.T) {
	for _, c := range []struct {
		name, file string
		offset     int64
	}{
		{"nul.txt", "ab\x00c", 2},
		{"a.jsonl", "{\"text\":\"a\"}\n{\"txt\":\"b\"}\n", 13},
		{"a.jsonl", "{\"text\":1}", 8},
		{"a.jsonl", "{\"text\":\"a\",\"text\":\"b\"}", 19},
		{"a.jsonl", "[\"a\"]", 0},
		{"a.jsonl", "{\"text\":\"a\"} x", 13},
		{"a.jsonl", "{\"text\":\"a", 10},
	} {
		_, err := corpus.Parse(c.name, []byte(c.file))
		var f *formats.FormatError
		if !errors.As(err, &f) || f.File != c.name || f.Offset != c.offset {
			t.Errorf("%q: %v, want a FormatError at byte %d", c.file, err, c.offset)
		}
	}
}

func TestIDs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ids.json")
	if err := os.WriteFile(path, []byte(" [0, 17, 2147483647]\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	ids, err := corpus.ReadIDs(path)
	if err != nil || !reflect.DeepEqual(ids, []int32{0, 17, 1<<31 - 1}) {
		t.Errorf("%v, %v", ids, err)
	}
	for _, bad := range []string{"", "[-1]", "[2147483648]", "[1.5]", "[[1]]", "[1", "[1] 2", "{\"a\":1}", "[NaN]", "[\"1\"]"} {
		var f *formats.FormatError
		if _, err := corpus.ParseIDs("ids.json", []byte(bad)); !errors.As(err, &f) {
			t.Errorf("%q: %v, want a FormatError", bad, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("{\"text\": \"a\"}\n{\"text\": \"b\", \"n\": [1, {}]}\n"))
	f.Add([]byte("plain"))
	f.Add([]byte("[1,2,3]"))
	f.Fuzz(func(t *testing.T, p []byte) {
		for _, name := range []string{"f.jsonl", "f.txt"} {
			texts, err := corpus.Parse(name, p)
			n := 0
			for _, s := range texts {
				n += len(s)
			}
			if err == nil && n > 2*len(p) {
				t.Errorf("%s: %d bytes of text out of %d", name, n, len(p))
			}
		}
		if ids, err := corpus.ParseIDs("f", p); err == nil && len(ids) > len(p) {
			t.Errorf("%d ids out of %d bytes", len(ids), len(p))
		}
	})
}
