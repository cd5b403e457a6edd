package generate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nstf/nstf/formats/tokenizer"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/sample"
)

// A run is one continuation in progress.
type run struct {
	g        *Generator
	prompt   []int32
	o        Options
	emit     func(text string) error
	sampler  *sample.Sampler
	stopper  *sample.Stopper
	stream   *tokenizer.Stream
	decoding *exec.Decoding
	guide    *Guide // nil: no grammar
	last     int32  // token
	stopped  bool   // a stop string was found
	stats    Stats
}

func (g *Generator) newRun(prompt []int32, o Options, emit func(string) error) (*run, error) {
	sampler, err := sample.New(o.Sampling)
	if err != nil {
		return nil, err
	}
	stopper, err := sample.NewStopper(o.Stop...)
	if err != nil {
		return nil, err
	}
	stream := g.tok.NewStream(tokenizer.StreamOptions{SkipSpecial: true, Context: prompt})
	r := &run{g: g, prompt: prompt, o: o, emit: emit, sampler: sampler, stopper: stopper, stream: stream,
		stats: Stats{PromptTokens: len(prompt)}}
	if o.Grammar != nil {
		if o.Grammar.Vocabulary() != g.vocab {
			panic("generate: a grammar for another vocabulary")
		}
		r.guide = NewGuide(o.Grammar, g.tok)
	}
	return r, nil
}

// loop reads the prompt and generates until there is a reason to end.
func (r *run) loop(ctx context.Context) error {
	start := time.Now()
	if err := r.prefill(ctx); err != nil {
		return err
	}
	defer func() { r.decoding.Stop() }()
	r.stats.Prompt = time.Since(start)
	for {
		id, err := r.next(ctx)
		if err != nil {
			return err
		}
		if r.stats.Tokens == 0 {
			r.stats.FirstToken = time.Since(start)
		}
		r.stats.Decode = time.Since(start) - r.stats.FirstToken
		if done, err := r.takeAll(id); done || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// prefill computes what the sequence does not hold of the prompt already. The
// last token is computed in any case: its logits are wanted.
func (r *run) prefill(ctx context.Context) (err error) {
	seq := r.g.seq
	n := min(common(seq.Tokens(), r.prompt), len(r.prompt)-1)
	seq.Truncate(n)
	r.stats.CachedTokens = n
	r.decoding, err = r.decode(ctx, r.prompt[n:])
	return err
}

// decode appends tokens to the sequence and begins to choose those that follow.
func (r *run) decode(ctx context.Context, tokens []int32) (*exec.Decoding, error) {
	if r.guide != nil {
		return r.g.seq.Decode(ctx, tokens, r.sampler, r.guide.Mask)
	}
	return r.g.seq.Decode(ctx, tokens, r.sampler, nil)
}

// takeAll is take of a token that was chosen, and of those that have to follow it.
func (r *run) takeAll(id int32) (bool, error) {
	if done, err := r.take(id); done || err != nil || r.guide == nil {
		return done, err
	}
	ids := r.guide.Forced()
	for _, id := range ids[:r.decoding.Force(ids)] {
		r.stats.Forced++
		if done, err := r.take(id); done || err != nil {
			return done, err
		}
	}
	return false, nil
}

// take emits what a token adds and reports whether it is the last.
func (r *run) take(id int32) (bool, error) {
	r.stats.Tokens++
	if r.guide != nil {
		if err := r.guide.Accept(id); err != nil {
			return true, fmt.Errorf("token %d of a mask: %w", id, err)
		}
	}
	if r.g.stops[id] {
		r.stats.Reason = ReasonEnd
		return true, nil
	}
	r.last = id
	text, stopped := r.stopper.Push(r.stream.Next(id))
	if err := r.write(text); err != nil {
		return true, err
	}
	switch {
	case !stopped && r.guide != nil && r.guide.IsDone():
		r.stats.Reason = ReasonEnd
	case stopped:
		r.stopped = true
		r.stats.Reason = ReasonStop
	case r.o.MaxTokens > 0 && r.stats.Tokens >= r.o.MaxTokens:
		r.stats.Reason = ReasonMax
	default:
		return false, nil
	}
	return true, nil
}

func (r *run) write(text string) error {
	if text == "" {
		return nil
	}
	return r.emit(text)
}

// next chooses a token, after making room for the one before where that is
// wanted.
func (r *run) next(ctx context.Context) (int32, error) {
	id, err := r.decoding.Next()
	if !r.o.Shift || !errors.Is(err, exec.ErrContextFull) {
		return id, err
	}
	if err := r.decoding.Stop(); err != nil {
		return 0, err
	}
	if err := r.shift(); err != nil {
		return 0, err
	}
	if r.decoding, err = r.decode(ctx, []int32{r.last}); err != nil {
		return 0, err
	}
	return r.decoding.Next()
}

// shift forgets the older half of what stands behind the text's first token:
// models are trained on texts that begin with it, and attend to it.
func (r *run) shift() error {
	const keep = 1
	n := r.g.seq.Len()
	drop := (n - keep + 1) / 2
	if drop < 1 {
		return &exec.ContextFullError{Used: int64(n), New: 1, Capacity: r.g.Context()}
	}
	r.stats.Forgotten += drop
	return r.g.seq.Shift(keep, drop)
}

// finish emits what was held back, unless the continuation was cut at a stop
// string or broke off.
func (r *run) finish(whole bool) error {
	if r.stopped || !whole {
		return nil
	}
	text, stopped := r.stopper.Push(r.stream.Flush())
	if err := r.write(text); err != nil || stopped {
		return err
	}
	return r.write(r.stopper.Flush())
}
