package form

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
)

// matrix makes a factor in float32.
func matrix(t testing.TB, name string, shape []int64, values []float32) formats.Tensor {
	t.Helper()
	data := make([]byte, 4*len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(v))
	}
	s, _ := scheme.ByName("f32")
	x, err := scheme.New(name, s, shape, nil, tensor.BytesBlob(data))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// block returns the lines of a page's fenced block.
func block(t *testing.T, page, kind string) []string {
	t.Helper()
	_, rest, ok := strings.Cut(page, "```"+kind+"\n")
	text, _, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 {
		t.Fatalf("no block %q", kind)
	}
	return strings.Split(strings.TrimSpace(text), "\n")
}

func numbers(t *testing.T, text string) (out []float32) {
	t.Helper()
	for _, word := range strings.Fields(text) {
		v, err := strconv.ParseFloat(word, 32)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, float32(v))
	}
	return out
}

func integers(t *testing.T, text string) (out []int64) {
	for _, v := range numbers(t, text) {
		out = append(out, int64(v))
	}
	return out
}

// example builds the tensor of a page.
func example(t *testing.T, f Form) (formats.Tensor, []float32) {
	t.Helper()
	data, err := os.ReadFile("../../" + f.Page)
	if err != nil {
		t.Fatal(err)
	}
	var shape []int64
	var params map[string]int64
	var factors []formats.Tensor
	for _, line := range block(t, string(data), "factors") {
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "shape":
			shape = integers(t, rest)
		case "param":
			name, value, _ := strings.Cut(rest, " ")
			if params == nil {
				params = map[string]int64{}
			}
			params[name] = integers(t, value)[0]
		default:
			size, values, _ := strings.Cut(rest, "  ")
			factors = append(factors, matrix(t, word, integers(t, size), numbers(t, values)))
		}
	}
	x, err := New("w", f.ID, shape, params, factors...)
	if err != nil {
		t.Fatal(err)
	}
	return x, numbers(t, strings.Join(block(t, string(data), "weights"), " "))
}

// TestPages decodes the example on every form's page.
func TestPages(t *testing.T) {
	for _, f := range table() {
		if f.layout == nil {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			x, want := example(t, f)
			n, k := x.Rows()
			got, err := Decode(&x)
			if err != nil {
				t.Fatal(err)
			}
			for i := range want {
				if got[i] != want[i] || len(got) != len(want) {
					t.Fatalf("got %v, the page says %v", got, want)
				}
			}
			row := make([]float32, k)
			if err := DecodeRows(row, &x, n-1, 1); err != nil || row[0] != want[(n-1)*k] {
				t.Errorf("the last row alone is %v: %v", row, err)
			}
			if err := scheme.Check(&x); !isUnsupported(err) {
				t.Errorf("a scheme's check gives %v", err)
			}
		})
	}
}

func isUnsupported(err error) bool {
	var u *formats.UnsupportedError
	return errors.As(err, &u)
}

// TestStack holds each matrix of a stack, taken alone, to its rows.
func TestStack(t *testing.T) {
	count := func(name string, shape ...int64) formats.Tensor {
		n, _ := tensor.Elements(shape)
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(i%7) - 3
		}
		return matrix(t, name, shape, v)
	}
	for _, id := range []ID{LowRank, Corrected} {
		factors := []formats.Tensor{count("q", 3, 2, 4), count("a", 3, 2, 2), count("b", 3, 2, 4)}
		if id == LowRank {
			factors = factors[1:]
		}
		x, err := New("w", id, []int64{3, 2, 4}, nil, factors...)
		if err != nil {
			t.Fatal(err)
		}
		all, err := Decode(&x)
		if err != nil {
			t.Fatal(err)
		}
		for e := range int64(3) {
			m, err := MatrixOf(x, e)
			if err != nil {
				t.Fatal(err)
			}
			one, err := Decode(&m)
			if err != nil {
				t.Fatal(err)
			}
			for i := range one {
				if one[i] != all[int(e)*8+i] {
					t.Fatalf("matrix %d is %v, the stack says %v", e, one, all[e*8:e*8+8])
				}
			}
		}
	}
}

// TestDescribe names what plans name.
func TestDescribe(t *testing.T) {
	for _, f := range table() {
		if f.layout == nil {
			continue
		}
		x, _ := example(t, f)
		want := map[ID]string{LowRank: "lowrank:2:f32", Corrected: "f32+lr:1:f32", Shared: "f32+shared:2:f32", Train: "train:1:f32"}[f.ID]
		if got := Describe(&x); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestRefused holds Check to what the pages forbid.
func TestRefused(t *testing.T) {
	zeros := func(name string, shape ...int64) formats.Tensor {
		n, _ := tensor.Elements(shape)
		return matrix(t, name, shape, make([]float32, n))
	}
	type list = []formats.Tensor
	for _, c := range []struct {
		says    string
		id      ID
		shape   []int64
		params  map[string]int64
		factors list
	}{
		{"1 factors", LowRank, []int64{2, 3}, nil, list{zeros("a", 2, 1)}},
		{`"b" stands where "a"`, LowRank, []int64{2, 3}, nil, list{zeros("b", 1, 3), zeros("a", 2, 1)}},
		{"shape [2 3] instead of [1 3]", LowRank, []int64{2, 3}, nil, list{zeros("a", 2, 1), zeros("b", 2, 3)}},
		{"does not suit", LowRank, []int64{3}, nil, list{zeros("a", 1, 1), zeros("b", 1, 3)}},
		{"no parameter", LowRank, []int64{2, 3}, map[string]int64{"rank": 1}, list{zeros("a", 2, 1), zeros("b", 1, 3)}},
		{"shape [3 2] instead of [2 3]", Corrected, []int64{2, 3}, nil, list{zeros("q", 3, 2), zeros("a", 2, 1), zeros("b", 1, 3)}},
		{"shares nothing", Shared, []int64{2, 1, 3}, nil, list{zeros("c", 2, 3), zeros("u", 3, 1, 3)}},
		{"instead of [1 1 3]", Shared, []int64{2, 1, 3}, nil, list{zeros("c", 2, 1), zeros("u", 1, 3, 1)}},
		{"1 factors", Train, []int64{2, 4}, map[string]int64{"cols1": 4}, list{zeros("g1", 2, 4)}},
		{"cores make 4 x 4", Train, []int64{2, 4}, map[string]int64{"cols1": 2, "cols2": 2, "rank1": 1}, list{zeros("g1", 2, 2), zeros("g2", 2, 2)}},
		{"rows of 2 numbers", Train, []int64{4, 4}, map[string]int64{"cols1": 2, "cols2": 2, "rank1": 2}, list{zeros("g1", 2, 2), zeros("g2", 2, 4)}},
		{"no train", Train, []int64{4, 4}, map[string]int64{"cols1": 2, "cols2": 2}, list{zeros("g1", 2, 2), zeros("g2", 2, 2)}},
	} {
		_, err := New("w", c.id, c.shape, c.params, c.factors...)
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), `"w"`) {
			t.Errorf("got %v, want %q", err, c.says)
		}
	}
	broken := zeros("b", 1, 3)
	broken.Scheme = "q99"
	if _, err := New("w", LowRank, []int64{2, 3}, nil, zeros("a", 2, 1), broken); !isUnsupported(err) {
		t.Errorf("an unknown scheme gives %v", err)
	}
}
