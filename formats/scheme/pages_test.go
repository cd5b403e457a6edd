package scheme_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
)

// A fence is a fenced block of a page: its kind and its text.
type fence struct{ kind, text string }

func fences(page string) (out []fence) {
	for {
		_, rest, ok := strings.Cut(page, "\n```")
		if !ok {
			return out
		}
		kind, rest, _ := strings.Cut(rest, "\n")
		text, rest, _ := strings.Cut(rest, "\n```")
		out = append(out, fence{kind, text})
		page = rest
	}
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPagesByHand decodes the tensors worked by hand on the pages: a "block"
// of bytes, or an "example" with shape and parameters, and the first
// "weights" of it. Every scheme but the plain ones has at least one.
func TestPagesByHand(t *testing.T) {
	for _, s := range scheme.Table() {
		if s.Plain() {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("../../docs/schemes", page(s)))
			if err != nil {
				t.Fatal(err)
			}
			var x formats.Tensor
			worked := 0
			for _, f := range fences(string(text)) {
				switch f.kind {
				case "block":
					x = split(t, "w", s, []int64{1, int64(s.Block)}, nil, unhex(t, f.text))
				case "example":
					x = example(t, s, f.text)
				case "weights":
					got := decodeAll(t, &x)
					for i, w := range strings.Fields(f.text) {
						v, err := strconv.ParseFloat(w, 32)
						if err != nil {
							t.Fatal(err)
						}
						if got[i] != float32(v) {
							t.Errorf("weight %d is %v, on the page %s", i, got[i], w)
						}
					}
					worked++
				}
			}
			if worked == 0 {
				t.Error("no block worked by hand")
			}
		})
	}
}

// example reads lines of "shape D D", "param NAME VALUE" and "bytes HEX".
func example(t *testing.T, s *scheme.Scheme, text string) formats.Tensor {
	t.Helper()
	var shape []int64
	params := map[string]int64{}
	var raw []byte
	number := func(w string) int64 {
		v, err := strconv.ParseInt(w, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, line := range strings.Split(text, "\n") {
		kind, rest, _ := strings.Cut(line, " ")
		words := strings.Fields(rest)
		switch kind {
		case "shape":
			for _, w := range words {
				shape = append(shape, number(w))
			}
		case "param":
			params[words[0]] = number(words[1])
		case "bytes":
			raw = append(raw, unhex(t, rest)...)
		default:
			t.Fatalf("line %q", line)
		}
	}
	return split(t, "w", s, shape, params, raw)
}

// TestPackByHand repeats the repacking on mxfp4's page.
func TestPackByHand(t *testing.T) {
	text, err := os.ReadFile("../../docs/schemes/mxfp4.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string][]byte{}
	for _, f := range fences(string(text)) {
		if f.kind != "weights" {
			parts[f.kind] = unhex(t, f.text) // the last block is the packed one
		}
	}
	got := make([]byte, 17)
	scheme.PackMXFP4(got, parts["codes"], parts["scales"])
	if !bytes.Equal(got, parts["block"]) {
		t.Errorf("packed % x, on the page % x", got, parts["block"])
	}
}
