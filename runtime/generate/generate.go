package generate

import (
	"context"
	"errors"
	"time"

	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/tokenizer"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/grammar"
	"github.com/nstf/nstf/runtime/sample"
)

// Config says how a model is loaded.
type Config struct {
	Context int64          // positions; 0: what the model was made for
	Threads int            // 0: as many as Go runs at once
	Exact   bool           // float32 throughout, see exec.Options
	KV      string         // how keys and values are kept, see exec.Options
	Policy  *device.Policy // of attention, see exec.Options; nil: it is dense
	Device  exec.Device
}

// Options are the settings of one continuation.
type Options struct {
	Sampling  sample.Options
	MaxTokens int      // 0: until something else ends it
	Stop      []string // strings that end it and are not part of it
	// Grammar says what the text may be, nil: anything. It is compiled for
	// [Generator.Vocabulary]. The continuation ends where the grammar allows nothing
	// further, and no token that ends a generation is chosen before it may end.
	Grammar *grammar.Compiled
	// Shift makes room when the context is full: the older half of what
	// stands behind the beginning is forgotten, instead of an error.
	Shift bool
}

// A Reason says why a continuation ended.
type Reason string

// The reasons.
const (
	ReasonEnd  Reason = "end of text" // the model said so
	ReasonStop Reason = "stop string"
	ReasonMax  Reason = "maximum of tokens"
)

// Stats are what one continuation took.
type Stats struct {
	Reason        Reason
	PromptTokens  int           // of the prompt
	CachedTokens  int           // of them, computed earlier
	Prompt        time.Duration // until the prompt was read
	FirstToken    time.Duration // until the first token was chosen
	Tokens        int           // generated, the one that ended it included
	Forced        int           // of those, tokens that a grammar left no choice of
	Decode        time.Duration // from the first token to the last
	ContextTokens int           // positions in use at the end
	Unfinished    bool          // it ended where the grammar does not allow it
	Forgotten     int           // tokens that were forgotten on the way to make room
	Memory        device.Memory // weights and work space
	CacheBytes    int64         // keys and values
}

// PromptRate returns the prompt's tokens per second.
func (s *Stats) PromptRate() float64 { return rate(s.PromptTokens-s.CachedTokens, s.Prompt) }

// DecodeRate returns the tokens per second behind the first.
func (s *Stats) DecodeRate() float64 { return rate(s.Tokens-1, s.Decode) }

func rate(n int, d time.Duration) float64 {
	if n <= 0 || d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// ErrNoPrompt says that there is nothing to continue: no text, and the
// tokenizer adds no token by itself.
var ErrNoPrompt = errors.New("the prompt is empty and the model adds no token that begins a text")

// A Generator is a model with one sequence.
type Generator struct {
	ex    *exec.Executor
	seq   *exec.Sequence
	tok   *tokenizer.Tokenizer
	stops map[int32]bool
	vocab *grammar.Vocabulary // nil: not asked for yet
}

// New loads a model, which stays the caller's to close, after the Generator.
func New(m *model.Model, c Config) (*Generator, error) {
	tok, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
	ex, seq, err := exec.Alone(m, exec.Options{Threads: c.Threads, Context: c.Context, Exact: c.Exact, KV: c.KV, Policy: c.Policy, Device: c.Device})
	if err != nil {
		return nil, err
	}
	g := &Generator{ex: ex, seq: seq, tok: tok, stops: map[int32]bool{}}
	for _, id := range tok.Stops() {
		g.stops[id] = true
	}
	return g, nil
}

// Close ends the executor.
func (g *Generator) Close() error { return g.ex.Close() }

// Tokenizer returns the model's tokenizer.
func (g *Generator) Tokenizer() *tokenizer.Tokenizer { return g.tok }

// Context returns the positions of the sequence.
func (g *Generator) Context() int64 { return g.ex.Context() }

// Prompt is [Prompt] by the model's tokenizer.
func (g *Generator) Prompt(text string, parseSpecial bool) ([]int32, error) {
	return Prompt(g.tok, text, parseSpecial)
}

// Prompt returns the ids of a text as a model expects it in front of a
// continuation: with what the tokenizer puts before a text, without what it
// puts behind one. parseSpecial reads the spelling of special tokens as those
// tokens.
func Prompt(tok *tokenizer.Tokenizer, text string, parseSpecial bool) ([]int32, error) {
	ids, err := tok.Encode(text, tokenizer.EncodeOptions{NoParseSpecial: !parseSpecial})
	if err != nil {
		return nil, err
	}
	if eos, ok := tok.EOS(); ok && tok.AddsEOS() && len(ids) > 0 && ids[len(ids)-1] == eos {
		ids = ids[:len(ids)-1]
	}
	return ids, nil
}

// Run continues a prompt's ids and gives the text to emit, piece by piece. An
// error of emit ends it, as does the end of ctx. The statistics are those of
// what was done in any case.
func (g *Generator) Run(ctx context.Context, prompt []int32, o Options, emit func(text string) error) (*Stats, error) {
	if len(prompt) == 0 {
		return nil, ErrNoPrompt
	}
	r, err := g.newRun(prompt, o, emit)
	if err != nil {
		return nil, err
	}
	err = r.loop(ctx)
	// What ended it from outside leaves the text so far whole.
	whole := err == nil || errors.Is(err, exec.ErrContextFull) || errors.Is(err, context.Canceled)
	if flushErr := r.finish(whole); err == nil {
		err = flushErr
	}
	r.stats.ContextTokens, r.stats.CacheBytes = g.seq.Len(), g.seq.Bytes()
	r.stats.Memory = g.ex.Memory()
	r.stats.Unfinished = r.guide != nil && !r.guide.CanEnd() && !r.guide.IsDone()
	return &r.stats, err
}

// common returns how many ids two sequences share at their beginning.
func common(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
