package fit_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/quantize/fit"
)

// correlated returns weights w[n][k] and the second moments h[k][k] of inputs
// that mostly lie in a few directions.
func correlated(rng *rand.Rand, n, k int) (w []float32, h []float64) {
	w = make([]float32, n*k)
	for i := range w {
		w[i] = float32(rng.NormFloat64()) * 0.02 * (1 + float32(i%k%7))
	}
	h = make([]float64, k*k)
	x := make([]float64, k)
	for range 3 * k {
		common := rng.NormFloat64() * 3
		for i := range x {
			x[i] = rng.NormFloat64()*(0.2+float64(i%5)) + common
		}
		for i := range k {
			for j := range k {
				h[i*k+j] += x[i] * x[j] / float64(3*k)
			}
		}
	}
	return w, h
}

// loss is tr(E H E') over tr(W H W').
func loss(w, y []float32, h []float64, n, k int) float64 {
	var num, den float64
	for r := range n {
		for i := range k {
			var a, b float64
			for j := range k {
				a += h[i*k+j] * float64(w[r*k+j]-y[r*k+j])
				b += h[i*k+j] * float64(w[r*k+j])
			}
			num += a * float64(w[r*k+i]-y[r*k+i])
			den += b * float64(w[r*k+i])
		}
	}
	return num / den
}

// decodeTCQ fits and decodes again.
func decodeTCQ(t *testing.T, q fit.TCQ, w []float32, n, k int) (parts [][]byte, y []float32) {
	t.Helper()
	parts, err := q.Fit(context.Background(), w, n, k)
	if err != nil {
		t.Fatal(err)
	}
	var blobs []tensor.Blob
	for _, p := range parts {
		blobs = append(blobs, tensor.BytesBlob(p))
	}
	s, _ := scheme.ByName("tcq")
	x, err := scheme.New("w", s, []int64{int64(n), int64(k)}, q.Params(), blobs...)
	if err != nil {
		t.Fatal(err)
	}
	return parts, decoded(t, x)
}

func rotatedTCQ(bits, n, k int) fit.TCQ {
	return fit.TCQ{TCQ: scheme.TCQ{Bits: bits, Codebook: scheme.TCQBytes4, RotateIn: fit.TCQRotation(k), RotateOut: fit.TCQRotation(n), Seed: 7}, Seam: 32}
}

// TestTCQError holds the error of rotated weights to that of a Gaussian
// source, and feedback to what it is for.
func TestTCQError(t *testing.T) {
	const n, k = 32, 128
	w, h := correlated(rand.New(rand.NewPCG(1, 2)), n, k)
	for bits, limit := range map[int]float64{2: 1.25, 3: 1.3, 4: 1.35} {
		q := rotatedTCQ(bits, n, k)
		_, plain := decodeTCQ(t, q, w, n, k)
		var num, den float64
		for i := range w {
			d := float64(w[i] - plain[i])
			num += d * d
			den += float64(w[i]) * float64(w[i])
		}
		if ratio := num / den * math.Pow(4, float64(bits)); ratio > limit {
			t.Errorf("%d bits: the error is %.2f times the Shannon limit, more than %.2f", bits, ratio, limit)
		}
		rotated := append([]float64(nil), h...)
		fit.RotateMoments(rotated, k, q.RotateIn, q.Seed)
		f, err := fit.NewFeedback(rotated, k, scheme.TCQTile)
		if err != nil {
			t.Fatal(err)
		}
		q.Feedback = f
		_, answered := decodeTCQ(t, q, w, n, k)
		if a, p := loss(w, answered, h, n, k), loss(w, plain, h, n, k); a > 0.6*p {
			t.Errorf("%d bits: feedback left a loss of %.3g, without it %.3g", bits, a, p)
		}
	}
}

// TestTCQSameBytes wants the same parts from every level of the kernels.
func TestTCQSameBytes(t *testing.T) {
	const n, k = 16, 32
	w, h := correlated(rand.New(rand.NewPCG(5, 2)), n, k)
	q := rotatedTCQ(3, n, k)
	q.OutScales = true
	fit.RotateMoments(h, k, q.RotateIn, q.Seed)
	f, err := fit.NewFeedback(h, k, scheme.TCQTile)
	if err != nil {
		t.Fatal(err)
	}
	q.Feedback = f
	var want [][]byte
	for _, l := range cpu.Levels() {
		if q.Set, err = cpu.ForLevel(l); err != nil {
			t.Fatal(err)
		}
		parts, _ := decodeTCQ(t, q, w, n, k)
		for i := range want {
			if !bytes.Equal(parts[i], want[i]) {
				t.Errorf("part %d at level %v differs", i, l)
			}
		}
		want = parts
	}
}

