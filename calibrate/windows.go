package calibrate

import (
	"fmt"
	"math/rand/v2"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tokenizer"
)

// Windows says how texts become windows of tokens.
type Windows struct {
	Context int    // tokens of a window, BOS included
	Samples int    // windows; 0: as many as the texts fill
	Seed    uint64 // of the choice of windows, where the texts fill more
}

// Cut tokenizes each text alone, joins the ids and cuts them into windows that
// begin with BOS where the model has one. Of more windows than Samples it takes
// some at random, in their order. It fails where the texts fill none, or fewer
// than Samples.
func (w Windows) Cut(t *tokenizer.Tokenizer, name string, texts []string) ([][]int32, error) {
	var head []int32
	if id, ok := t.BOS(); ok {
		head = []int32{id}
	}
	body := w.Context - len(head)
	if body < 1 {
		return nil, fmt.Errorf("calibration windows of %d tokens hold no text", w.Context)
	}
	var ids []int32
	for _, text := range texts {
		more, err := t.Encode(text, tokenizer.EncodeOptions{})
		if err != nil {
			return nil, err
		}
		ids = append(ids, more...)
	}
	full := len(ids) / body
	if full < max(1, w.Samples) {
		err := formats.Unsupportedf(name, "", "calibrating on %d tokens: %d windows of %d need %d", len(ids), max(1, w.Samples), w.Context, max(1, w.Samples)*body)
		err.Hint = "give more text, or fewer or shorter windows (--samples, --ctx)"
		return nil, err
	}
	chosen := pick(full, w.Samples, w.Seed)
	out := make([][]int32, len(chosen))
	for i, at := range chosen {
		out[i] = append(append(make([]int32, 0, w.Context), head...), ids[at*body:(at+1)*body]...)
	}
	return out, nil
}

// pick returns n of the numbers below full in ascending order, all for n = 0.
func pick(full, n int, seed uint64) []int {
	if n == 0 {
		n = full
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	out := make([]int, 0, n)
	for i := range full { // Knuth, volume 2, 3.4.2, algorithm S
		if rng.IntN(full-i) < n-len(out) {
			out = append(out, i)
		}
	}
	return out
}

// Split keeps the last eighth of the windows, at least one, for measuring:
// they are never fitted to. Of one window nothing is kept.
func Split(windows [][]int32) (fit, held [][]int32) {
	n := len(windows)
	if n < 2 {
		return windows, nil
	}
	at := n - max(n/8, 1)
	return windows[:at:at], windows[at:]
}
