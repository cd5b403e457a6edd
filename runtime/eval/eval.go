package eval

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/corpus"
	"github.com/nstf/nstf/formats/logprob"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/runtime/cpu"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
)

// Options are how to measure.
type Options struct {
	Input     io.Reader          // what the text "-" is read from
	Text      string             // path of the text, .jsonl or plain; a pipe, or "-"
	Context   int                // tokens per window
	MaxTokens int                // of the text; 0: all
	Protocol  Protocol           // how windows are cut
	Ref       string             // another model, or stored log-probabilities; "": none
	SaveRef   *atomicfile.Output // where to store this model's log-probabilities; nil: nowhere
	Threads   int                // 0: as many as Go runs at once
	Exact     bool               // float32 throughout, see exec.Options
	// Activations is how they are rounded where Exact is not set: one of
	// [Activations], or "" for the protocol's own on a processor.
	Activations string
	KV          string // how keys and values are kept, see exec.Options
	Device      exec.Device
	// Policy has attention read some pages alone, in prompts where it says so, and when the
	// last Steps tokens of a window are run one by one; the reference reads all. Only those
	// are scored then.
	Policy *device.Policy
	Steps  int // 0: windows are run as prompts
	// Progress is called with tokens done and their total; nil: nobody.
	Progress func(done, total int64)
}

// exec returns how models are executed for these options.
func (o *Options) exec(context int64) exec.Options {
	x := exec.Options{Threads: o.Threads, Context: context, Exact: o.Exact, KV: o.KV, Policy: o.Policy, Device: o.Device, Verify: true}
	if !o.Exact && (o.Activations == ActivationsLlamaCPP || o.Activations == "" && o.Protocol == ProtocolLlamaCPP) {
		x.Activations = cpu.ActivationsLlamaCPP
	}
	return x
}

// How activations are rounded before they meet coded weights.
const (
	ActivationsNSTF     = "nstf"      // as nstf runs a model
	ActivationsLlamaCPP = "llama.cpp" // as that project's code for processors does
	activationsExact    = "float32"   // not at all
)

// Activations lists what Options.Activations may be, beside "".
func Activations() []string { return []string{ActivationsNSTF, ActivationsLlamaCPP} }

// activations returns what an executor made for these options does, or an error
// where that is not what was asked for.
func (o *Options) activations(ex *exec.Executor) (string, error) {
	switch {
	case ex.Activations() == cpu.ActivationsLlamaCPP:
		return ActivationsLlamaCPP, nil
	case o.Exact:
		return activationsExact, nil
	case o.Activations == ActivationsLlamaCPP:
		e := formats.Unsupportedf("", "", "activations as %s has them, on a GPU", ActivationsLlamaCPP)
		e.Hint = "use --device cpu"
		return "", e
	}
	return ActivationsNSTF, nil
}

// A Result is what was measured.
type Result struct {
	Model    string   `json:"model"`
	Text     string   `json:"text"`
	Protocol Protocol `json:"protocol"`
	Context  int      `json:"ctx"` // tokens per window
	Windows  int      `json:"windows"`
	Tokens   int      `json:"tokens"` // of the text
	Scored   int      `json:"scored"` // predicted tokens that count
	// Activations is how they were rounded: float32, nstf or llama.cpp.
	Activations string      `json:"activations"`
	Steps       int         `json:"steps,omitempty"`      // tokens of a window that were run one by one
	PagesRead   float64     `json:"pages_read,omitempty"` // of keys and values, by a policy, as a share
	NLL         Estimate    `json:"nll"`                  // mean negative log-likelihood, nats per token
	Perplexity  Estimate    `json:"perplexity"`           // exp of it
	Seconds     float64     `json:"seconds"`
	TokensPerS  float64     `json:"tokens_per_second"`
	Ref         *Comparison `json:"ref,omitempty"`
}

// A Comparison is the distance from a reference, over the scored rows.
type Comparison struct {
	Name       string   `json:"name"`
	Perplexity Estimate `json:"perplexity"` // of the reference
	// LogRatio is ln(perplexity/reference's), row by row, so that its error
	// is that of the difference and not of both.
	LogRatio Estimate `json:"log_ratio"`
	KL       Estimate `json:"kl_mean"` // divergence of the model from the reference, nats per token
	Median   Estimate `json:"kl_median"`
	P90      Estimate `json:"kl_p90"`
	P99      Estimate `json:"kl_p99"`
	Top1     Estimate `json:"top1_agreement"` // share of rows with the same most likely token
}

// Run measures a model. Its errors are those of the text, the reference and
// the executor; logits that are no numbers are an error that names the place.
func Run(ctx context.Context, m *model.Model, o Options) (*Result, error) {
	w, texts, err := prepare(m, o)
	if err != nil {
		return nil, err
	}
	ex, err := exec.New(m, o.exec(int64(w.size)))
	if err != nil {
		return nil, err
	}
	defer ex.Close()
	activations, err := o.activations(ex)
	if err != nil {
		return nil, err
	}
	var ref reference
	if o.Ref != "" {
		if ref, err = openReference(o, texts, w, int(m.Graph.Vocab)); err != nil {
			return nil, err
		}
		defer ref.close()
	}
	var save *logprob.Writer
	if o.SaveRef != nil {
		if save, err = logprob.Create(o.SaveRef, w.header(int(m.Graph.Vocab))); err != nil {
			return nil, err
		}
		defer save.Abort()
	}
	start := time.Now()
	s := newScorer(m.Path, w, int(m.Graph.Vocab), ref, save)
	if err := s.run(ctx, ex, o.Progress); err != nil {
		return nil, err
	}
	if save != nil {
		if err := save.Close(); err != nil {
			return nil, err
		}
	}
	r := s.result()
	r.Activations = activations
	r.Model, r.Text, r.Seconds = m.Path, o.Text, time.Since(start).Seconds()
	r.TokensPerS = float64(len(w.list)*w.size) / r.Seconds
	if r.Ref != nil {
		r.Ref.Name = o.Ref
	}
	if read, held := ex.PagesRead(); held > 0 {
		r.PagesRead = float64(read) / float64(held)
	}
	r.Steps = o.Steps
	return r, nil
}

// What is read of a text where MaxTokens bounds it, in bytes.
const (
	bytesForToken = 256
	leastText     = 4 << 20
)

// prepare reads the text and cuts it with the model's tokenizer.
func prepare(m *model.Model, o Options) (*windows, []string, error) {
	want := corpus.Want{Input: o.Input}
	if o.MaxTokens > 0 {
		want.Most = max(bytesForToken*int64(o.MaxTokens), leastText)
	}
	text, err := corpus.Load(o.Text, want)
	if err != nil {
		return nil, nil, err
	}
	texts, err := text.Texts(o.Text)
	if err != nil {
		return nil, nil, err
	}
	tok, err := m.Tokenizer()
	if err != nil {
		return nil, nil, err
	}
	w, err := cut(tok, texts, o.Protocol, o.Context, o.MaxTokens)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", o.Text, err)
	}
	if o.Steps > 0 {
		if o.Steps > w.rows() {
			return nil, nil, fmt.Errorf("%d steps: windows of %d tokens have %d that are scored", o.Steps, w.size, w.rows())
		}
		w.first, w.stepped = w.size-1-o.Steps, true
	}
	return w, texts, nil
}

// header describes stored log-probabilities of these windows.
func (w *windows) header(vocab int) logprob.Header {
	return logprob.Header{Protocol: protocolIDs[w.protocol], Vocab: vocab, Window: w.size, Rows: w.rows(),
		Windows: int64(len(w.list)), Tokens: w.hash()}
}
