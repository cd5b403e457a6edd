package serve

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/nstf/nstf/formats/answer"
	"github.com/nstf/nstf/formats/tokenizer"
	"github.com/nstf/nstf/runtime/sample"
	"github.com/nstf/nstf/runtime/schedule"
)

// settings are what a request says of its answers, whatever the protocol.
type settings struct {
	n                   int
	maxTokens           int
	stop                []string
	sampling            sample.Options
	presence, frequency float32
	bias                map[int32]float32
	logprobs            bool
	top                 int
	endless             bool // tokens that end a text do not
	silent              bool // nothing is given out
	scored              bool // the prompt's own tokens' probabilities are asked for
	format              *format
}

// A turn is one prompt and what is to be generated behind it.
type turn struct {
	model  *Model
	prompt []int32
	settings
	hold   *hold          // what answers are held to; nil: they are free
	single bool           // a second call ends an answer
	scores []tokenLogprob // of the prompt's tokens behind the first, once something is emitted
	// reader returns what reads an answer; nil: an answer is text.
	reader func() *answer.Reader
	// ends are tokens that end an answer, beside those of the vocabulary.
	ends []int32
}

// stops returns the tokens that end an answer.
func (t *turn) stops() []int32 {
	if t.endless {
		return nil
	}
	return append(t.model.Tokenizer.Stops(), t.ends...)
}

// A piece is what is new of one choice.
type piece struct {
	choice int
	parts  []answer.Part
	tokens []tokenLogprob
	// end is "stop", "length" or "tool_calls" with the last piece, "" before.
	end string
	// stopped is the stop string that ended it, "" for none.
	stopped string
}

// A tokenLogprob tells of a token that was chosen, of its probability where asked for.
type tokenLogprob struct {
	id      int32
	logprob float64
	top     []schedule.Logprob
}

// A usage is what a turn took.
type usage struct {
	schedule.Usage
	reasoning  int // of the tokens
	first, all time.Duration
}

// add adds what another turn took.
func (u *usage) add(v *usage) {
	u.PromptTokens += v.PromptTokens
	u.CachedTokens += v.CachedTokens
	u.Tokens += v.Tokens
	u.reasoning += v.reasoning
	u.all += v.all
}

// generate runs a turn. emit gets the pieces as they are certain; its error ends the turn.
func (s *Server) generate(r *http.Request, t *turn, emit func(p *piece) error) (usage, error) {
	s.logPrompt(r, t)
	began, ctx := time.Now(), r.Context()
	var u usage
	ask := schedule.Request{Prompt: t.prompt, Scored: t.scored}
	if t.scored {
		ask.Top = t.top
	}
	var texts []*text
	for i := range t.n {
		c := schedule.Choice{Sampling: t.sampling, MaxTokens: t.maxTokens, Bias: t.bias, Presence: t.presence, Frequency: t.frequency, Logprobs: t.logprobs, Top: t.top}
		if s.o.MaxTokens > 0 && (c.MaxTokens == 0 || c.MaxTokens > s.o.MaxTokens) {
			c.MaxTokens = s.o.MaxTokens
		}
		c.Sampling.Seed += uint64(i)
		var held *constraint
		if t.hold != nil {
			held = t.newConstraint()
			c.Constraint = held
		}
		c.Stops = t.stops()
		x, err := newText(t, i)
		if err != nil {
			return u, err
		}
		x.held = held
		ask.Choices, texts = append(ask.Choices, c), append(texts, x)
	}
	st, err := t.model.Scheduler.Submit(ctx, ask)
	if err != nil {
		return u, err
	}
	defer st.Close()
	defer func() { s.metrics.turn(&u) }()
	for {
		e, err := st.Next(ctx)
		u.Usage = st.Usage()
		u.all = time.Since(began)
		if errors.Is(err, io.EOF) {
			return u, nil
		}
		if err != nil {
			return u, err
		}
		if e.Token >= 0 && u.first == 0 {
			u.first = time.Since(began)
		}
		p, err := texts[e.Choice].take(&e)
		if err != nil {
			return u, err
		}
		if texts[e.Choice].thinking && e.Token >= 0 {
			u.reasoning++
		}
		if p == nil {
			continue
		}
		if p.end != "" && e.Reason == "" {
			st.Stop(e.Choice)
		}
		if t.scored && t.scores == nil {
			for i, one := range st.Scores() {
				t.scores = append(t.scores, tokenLogprob{t.prompt[i+1], one.Logprob, one.Top})
			}
		}
		if err := emit(p); err != nil {
			return u, err
		}
	}
}

