package nstf

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/testdata/packed"
)

var update = flag.Bool("update", false, "rewrite testdata/nstf from the tables in this package")

const vectorDir = "../../testdata/nstf"

// vector returns the bytes of good/NAME.nstf or bad/NAME.nstf, which lies there as .nstf.gz: most of a package of
// this size is padding.
func vector(t testing.TB, name string) []byte {
	t.Helper()
	return packed.Read(t, filepath.Join(vectorDir, name))
}

// vectorFile returns the path of a copy that is not compressed.
func vectorFile(t testing.TB, name string) string {
	t.Helper()
	return packed.File(t, filepath.Join(vectorDir, name))
}

// An expectation is a line of testdata/nstf/index.json. It can be read
// without this package.
type expectation struct {
	File  string `json:"file"`            // stored as FILE.gz
	Must  string `json:"must"`            // number in docs/nstf.md
	Layer string `json:"layer,omitempty"` // preamble, header, layout, verify; none for good ones
	Error string `json:"error,omitempty"` // format or unsupported
	Says  string `json:"says,omitempty"`  // part of this program's message
	// Lists is what a program meets that only lists, verifies or copies: "whole" where it
	// opens and verifies the package, or the layer that fails; none where it fares like others.
	Lists string `json:"lists,omitempty"`
	What  string `json:"what"`
}

// layerOf runs a package through the layers and returns the first that fails.
func layerOf(data []byte, path string) (layer string, err error) { return layerAs(data, path, false) }

// layerAs does so for a program that decodes, or that only lists what is stored.
func layerAs(data []byte, path string, stored bool) (layer string, err error) {
	p := &Package{path: path, size: int64(len(data)), src: bytes.NewReader(data)}
	head, err := p.preamble()
	if err != nil {
		return "preamble", err
	}
	d := newDecoder(head, path, p.src, p.dataStart, p.size)
	d.stored = stored
	if p.header, err = d.parse(); err != nil {
		return "header", err
	}
	if err := d.checkLayout(p.header); err != nil {
		return "layout", err
	}
	return "verify", p.Verify(context.Background(), nil)
}

// family names the family of errors that err belongs to.
func family(err error) string {
	var format *formats.FormatError
	var unsupported *formats.UnsupportedError
	switch {
	case errors.As(err, &format):
		return "format"
	case errors.As(err, &unsupported):
		return "unsupported"
	}
	return "neither"
}

