package logprob_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/logprob"
)

// distribution draws log-probabilities as a language model gives them: a few
// likely tokens, a long tail.
func distribution(rng *rand.Rand, v int) []float64 {
	logits, sum := make([]float64, v), 0.0
	for i := range logits {
		logits[i] = 3 * rng.NormFloat64()
	}
	logits[rng.IntN(v)] += 12
	for _, x := range logits {
		sum += math.Exp(x)
	}
	for i := range logits {
		logits[i] -= math.Log(sum)
	}
	return logits
}

func kl(p, q []float64) float64 {
	sum := 0.0
	for i := range p {
		sum += math.Exp(p[i]) * (p[i] - q[i])
	}
	return sum
}

func write(t testing.TB, h logprob.Header, row func(w int64, r int) ([]float64, int)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ref")
	w, err := logprob.Create(atomicfile.Scratch(path), h)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i := range h.Windows {
		for r := range h.Rows {
			x, target := row(i, r)
			w.Put(r, x, target)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRoundTrip(t *testing.T) {
	const v = 1000
	h := logprob.Header{Protocol: 2, Vocab: v, Window: 8, Rows: 3, Windows: 4, Tokens: [32]byte{1, 2, 3}}
	rng := rand.New(rand.NewPCG(1, 2))
	want := map[[2]int64][]float64{}
	path := write(t, h, func(w int64, r int) ([]float64, int) {
		x := distribution(rng, v)
		want[[2]int64{w, int64(r)}] = x
		return x, r
	})
	if !logprob.Is(path) || logprob.Is(filepath.Dir(path)) {
		t.Error("Is does not tell files from others")
	}
	f, err := logprob.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Header != h {
		t.Errorf("header %+v, want %+v", f.Header, h)
	}
	got, far := make([]float64, v), distribution(rng, v)
	worst, worstFar := 0.0, 0.0
	for _, w := range []int64{3, 0, 1, 2} {
		rows, err := f.Read(w)
		if err != nil {
			t.Fatal(err)
		}
		for r := range rows {
			x := want[[2]int64{w, int64(r)}]
			rows[r].Decode(got)
			sum := 0.0
			for _, g := range got {
				sum += math.Exp(g)
			}
			if math.Abs(sum-1) > 1e-12 {
				t.Errorf("window %d row %d sums to %v", w, r, sum)
			}
			if rows[r].Target != float32(x[r]) || x[rows[r].Argmax] != maxOf(x) {
				t.Errorf("window %d row %d: target %v argmax %d", w, r, rows[r].Target, rows[r].Argmax)
			}
			near := nudge(rng, x)
			worst = max(worst, math.Abs(kl(x, near)-kl(got, near)), math.Abs(kl(x, got)))
			worstFar = max(worstFar, math.Abs(kl(x, far)-kl(got, far))/kl(x, far))
		}
	}
	if worst > 1e-5 || worstFar > 1e-5 {
		t.Errorf("storing moves a row's KL divergence by %g, and relatively by %g where it is large", worst, worstFar)
	}
}

// nudge returns what a compressed model might say: KL about 0.05 away.
func nudge(rng *rand.Rand, x []float64) []float64 {
	y, sum := make([]float64, len(x)), 0.0
	for i := range y {
		y[i] = x[i] + 0.3*rng.NormFloat64()
		sum += math.Exp(y[i])
	}
	for i := range y {
		y[i] -= math.Log(sum)
	}
	return y
}

func maxOf(x []float64) float64 {
	m := x[0]
	for _, v := range x {
		m = max(m, v)
	}
	return m
}

// A uniform row has no range to divide by.
func TestUniform(t *testing.T) {
	h := logprob.Header{Vocab: 4, Window: 1, Rows: 1, Windows: 1}
	x := []float64{math.Log(.25), math.Log(.25), math.Log(.25), math.Log(.25)}
	f, err := logprob.Open(write(t, h, func(int64, int) ([]float64, int) { return x, 0 }))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := f.Read(0)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float64, 4)
	if rows[0].Decode(got); math.Abs(got[2]-x[2]) > 1e-12 {
		t.Errorf("%v, want %v", got, x)
	}
}

func small(t testing.TB) []byte {
	h := logprob.Header{Vocab: 5, Window: 2, Rows: 1, Windows: 2}
	rng := rand.New(rand.NewPCG(3, 4))
	p, err := os.ReadFile(write(t, h, func(int64, int) ([]float64, int) { return distribution(rng, 5), 1 }))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestUnfinished(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ref")
	w, err := logprob.Create(atomicfile.Scratch(path), logprob.Header{Vocab: 5, Window: 2, Rows: 1, Windows: 2})
	if err != nil {
		t.Fatal(err)
	}
	if w.Close() == nil {
		t.Error("Close accepted a file without its windows")
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

func TestMalformed(t *testing.T) {
	good := small(t)
	seal := func(p []byte) []byte { // a header that says what its hash says
		sum := blake3.Sum256(p[:96])
		copy(p[96:], sum[:])
		return p
	}
	edit := func(at int, v uint32) []byte {
		p := bytes.Clone(good)
		binary.LittleEndian.PutUint32(p[at:], v)
		return seal(p)
	}
	for name, p := range map[string][]byte{
		"empty": {}, "magic": append([]byte("X"), good[1:]...), "cut": good[:len(good)-1],
		"long": append(bytes.Clone(good), 0), "header": good[:100],
		"vocabulary 0": edit(16, 0), "vocabulary": edit(16, 1<<31), "window 0": edit(20, 0), "rows 0": edit(24, 0),
		"rows beyond window": edit(24, 3), "reserved": edit(28, 1), "zeros": edit(80, 1), "windows": edit(36, 1<<30),
		"many rows": edit(24, 1<<31), "hash": bytes.Replace(good, []byte{5}, []byte{6}, 1),
	} {
		_, err := logprob.NewReader("ref", bytes.NewReader(p), int64(len(p)))
		var f *formats.FormatError
		if !errors.As(err, &f) {
			t.Errorf("%s: %v, want a FormatError", name, err)
		}
	}
	var u *formats.UnsupportedError
	if _, err := logprob.NewReader("ref", bytes.NewReader(edit(8, 2)), int64(len(good))); !errors.As(err, &u) {
		t.Errorf("version 2: %v", err)
	}
	bad := bytes.Clone(good)
	bad[140]++
	r, err := logprob.NewReader("ref", bytes.NewReader(bad), int64(len(bad)))
	if err != nil {
		t.Fatal(err)
	}
	var f *formats.FormatError
	if _, err := r.Read(0); !errors.As(err, &f) || f.Offset != 128 {
		t.Errorf("damaged window: %v", err)
	}
	if _, err := r.Read(1); err != nil {
		t.Errorf("the window behind it: %v", err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(small(f))
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) >= 128 { // let the fuzzer get past the header's hash
			sum := blake3.Sum256(p[:96])
			copy(p[96:], sum[:])
		}
		r, err := logprob.NewReader("f", bytes.NewReader(p), int64(len(p)))
		if err != nil {
			return
		}
		for w := range min(r.Windows, 4) {
			rows, err := r.Read(w)
			if err != nil {
				return
			}
			for i := range rows {
				rows[i].Decode(make([]float64, r.Vocab))
			}
		}
	})
}