// logPrompt logs a turn's prompt where that is wanted.
func (s *Server) logPrompt(r *http.Request, t *turn) {
	if s.o.LogPrompts {
		text, _ := t.model.Tokenizer.Decode(t.prompt, false)
		s.o.Log.Info("prompt", "path", r.URL.Path, "text", text)
	}
}

// text turns the tokens of one choice into pieces.
type text struct {
	choice   int
	tok      *tokenizer.Tokenizer
	stops    map[int32]bool
	stream   *tokenizer.Stream
	stopper  *sample.Stopper
	reader   *answer.Reader // nil: all is text
	special  bool           // special tokens are looked at
	silent   bool           // nothing is given out
	tokens   []tokenLogprob // of no piece yet
	thinking bool
	over     bool
	held     *constraint // nil: none
	single   bool        // nothing follows the first call
	called   bool
}

func newText(t *turn, choice int) (*text, error) {
	stopper, err := sample.NewStopper(t.stop...)
	if err != nil {
		return nil, invalid("stop", "%v", err)
	}
	x := &text{choice: choice, tok: t.model.Tokenizer, stopper: stopper, silent: t.silent, single: t.single, stops: map[int32]bool{}}
	x.stream = x.tok.NewStream(tokenizer.StreamOptions{SkipSpecial: true, Context: t.prompt})
	if t.reader != nil {
		x.reader = t.reader()
	}
	for _, id := range t.stops() {
		x.stops[id] = true
	}
	return x, nil
}

// take returns what an event adds, nil for nothing.
func (x *text) take(e *schedule.Event) (*piece, error) {
	if x.over {
		return nil, nil
	}
	p := &piece{choice: x.choice}
	if e.Token >= 0 {
		x.tokens = append(x.tokens, tokenLogprob{e.Token, e.Logprob, e.Top})
		x.token(p, e)
	}
	switch {
	case p.end != "":
	case x.called:
		p.end = "stop"
	case e.Reason == schedule.ReasonError && x.held != nil && x.held.finished.Load():
		p.end = "stop"
	case e.Reason == schedule.ReasonError:
		return nil, e.Err
	case e.Reason == schedule.ReasonCancel:
		if e.Err == nil {
			e.Err = context.Canceled
		}
		return nil, e.Err
	case e.Reason == schedule.ReasonStop:
		p.end = "stop"
	case e.Reason != "":
		p.end = "length"
	}
	if p.end != "" {
		if p.stopped == "" {
			x.push(p, x.stream.Flush(), false)
			x.give(p, x.stopper.Flush(), false)
		}
		if x.reader != nil {
			x.add(p, x.reader.Close())
			if x.reader.Calls() > 0 && p.end == "stop" {
				p.end = "tool_calls"
			}
		}
		x.over = true
	}
	if p.end == "" && len(p.parts) == 0 {
		return nil, nil
	}
	p.tokens, x.tokens = x.tokens, nil
	return p, nil
}

// token adds what a token says.
func (x *text) token(p *piece, e *schedule.Event) {
	if x.reader != nil && x.tok.IsSpecial(e.Token) {
		spelling, _ := x.tok.Piece(e.Token)
		x.push(p, x.stream.Flush(), false)
		if p.end == "" {
			x.give(p, x.stopper.Flush(), false)
			x.give(p, spelling, true)
		}
		return
	}
	if e.Reason == schedule.ReasonStop && x.stops[e.Token] {
		return
	}
	x.push(p, x.stream.Next(e.Token), false)
}

// push gives text out that holds no stop string.
func (x *text) push(p *piece, s string, special bool) {
	if p.end != "" {
		return
	}
	out, stopped := x.stopper.Push(s)
	x.give(p, out, special)
	if stopped {
		p.end, p.stopped = "stop", x.stopper.Found()
	}
}

func (x *text) give(p *piece, s string, special bool) {
	switch {
	case s == "" || x.silent:
	case x.reader != nil:
		x.add(p, x.reader.Push(s, special))
	default:
		x.add(p, []answer.Part{{Kind: answer.Text, Text: s}})
	}
}

func (x *text) add(p *piece, parts []answer.Part) {
	if x.called {
		return
	}
	for i, part := range parts {
		if x.single && part.Kind == answer.CallEnd {
			parts, x.called = parts[:i+1], true
			break
		}
	}
	p.parts = append(p.parts, parts...)
	if n := len(parts); n > 0 {
		x.thinking = parts[n-1].Kind == answer.Reasoning
	}
}

// seed returns the seed of a request that names none.
func seed(given *int64) uint64 {
	if given != nil {
		return uint64(*given)
	}
	return rand.Uint64() >> 1
}