// TestTCQEdges fits zeros, and refuses what is not finite.
func TestTCQEdges(t *testing.T) {
	const n, k = 16, 16
	w := make([]float32, n*k)
	_, y := decodeTCQ(t, rotatedTCQ(2, n, k), w, n, k)
	for i, v := range y {
		if v != 0 {
			t.Fatalf("zero %d became %g", i, v)
		}
	}
	var value *fit.ValueError
	for i := range w {
		w[i] = 1e6 // beyond what the scales hold: once written as zeros
	}
	if _, err := rotatedTCQ(2, n, k).Fit(context.Background(), w, n, k); !errors.As(err, &value) || !value.TooLarge {
		t.Errorf("a million: %v", err)
	}
	w[37] = float32(math.NaN())
	clear(w[:37])
	clear(w[38:])
	if _, err := rotatedTCQ(2, n, k).Fit(context.Background(), w, n, k); !errors.As(err, &value) || value.TooLarge || value.Row != 2 || value.Column != 5 {
		t.Errorf("NaN: %v", err)
	}
}

// TestFeedback multiplies the factors again, and survives moments that are
// zero, singular or not finite.
func TestFeedback(t *testing.T) {
	const k, block = 48, 16
	_, h := correlated(rand.New(rand.NewPCG(3, 3)), 1, k)
	singular := make([]float64, k*k)
	for i := range k {
		for j := range k {
			singular[i*k+j] = float64((i%3 + 1) * (j%3 + 1))
		}
	}
	for name, m := range map[string][]float64{"moments": h, "zero": make([]float64, k*k), "singular": singular} {
		f, err := fit.NewFeedback(append([]float64(nil), m...), k, block)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// With errors in the last block only, the answer is E L: minimising
		// over the columns of the block before gives the same.
		e := make([]float32, 16*k)
		e[k-1] = 1
		answers := f.Answers()
		z := make([]float32, 16*block)
		answers.Answer(z, e, k/block-1)
		answers.Answer(z, e, k/block-2)
		for i, v := range z[block:] {
			if v != 0 {
				t.Errorf("%s: answer %d of rows without errors is %g", name, i, v)
			}
		}
		z = z[:block]
		if name == "zero" {
			for _, v := range z {
				if v != 0 {
					t.Errorf("zero moments answer %v", z)
				}
			}
		}
		if name != "moments" {
			continue
		}
		best := quadratic(m, k, f.Damping, z)
		for i := range z {
			for _, step := range []float32{-0.01, 0.01} {
				moved := append([]float32(nil), z...)
				moved[i] += step
				if got := quadratic(m, k, f.Damping, moved); got < best-1e-9 {
					t.Errorf("moving answer %d by %g lowers the loss from %g to %g", i, step, best, got)
				}
			}
		}
	}
	h[5*k+5] = math.NaN()
	if _, err := fit.NewFeedback(h, k, block); err == nil {
		t.Error("NaN was accepted")
	}
}

// quadratic is the damped loss of an error of 1 in the last column and -z in
// the second block from the end, the columns before it being free: their best
// answer is found by a few hundred sweeps.
func quadratic(h []float64, k int, damping float64, z []float32) float64 {
	e := make([]float64, k)
	e[k-1] = 1
	at := k - 2*len(z)
	for i, v := range z {
		e[at+i] = -float64(v)
	}
	var mean float64
	for i := range k {
		mean += h[i*k+i] / float64(k)
	}
	m := func(i, j int) float64 {
		if i == j {
			return h[i*k+j] + damping*mean
		}
		return h[i*k+j]
	}
	for range 400 {
		for i := range at {
			var sum float64
			for j := range k {
				if j != i {
					sum += m(i, j) * e[j]
				}
			}
			e[i] = -sum / m(i, i)
		}
	}
	var total float64
	for i := range k {
		for j := range k {
			total += e[i] * m(i, j) * e[j]
		}
	}
	return total
}

// TestTCQStops: a search ends soon after its context does.
func TestTCQStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	const n, k = 256, 512
	if _, err := rotatedTCQ(2, n, k).Fit(ctx, make([]float32, n*k), n, k); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
