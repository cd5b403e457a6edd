package corpus

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
)

// written writes a file and returns its path.
func written(t *testing.T, name string, p []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, p, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// numbered is a text whose lines tell where they stood.
func numbered(n int, format string) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.Bytes()
}

func total(samples []Sample) (n int64) {
	for _, s := range samples {
		n += int64(len(s.Text))
	}
	return n
}

// Of a long file as much is read as is wanted: from its start, or from all its parts, in
// whole lines.
func TestLoadSome(t *testing.T) {
	const most = 64 << 10
	for name, c := range map[string]struct {
		path string
		line string // how each begins
	}{
		"plain": {written(t, "a.txt", numbered(100000, "line %d of a text\n")), "line "},
		"jsonl": {written(t, "a.jsonl", numbered(100000, "{\"text\":\"line %d of a text\"}\n")), "line "},
	} {
		for _, spread := range []bool{false, true} {
			got, err := Load(c.path, Want{Most: most, Spread: spread})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if n := total(got.Samples); n > most || n < most/3 {
				t.Errorf("%s, spread %v: %d bytes of %d", name, spread, n, most)
			}
			last := 0
			for _, s := range got.Samples {
				for _, l := range strings.Split(strings.TrimSpace(s.Text), "\n") {
					var at int
					if _, err := fmt.Sscanf(l, "line %d of a text", &at); err != nil {
						t.Fatalf("%s: a line that was cut: %q", name, l)
					}
					if at < last {
						t.Fatalf("%s: line %d behind %d", name, at, last)
					}
					last = at
				}
			}
			if (last > 90000) != spread {
				t.Errorf("%s, spread %v: the last line is %d of 100000", name, spread, last)
			}
		}
	}
}

// A line longer than what is wanted is cut between characters.
func TestLoadLongLine(t *testing.T) {
	for _, name := range []string{"a.txt", "a.jsonl"} {
		text := bytes.Repeat([]byte("zwölf "), 100000)
		if name == "a.jsonl" {
			text = []byte(`{"text":"` + string(text) + "\"}\n")
		}
		for _, spread := range []bool{false, true} {
			got, err := Load(written(t, name, text), Want{Most: 10001, Spread: spread})
			if err != nil || got.Invalid > 0 || total(got.Samples) > 10001 || total(got.Samples) < 8000 {
				t.Errorf("%s: %v, %d bytes, %d invalid", name, err, total(got.Samples), got.Invalid)
			}
		}
	}
}

// A pipe is read up to what is wanted, and told from a file by its hash.
func TestLoadPipe(t *testing.T) {
	whole := numbered(10000, "line %d of a text\n")
	r := bytes.NewReader(whole)
	got, err := Load(Standard, Want{Most: 5000, Input: r})
	if err != nil || !got.Piped || got.Size != total(got.Samples) || got.Size > 5000 || got.Size < 4900 || !strings.HasSuffix(got.Samples[0].Text, "text\n") {
		t.Fatalf("%v: %+v", err, got)
	}
	if left := r.Len(); left == 0 {
		t.Error("the pipe was read to its end")
	}
	all, err := Load(Standard, Want{Input: bytes.NewReader(whole)})
	if err != nil || total(all.Samples) != int64(len(whole)) || all.Hash == got.Hash {
		t.Fatalf("%v: %d bytes", err, total(all.Samples))
	}
}

// What is not text is refused, whatever its name; a few bytes that are no UTF-8 are
// counted.
func TestLoadBinary(t *testing.T) {
	binary := make([]byte, 20000)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range binary {
		binary[i] = byte(1 + rng.IntN(255))
	}
	var f *formats.FormatError
	for name, p := range map[string][]byte{"random": binary, "NUL": []byte("a\x00b"), "Latin-1": bytes.Repeat([]byte("na\xefve caf\xe9 "), 100), "gzip": {0x1f, 0x8b, 8, 0}} {
		if _, err := Load(written(t, "x.txt", p), Want{}); !errors.As(err, &f) {
			t.Errorf("%s from a file: %v", name, err)
		}
		if _, err := Load(Standard, Want{Input: bytes.NewReader(p)}); !errors.As(err, &f) {
			t.Errorf("%s from a pipe: %v", name, err)
		}
	}
	got, err := Load(written(t, "x.txt", append(numbered(1000, "line %d of a text\n"), 0xff, 'a', 0xc3)), Want{})
	if err != nil || got.Invalid != 2 {
		t.Errorf("%v, %+v", err, got.Invalid)
	}
}
