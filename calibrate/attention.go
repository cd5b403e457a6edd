package calibrate

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"path/filepath"

	"github.com/zeebo/blake3"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/attention"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
)

// AttentionOptions say how policies of attention are measured.
type AttentionOptions struct {
	Options
	KV    string    // how keys and values are kept, see exec.Options
	Steps int       // of a window, behind a prompt of the rest of it
	Pages []float64 // shares of all pages that are measured with all heads, on held-out windows, in steps and in prompts
}

// AttentionGrid are the shares of pages that heads are measured at.
func AttentionGrid() []float64 { return []float64{0.015, 0.04, 0.1, 0.25, 0.5} }

// Attention measures what each key-value head of a model loses where its steps read some of
// its pages alone, and what all lose together with shares that follow from that, on windows
// that were held out. A window is run twice behind one prompt: as it goes on, and going on
// with a passage of its own, from a third of it on, which heads that retrieve have to find.
// The same is measured of prompts whose blocks of queries choose pages, of the last rows of
// windows behind a dense prompt for each head, of whole windows that were held out for all.
// The processor measures.
func Attention(ctx context.Context, m *model.Model, windows, held [][]int32, o AttentionOptions) (*attention.Policy, error) {
	w, err := newAttentionWalk(m, windows, held, &o)
	if err != nil {
		return nil, err
	}
	defer w.ex.Close()
	p := &attention.Policy{Grid: AttentionGrid(), Source: attention.Source{Model: filepath.Base(m.Path), Text: o.Text, TextHash: hashTokens(windows, held),
		Context: int64(longest(windows)), Windows: int64(len(windows)), Held: int64(len(held)), Steps: int64(o.Steps)}}
	for b, heads := range w.heads {
		for h := range heads {
			p.Heads = append(p.Heads, attention.Head{Block: int64(b), Head: h, KLD: make([]float64, len(p.Grid)), Prompt: make([]float64, len(p.Grid))})
		}
	}
	w.total = int64(2*len(windows)*len(p.Heads) + 2*len(held)*len(o.Pages))
	for _, ids := range windows {
		if err := w.measureHeads(ctx, ids, p, float64(len(windows))); err != nil {
			return nil, err
		}
		if err := w.measurePromptHeads(ctx, ids, p, float64(len(windows))); err != nil {
			return nil, err
		}
	}
	sums, prompts := make([]divergenceSum, len(o.Pages)), make([]divergenceSum, len(o.Pages))
	for _, ids := range held {
		if err := w.measureAll(ctx, ids, p, sums); err != nil {
			return nil, err
		}
		if err := w.measurePrompts(ctx, ids, p, prompts); err != nil {
			return nil, err
		}
	}
	for i, s := range sums {
		if s.n > 0 {
			p.Measured = append(p.Measured, s.point(o.Pages[i]))
		}
		if s := prompts[i]; s.held > 0 { // windows of a few pages are read whole
			p.Prompts = append(p.Prompts, s.point(o.Pages[i]))
		}
	}
	return p, nil
}

