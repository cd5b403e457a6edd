package eval

import (
	"context"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"testing"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/tokenizer"
	"github.com/nstf/nstf/runtime/exec"
)

const demo = "../../testdata/demo/"

func Example() {
	m, err := checkpoint.Open(demo + "model")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	r, err := Run(context.Background(), m, Options{Text: demo + "text.txt", Context: 128, MaxTokens: 254, Protocol: ProtocolNSTF})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d windows, %d tokens scored, perplexity %.1f\n", r.Windows, r.Scored, r.Perplexity.Value)
	// Output: 2 windows, 254 tokens scored, perplexity 49.7
}

func opened(t *testing.T) (*model.Model, *tokenizer.Tokenizer) {
	t.Helper()
	m, err := checkpoint.Open(demo + "model")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	tok, err := m.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	return m, tok
}

// The figures follow from the logits by the formulas, in the plainest code.
func TestFigures(t *testing.T) {
	m, tok := opened(t)
	text := filepath.Join(t.TempDir(), "t.txt")
	if err := os.WriteFile(text, []byte("It was a cold morning in the early spring, and we sat after breakfast."), 0o666); err != nil {
		t.Fatal(err)
	}
	w, _, err := prepare(m, Options{Text: text, Context: 8, Protocol: ProtocolNSTF})
	if err != nil {
		t.Fatal(err)
	}
	ex, err := exec.New(m, exec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ex.Close()
	seq, err := ex.NewSequence()
	if err != nil {
		t.Fatal(err)
	}
	var nll []float64
	for _, window := range w.list {
		seq.Reset()
		err := seq.Prefill(context.Background(), window, func(pos int, row []float32) error {
			if pos+1 == len(window) {
				return nil
			}
			var sum float64
			for _, v := range row {
				sum += math.Exp(float64(v))
			}
			nll = append(nll, math.Log(sum)-float64(row[window[pos+1]]))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var sum float64
	for _, v := range nll {
		sum += v
	}
	r, err := Run(context.Background(), m, Options{Text: text, Context: 8, Protocol: ProtocolNSTF, Ref: demo + "model"})
	if err != nil {
		t.Fatal(err)
	}
	if r.Scored != len(nll) || math.Abs(r.NLL.Value-sum/float64(len(nll))) > 1e-6 {
		t.Errorf("NLL %v of %d, want %v of %d", r.NLL.Value, r.Scored, sum/float64(len(nll)), len(nll))
	}
	if r.Ref.KL.Value != 0 || r.Ref.LogRatio.Value != 0 || r.Ref.Top1.Value != 1 {
		t.Errorf("the model against itself: %+v", r.Ref)
	}
	if bos, _ := tok.BOS(); w.list[1][0] != bos {
		t.Errorf("window %v does not begin with BOS", w.list[1])
	}
}

// Figures do not depend on how many goroutines score.
func TestThreads(t *testing.T) {
	m, _ := opened(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	o := Options{Text: demo + "text.txt", Context: 64, MaxTokens: 126, Protocol: ProtocolNSTF}
	var all []*Result
	for _, n := range []int{1, 3} {
		runtime.GOMAXPROCS(n)
		r, err := Run(context.Background(), m, o)
		if err != nil {
			t.Fatal(err)
		}
		r.Seconds, r.TokensPerS = 0, 0
		all = append(all, r)
	}
	if !reflect.DeepEqual(all[0], all[1]) {
		t.Errorf("%+v on one thread, %+v on three", all[0], all[1])
	}
}

func TestCut(t *testing.T) {
	_, tok := opened(t)
	texts := []string{"It was a cold morning in the early spring, and we sat after breakfast.\n"}
	ids, err := tok.Encode(texts[0], tokenizer.EncodeOptions{NoSpecial: true})
	if err != nil {
		t.Fatal(err)
	}
	bos, _ := tok.BOS()
	w, err := cut(tok, texts, ProtocolNSTF, 5, 9)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]int32{append([]int32{bos}, ids[:4]...), append([]int32{bos}, ids[4:8]...)}
	if !reflect.DeepEqual(w.list, want) || w.tokens != 9 || w.first != 0 || w.scored() != 8 {
		t.Errorf("nstf: %+v, want %v", w, want)
	}
	w, err = cut(tok, texts, ProtocolLlamaCPP, 6, 0)
	if err != nil {
		t.Fatal(err)
	}
	// One newline less, BOS before everything and in the place of each
	// window's first token; rows 3 and 4 of 6 are scored.
	all := append([]int32{bos}, ids[:len(ids)-1]...)
	want = nil
	for at := 0; at+6 <= len(all); at += 6 {
		want = append(want, append([]int32{bos}, all[at+1:at+6]...))
	}
	if !reflect.DeepEqual(w.list, want) || w.first != 3 || w.scored() != 2*len(want) {
		t.Errorf("llama.cpp: %+v, want %v", w, want)
	}
	if w.hash() == (&windows{list: want[1:]}).hash() {
		t.Error("other windows have the same hash")
	}
	for _, bad := range []struct {
		texts []string
		p     Protocol
		size  int
	}{{nil, ProtocolNSTF, 8}, {texts, ProtocolNSTF, 1}, {texts, "nosuch", 8}, {texts, ProtocolLlamaCPP, 512}, {[]string{"a", "b"}, ProtocolLlamaCPP, 2}} {
		if w, err := cut(tok, bad.texts, bad.p, bad.size, 0); err == nil {
			t.Errorf("%+v gives %+v", bad, w)
		}
	}
}

func TestEstimates(t *testing.T) {
	if e := mean([]float64{1, 2, 3, 6}); e.Value != 3 || math.Abs(e.StdErr-math.Sqrt(14.0/3/4)) > 1e-15 {
		t.Errorf("mean %+v", e)
	}
	if e := mean([]float64{2}); e != (Estimate{2, 0}) {
		t.Errorf("mean of one %+v", e)
	}
	if e := share([]bool{true, true, false, true}); e.Value != 0.75 || math.Abs(e.StdErr-math.Sqrt(0.75*0.25/4)) > 1e-15 {
		t.Errorf("share %+v", e)
	}
	x := []float64{0, 10, 20, 30, 40}
	for q, want := range map[float64]float64{0: 0, 0.5: 20, 0.9: 36, 1: 40} {
		if e := quantile(x, q); math.Abs(e.Value-want) > 1e-12 {
			t.Errorf("quantile %v is %v, want %v", q, e.Value, want)
		}
	}
	if e := quantile([]float64{1, math.Inf(1), math.Inf(1), math.Inf(1)}, 0.9); !math.IsInf(e.Value, 1) {
		t.Errorf("quantile among infinities: %+v", e)
	}
}

// The standard errors are those that repeated draws show.
func TestStandardErrors(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	const draws, n = 400, 500
	var medians, p90s, medianErr, p90Err []float64
	for range draws {
		x := make([]float64, n)
		for i := range x {
			x[i] = rng.ExpFloat64()
		}
		x = sorted(x)
		m, p := quantile(x, 0.5), quantile(x, 0.9)
		medians, p90s = append(medians, m.Value), append(p90s, p.Value)
		medianErr, p90Err = append(medianErr, m.StdErr), append(p90Err, p.StdErr)
	}
	for name, c := range map[string][2][]float64{"median": {medians, medianErr}, "90 %": {p90s, p90Err}} {
		spread := mean(c[0]).StdErr * math.Sqrt(draws)
		if said := mean(c[1]).Value; said < 0.85*spread || said > 1.2*spread {
			t.Errorf("%s: the standard error is %.4f on average, the spread %.4f", name, said, spread)
		}
	}
}
