package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/corpus"
	"github.com/nstf/nstf/formats/tokenizer"
)

// Windows says how texts become windows of tokens.
type Windows struct {
	Context int    // tokens of a window, BOS included
	Samples int    // windows; 0: as many as the texts fill
	Seed    uint64 // of the choice of windows, where the texts fill more
}

// CutSamples tokenizes each text alone, and each conversation as the model's
// chat template renders it, joins the ids and cuts them into windows that begin
// with BOS where the model has one. Of more windows than Samples it takes some
// at random, in their order. It fails where the texts fill none, or fewer than
// Samples, and for conversations where the model has no chat template.
func (w Windows) CutSamples(ctx context.Context, t *tokenizer.Tokenizer, name string, samples []corpus.Sample) ([][]int32, error) {
	var head []int32
	if id, ok := t.BOS(); ok {
		head = []int32{id}
	}
	body := w.Context - len(head)
	if body < 1 {
		return nil, fmt.Errorf("calibration windows of %d tokens hold no text", w.Context)
	}
	e := encoder{t: t, name: name}
	var ids []int32
	for i, s := range samples {
		more, err := e.encode(ctx, i, s)
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

// An encoder turns samples into ids.
type encoder struct {
	t        *tokenizer.Tokenizer
	name     string
	template *tokenizer.Template // compiled at the first conversation
}

func (e *encoder) encode(ctx context.Context, i int, s corpus.Sample) ([]int32, error) {
	if s.Messages == nil {
		return e.t.Encode(s.Text, tokenizer.EncodeOptions{})
	}
	r, err := e.render(ctx, s)
	if err == nil {
		return e.t.EncodeRendered(r)
	}
	var lacking *formats.UnsupportedError
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.As(err, &lacking):
		unsupported := formats.Unsupportedf(e.name, "messages", "rendering conversation %d", i)
		unsupported.Err, unsupported.Hint = err, "give plain text, or a \"text\" instead of \"messages\" in each line"
		return nil, unsupported
	}
	wrong := formats.Errorf(e.name, "messages", "conversation %d cannot be rendered", i)
	wrong.Err = err
	return nil, wrong
}

func (e *encoder) render(ctx context.Context, s corpus.Sample) (r tokenizer.Rendered, err error) {
	if e.template == nil {
		if e.template, err = e.t.ChatTemplate(""); err != nil {
			return r, err
		}
	}
	messages, err := tokenizer.ParseMessages(s.Messages)
	if err != nil {
		return r, err
	}
	// A template may tell the day: always the same one, so that the same file
	// gives the same windows.
	return e.template.Render(ctx, messages, tokenizer.RenderOptions{Now: time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)})
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

// Split keeps an eighth of the windows, at least one, for measuring: they are never
// fitted to. They are spread evenly over all, since one part of a text may be like no
// other. Of one window nothing is kept.
func Split(windows [][]int32) (fit, held [][]int32) {
	n := len(windows)
	if n < 2 {
		return windows, nil
	}
	count := max(n/8, 1)
	for i, w := range windows {
		if len(held) < count && i == (2*len(held)+1)*n/(2*count) {
			held = append(held, w)
		} else {
			fit = append(fit, w)
		}
	}
	return fit, held
}
