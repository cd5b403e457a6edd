package scheme_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
)

func itoa(v int64) string { return strconv.FormatInt(v, 10) }

// page returns the page of a scheme. Plain element types share one.
func page(s *scheme.Scheme) string {
	if s.Plain() {
		return "plain.md"
	}
	return s.Basename() + ".md"
}

// vectorsOf lists the vectors of a scheme: ggml's by its name, others by the
// index. The plain types are held by exhaustive tests of formats/tensor
// instead (and by smallfloats.f32.gz), which TestPlain uses.
func vectorsOf(t *testing.T, s *scheme.Scheme) []string {
	switch {
	case s.Plain():
		return []string{"smallfloats"}
	case s.BlockBytes > 0:
		return []string{strings.ToUpper(s.Name)}
	}
	var names []string
	for _, v := range readIndex(t) {
		if v.Scheme == s.Name {
			names = append(names, v.Name)
		}
	}
	return names
}

// TestComplete walks the table: every scheme has a page that gives its id and
// name, and vectors that exist and that the page names. The decode tests walk
// the same lists.
func TestComplete(t *testing.T) {
	for _, s := range scheme.Table() {
		t.Run(s.Name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("../../docs/schemes", page(s)))
			if err != nil {
				t.Fatal(err)
			}
			row := "| " + itoa(int64(s.ID)) + " | `" + s.Name + "` |"
			if !strings.Contains(string(text), row) {
				t.Errorf("%s does not hold the row %q", page(s), row)
			}
			names := vectorsOf(t, s)
			if len(names) == 0 {
				t.Error("no vector")
			}
			for _, name := range names {
				if !strings.Contains(string(text), name+".f32.gz`") {
					t.Errorf("%s does not name the vector %s.f32.gz", page(s), name)
				}
				if _, err := os.Stat(filepath.Join(vectors, name+".f32.gz")); err != nil {
					t.Error(err)
				}
			}
			if s.Plain() {
				return
			}
			if _, err := os.Stat(s.Basename() + ".go"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPages refuses pages that no scheme has, and those that the list of pages lacks.
func TestPages(t *testing.T) {
	known := map[string]bool{"README.md": true}
	for _, s := range scheme.Table() {
		known[page(s)] = true
	}
	pages, err := filepath.Glob("../../docs/schemes/*")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	list, err := os.ReadFile("../../docs/schemes/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		name := filepath.Base(p)
		if !known[name] {
			t.Errorf("%s belongs to no scheme", p)
		}
		if name != "README.md" && !strings.Contains(string(list), "]("+name+")") {
			t.Errorf("docs/schemes/README.md does not lead to %s", name)
		}
	}
}