func readIndex(t testing.TB) []expectation {
	t.Helper()
	p, err := os.ReadFile(filepath.Join(vectorDir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index []expectation
	if err := json.Unmarshal(p, &index); err != nil {
		t.Fatal(err)
	}
	return index
}

// TestUpdate writes the vectors and their index when -update is given.
func TestUpdate(t *testing.T) {
	if !*update {
		t.Skip("run with -update to rewrite testdata/nstf")
	}
	index := []expectation{}
	for _, dir := range []string{"good", "bad"} {
		if err := os.RemoveAll(filepath.Join(vectorDir, dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(vectorDir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	save := func(e expectation, data []byte) {
		var small bytes.Buffer
		z, _ := gzip.NewWriterLevel(&small, gzip.BestCompression)
		if _, err := z.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(vectorDir, e.File+".gz"), small.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		index = append(index, e)
	}
	for _, v := range goodVectors() {
		save(expectation{File: "good/" + v.name + ".nstf", Must: v.must, What: v.what}, v.build(t))
	}
	for _, v := range badVectors() {
		save(expectation{File: "bad/" + v.must + "-" + v.name + ".nstf", Must: v.must,
			Layer: v.layer, Error: v.family, Says: v.says, Lists: listed()[v.must+"-"+v.name], What: v.what}, v.build(t))
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(index); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(vectorDir, "index.json"), out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestVectors holds the reader to the committed vectors.
func TestVectors(t *testing.T) {
	index := readIndex(t)
	listed := map[string]bool{"index.json": true}
	for _, e := range index {
		listed[e.File+".gz"] = true
		t.Run(e.File, func(t *testing.T) {
			data := vector(t, e.File)
			checkListed(t, e, data)
			layer, err := layerOf(data, e.File)
			if e.Layer == "" {
				if err != nil {
					t.Fatalf("%s: %v", layer, err)
				}
				checkFiles(t, e.File)
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			if layer != e.Layer || family(err) != e.Error || !strings.Contains(err.Error(), e.Says) {
				t.Errorf("%s layer, %s error: %v\nwant %s layer, %s error with %q",
					layer, family(err), err, e.Layer, e.Error, e.Says)
			}
			if !strings.HasPrefix(err.Error(), e.File) {
				t.Errorf("error does not name the file: %v", err)
			}
			checkOpen(t, e, layer)
		})
	}
	for _, dir := range []string{"good", "bad"} {
		entries, err := os.ReadDir(filepath.Join(vectorDir, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if !listed[dir+"/"+entry.Name()] {
				t.Errorf("%s/%s is not in the index", dir, entry.Name())
			}
		}
	}
}

// checkListed holds a reader that decodes nothing to what a vector's index says of one.
func checkListed(t *testing.T, e expectation, data []byte) {
	t.Helper()
	want := e.Lists
	switch {
	case want == "" && e.Layer == "":
		want = "whole"
	case want == "":
		want = e.Layer
	}
	layer, err := layerAs(data, e.File, true)
	if err == nil {
		layer = "whole"
	}
	if layer != want {
		t.Errorf("listed: %s, %v; want %s", layer, err, want)
	}
	if err != nil && e.Lists != "" && family(err) != "format" {
		t.Errorf("listed: %v", err)
	}
}

// checkFiles reads every attached file of a good vector.
func checkFiles(t *testing.T, name string) {
	p, err := Open(vectorFile(t, name))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, f := range p.Files() {
		data, err := p.File(f.Name)
		if err != nil || int64(len(data)) != f.Size {
			t.Errorf("%s: %d bytes, %v", f.Name, len(data), err)
		}
	}
}

// checkOpen holds Open to fail below the verify layer, and only there.
func checkOpen(t *testing.T, e expectation, layer string) {
	p, err := Open(vectorFile(t, e.File))
	if err == nil {
		p.Close()
	}
	if (err == nil) != (layer == "verify") {
		t.Errorf("Open: %v, but the failing layer is %s", err, layer)
	}
}

// TestWriterMakesVectors holds the writer to the bytes of the good vectors,
// but for those with zstd frames, whose bytes may change with its encoder.
func TestWriterMakesVectors(t *testing.T) {
	for _, v := range goodVectors() {
		want := vector(t, "good/"+v.name+".nstf")
		if got := v.build(t); !v.zstd && !bytes.Equal(got, want) {
			t.Errorf("%s: the writer makes other bytes now", v.name)
		}
	}
}

// TestVectorsCoverMusts holds docs/nstf.md and the index to name the same
// requirements, each with a vector or, marked so, a test by name.
func TestVectorsCoverMusts(t *testing.T) {
	page, err := os.ReadFile("../../docs/nstf.md")
	if err != nil {
		t.Fatal(err)
	}
	covered := map[string]bool{}
	for _, e := range readIndex(t) {
		for _, must := range strings.Fields(e.Must) {
			covered[must] = true
			if !bytes.Contains(page, []byte("**"+must+"**")) {
				t.Errorf("%s: %s is not in docs/nstf.md", e.File, must)
			}
		}
	}
	for _, must := range documentedMusts(page) {
		if !covered[must] && !strings.HasPrefix(must, "W") {
			t.Errorf("%s has no vector", must)
		}
	}
}

// documentedMusts finds the numbers of the requirements in the page.
func documentedMusts(page []byte) []string {
	var out []string
	for _, line := range strings.Split(string(page), "\n") {
		if rest, ok := strings.CutPrefix(line, "- **"); ok {
			if number, _, ok := strings.Cut(rest, "**"); ok && len(number) <= 3 {
				out = append(out, number)
			}
		}
	}
	return out
}

// TestSize keeps the vectors small.
func TestSize(t *testing.T) {
	var sum int64
	err := filepath.WalkDir(vectorDir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if sum > 192<<10 {
		t.Errorf("testdata/nstf has %d bytes, more than 192 KiB", sum)
	}
}