func hashTokens(all ...[][]int32) string {
	h := blake3.New()
	var p [4]byte
	for _, windows := range all {
		for _, ids := range windows {
			for _, id := range ids {
				binary.LittleEndian.PutUint32(p[:], uint32(id))
				h.Write(p[:])
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:32])
}

// An attentionWalk is one executor, whose policy changes from run to run.
type attentionWalk struct {
	ex          *exec.Executor
	policy      *device.Policy
	o           *AttentionOptions
	set         *cpu.Set
	heads       []int64 // key-value heads of each block that a policy is for
	vocab       int
	p           []float32
	done, total int64
}

func newAttentionWalk(m *model.Model, windows, held [][]int32, o *AttentionOptions) (*attentionWalk, error) {
	p := device.DefaultPolicy()
	w := &attentionWalk{policy: &p, o: o, set: cpu.Best(), heads: PolicyHeads(m), vocab: int(m.Graph.Vocab)}
	for _, all := range [][][]int32{windows, held} {
		for _, ids := range all {
			if len(ids) < AttentionLeast(o.Steps) {
				err := formats.Unsupportedf(m.Path, "", "measuring %d steps behind %d tokens, where a policy begins at %d", o.Steps, len(ids)-o.Steps, p.Least)
				err.Hint = "give longer windows (--ctx)"
				return nil, err
			}
		}
	}
	w.p = make([]float32, w.vocab)
	w.share(1)
	var err error
	w.ex, err = exec.New(m, exec.Options{Threads: o.threads(), Context: int64(max(longest(windows), longest(held))), KV: o.KV, Exact: true, Sequences: 3, Policy: w.policy})
	return w, err
}

// AttentionLeast is how long a window of [Attention] is at least that ends in so many steps.
func AttentionLeast(steps int) int { return int(device.DefaultPolicy().Least) + steps + 1 }

// PolicyHeads returns the key-value heads of each block of a model that a policy of
// attention is for.
func PolicyHeads(m *model.Model) []int64 {
	heads := make([]int64, len(m.Graph.Blocks))
	for i := range heads {
		if b := &m.Graph.Blocks[i]; device.Followed(b) {
			heads[i] = b.Attn.KVHeads
		}
	}
	return heads
}

// share has all heads read the same share of pages.
func (w *attentionWalk) share(x float64) {
	w.policy.Heads = make([][]float64, len(w.heads))
	for b, n := range w.heads {
		for range n {
			w.policy.Heads[b] = append(w.policy.Heads[b], x)
		}
	}
}

// A tail is tokens behind a prompt, and the logits that follow each where all is read.
type tail struct {
	ids  []int32
	want [][]float32
}

// begin computes a window's prompt and what follows it.
func (w *attentionWalk) begin(ctx context.Context, ids []int32) (*exec.Sequence, []tail, error) {
	seq, err := w.ex.NewSequence()
	if err != nil {
		return nil, nil, err
	}
	n := len(ids) - w.o.Steps
	if err := seq.Prefill(ctx, ids[:n], nil); err != nil {
		seq.Close()
		return nil, nil, err
	}
	w.share(1)
	tails := []tail{{ids: ids[n:]}, {ids: ids[n/3:][:w.o.Steps]}}
	for i := range tails {
		t := &tails[i]
		err := w.run(ctx, seq, t, func(step int, logits []float32) {
			t.want = append(t.want, append([]float32(nil), logits...))
		})
		if err != nil {
			seq.Close()
			return nil, nil, err
		}
	}
	return seq, tails, nil
}

// run steps through a tail behind a prompt, which stays as it is.
func (w *attentionWalk) run(ctx context.Context, prompt *exec.Sequence, t *tail, f func(step int, logits []float32)) error {
	seq, err := prompt.Fork()
	if err != nil {
		return err
	}
	defer seq.Close()
	for i, id := range t.ids {
		if err := ctx.Err(); err != nil {
			return err
		}
		logits, err := seq.Step(id)
		if err != nil {
			return err
		}
		f(i, logits)
	}
	return nil
}

func (w *attentionWalk) progress() {
	if w.done++; w.o.Progress != nil {
		w.o.Progress(w.done, w.total)
	}
}

// compare runs all tails with the shares that are set, and adds up the divergences of all
// steps but the first, which reads all.
func (w *attentionWalk) compare(ctx context.Context, prompt *exec.Sequence, tails []tail, s *divergenceSum) error {
	for i := range tails {
		t := &tails[i]
		err := w.run(ctx, prompt, t, func(step int, logits []float32) {
			if step > 0 {
				w.add(s, t.want[step], logits)
			}
		})
		if err != nil {
			return err
		}
	}
	return s.check()
}

// measureHeads adds a window's divergences to those of heads.
func (w *attentionWalk) measureHeads(ctx context.Context, ids []int32, p *attention.Policy, windows float64) error {
	prompt, tails, err := w.begin(ctx, ids)
	if err != nil {
		return err
	}
	defer prompt.Close()
	for i := range p.Heads {
		h := &p.Heads[i]
		for j, x := range p.Grid {
			w.share(1)
			w.policy.Heads[h.Block][h.Head] = x
			var s divergenceSum
			if err := w.compare(ctx, prompt, tails, &s); err != nil {
				return err
			}
			h.KLD[j] += s.mean() / windows
		}
		w.progress()
	}
	return nil
}

// measureAll adds what all heads together lose on a window.
func (w *attentionWalk) measureAll(ctx context.Context, ids []int32, p *attention.Policy, sums []divergenceSum) error {
	prompt, tails, err := w.begin(ctx, ids)
	if err != nil {
		return err
	}
	defer prompt.Close()
	for i, pages := range w.o.Pages {
		w.policy.Heads = p.Shares(len(w.heads), pages)
		read, held := w.ex.PagesRead()
		if err := w.compare(ctx, prompt, tails, &sums[i]); err != nil {
			return err
		}
		r, h := w.ex.PagesRead()
		sums[i].read, sums[i].held = sums[i].read+r-read, sums[i].held+h-held
		w.progress()
	}
	return nil
}

// How many rows of a prompt each head is measured on, in each way, and how many positions of a
// window all heads are.
const promptRows, mostPromptPositions = 256, 256

// prefill reads ids behind a sequence by the shares, and shows what follows each of them.
func (w *attentionWalk) prefill(ctx context.Context, seq *exec.Sequence, ids []int32, shares [][]float64, f func(at int, logits []float32)) error {
	w.policy.Prompts = shares
	defer func() { w.policy.Prompts = nil }()
	start := seq.Len()
	return seq.Prefill(ctx, ids, func(pos int, row []float32) error {
		f(pos-start, row)
		return nil
	})
}

// measurePromptHeads adds a window's divergences to those that heads have in prompts: of rows
// behind a dense prompt, as the text goes on and with a passage of its own.
func (w *attentionWalk) measurePromptHeads(ctx context.Context, ids []int32, p *attention.Policy, windows float64) error {
	n := max(len(ids)-promptRows, int(w.policy.Least)) / device.PolicyPage * device.PolicyPage
	rows := len(ids) - n
	prompt, err := w.ex.NewSequence()
	if err != nil {
		return err
	}
	defer prompt.Close()
	if err := prompt.Prefill(ctx, ids[:n], nil); err != nil {
		return err
	}
	w.share(1)
	all := w.policy.Heads
	tails := []tail{{ids: ids[n:]}, {ids: ids[n/3:][:rows]}}
	run := func(t *tail, shares [][]float64, f func(at int, logits []float32)) error {
		seq, err := prompt.Fork()
		if err != nil {
			return err
		}
		defer seq.Close()
		return w.prefill(ctx, seq, t.ids, shares, f)
	}
	for i := range tails {
		t := &tails[i]
		if err := run(t, nil, func(_ int, row []float32) { t.want = append(t.want, append([]float32(nil), row...)) }); err != nil {
			return err
		}
	}
	for i := range p.Heads {
		h := &p.Heads[i]
		pages, last := 0, 0.
		for j, x := range p.Grid {
			n := device.PromptPages(x, len(ids)/device.PolicyPage)
			if n == pages { // as with the share before
				h.Prompt[j] += last
				continue
			}
			pages = n
			all[h.Block][h.Head] = x
			var s divergenceSum
			for i := range tails {
				t := &tails[i]
				if err := run(t, all, func(at int, row []float32) { w.add(&s, t.want[at], row) }); err != nil {
					return err
				}
			}
			if err := s.check(); err != nil {
				return err
			}
			last = s.mean() / windows
			h.Prompt[j] += last
		}
		all[h.Block][h.Head] = 1
		w.progress()
	}
	return nil
}

// measurePrompts adds what a window loses that is read as one prompt by the policy, at
// positions that lie evenly behind those that a policy reads whole.
func (w *attentionWalk) measurePrompts(ctx context.Context, ids []int32, p *attention.Policy, sums []divergenceSum) error {
	least := int(w.policy.Least)
	step := (len(ids)-least-1)/mostPromptPositions + 1
	seq, err := w.ex.NewSequence()
	if err != nil {
		return err
	}
	defer seq.Close()
	run := func(shares [][]float64, f func(i int, row []float32)) error {
		seq.Reset()
		return w.prefill(ctx, seq, ids, shares, func(at int, row []float32) {
			if back := len(ids) - 1 - at; at >= least && back%step == 0 {
				f(back/step, row)
			}
		})
	}
	want := make([][]float32, (len(ids)-1-least)/step+1)
	if err := run(nil, func(i int, row []float32) { want[i] = append([]float32(nil), row...) }); err != nil {
		return err
	}
	for j, pages := range w.o.Pages {
		s := &sums[j]
		read, held := w.ex.PagesRead()
		if err := run(p.PromptShares(len(w.heads), pages), func(i int, row []float32) { w.add(s, want[i], row) }); err != nil {
			return err
		}
		if err := s.check(); err != nil {
			return err
		}
		r, h := w.ex.PagesRead()
		s.read, s.held = s.read+r-read, s.held+h-held
		w.progress()
	}
	return nil
}

// add takes over what a row lost.
func (w *attentionWalk) add(s *divergenceSum, want, got []float32) {
	s.add(divergence(w.set, w.p, want, got), top(want) == top(got))
}

// A divergenceSum is divergences in the making of a mean.
type divergenceSum struct {
	n, same      int
	sum, squares float64
	read, held   int64 // pages
}

func (s *divergenceSum) add(x float64, same bool) {
	s.n++
	s.sum, s.squares = s.sum+x, s.squares+x*x
	if same {
		s.same++
	}
}

// check says whether all logits were finite.
func (s *divergenceSum) check() error {
	if math.IsNaN(s.sum) || math.IsInf(s.sum, 0) {
		return fmt.Errorf("calibrate: logits that are not finite")
	}
	return nil
}

func (s *divergenceSum) mean() float64 { return max(s.sum/float64(s.n), 0) }

func (s *divergenceSum) point(pages float64) attention.Point {
	n := float64(s.n)
	variance := max(s.squares/n-s.sum/n*s.sum/n, 0)
	return attention.Point{Pages: pages, Read: float64(s.read) / float64(max(s.held, 1)), KLD: s.mean(), SE: math.Sqrt(variance / n), Top1: float64(s.same) / n}
}

func top(x []float32) (at int) {
	for i, v := range x {
		if v > x[at] {
			at = i
		}
	}
	return at
}
