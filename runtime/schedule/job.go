package schedule

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/sample"
)

// A job is one choice of a request in progress.
type job struct {
	st      *Stream
	index   int
	choice  *Choice
	arrival uint64
	leader  *job // whose prompt it shares; nil: none

	tokens  []int32 // the prompt, and what was chosen
	prompt  int     // tokens of the prompt
	read    bool    // the prompt has been, once at least
	over    bool
	sampler *sample.Sampler
	lp      []Event // of tokens that the host has chosen

	seq      *exec.Sequence // nil: it waits
	d        *exec.Decoding
	prompted int     // tokens to be computed in the order of prompts
	prefix   *prefix // these
	keep     bool
	under    int // tokens under way before the step
	bits     []uint32
	counts   map[int32]int // of the tokens that were chosen
}

func byArrival(a, b *job) int { return cmp.Compare(a.arrival, b.arrival) }

func newJob(st *Stream, prompt []int32, index int, c *Choice) (*job, error) {
	sampler, err := sample.New(c.Sampling)
	if err != nil {
		return nil, err
	}
	j := &job{st: st, index: index, choice: c, tokens: slices.Clip(prompt), prompt: len(prompt), prompted: len(prompt), sampler: sampler}
	if c.Presence != 0 || c.Frequency != 0 {
		j.counts = map[int32]int{}
	}
	return j, nil
}

// chosen is how many tokens were.
func (j *job) chosen() int { return len(j.tokens) - j.prompt }

// wants reports whether one more token may be begun.
func (j *job) wants() bool {
	return j.choice.MaxTokens == 0 || j.chosen()+j.d.Underway() < j.choice.MaxTokens
}

// begin has the job's sequence compute what it does not hold.
func (j *job) begin() (err error) {
	n := j.seq.Len()
	c := exec.Continuation{Prompt: j.tokens[min(n, j.prompted):j.prompted:j.prompted], Again: j.tokens[max(n, j.prompted):], Sampler: j.sampler}
	switch {
	case j.choice.onHost():
		c.Choose = j.choose
	case j.choice.Constraint != nil:
		c.Mask = j.allowed
	}
	j.d, err = j.seq.Continue(c)
	return err
}

// yield gives the job's memory back. What was chosen and not read is chosen again.
func (j *job) yield() {
	j.prompted = max(j.prompted, j.seq.Prompted())
	j.seq.Close()
	j.seq, j.d, j.prefix = nil, nil, nil
}

// choose is an exec.Chooser.
func (j *job) choose(logits []float32, tokens []int32) (int32, error) {
	c := j.choice
	var e Event
	var norm float64
	var raw []float32
	if c.Logprobs {
		norm = logSum(logits)
		e.Top = top(logits, c.Top, norm)
		raw = slices.Clone(logits)
	}
	for id, n := range j.counts {
		logits[id] -= c.Presence + c.Frequency*float32(n)
	}
	for id, v := range c.Bias {
		if id >= 0 && int(id) < len(logits) {
			logits[id] += v
		}
	}
	if err := j.mask(logits); err != nil {
		return 0, err
	}
	id := j.sampler.Next(logits, tokens, int64(len(tokens)))
	if raw != nil {
		e.Logprob = float64(raw[id]) - norm
	}
	j.lp = append(j.lp, e)
	return id, nil
}

// allowed returns a bit for each token that the constraint allows, nil where it allows
// all.
func (j *job) allowed() ([]uint32, error) {
	vocab := int(j.st.s.ex.Graph().Vocab)
	if j.bits == nil {
		j.bits = make([]uint32, (vocab+31)/32)
	}
	if !j.choice.Constraint.Mask(j.bits) {
		return nil, nil
	}
	if rest := vocab % 32; rest > 0 { // tokens that there are not
		j.bits[len(j.bits)-1] &= 1<<rest - 1
	}
	for _, b := range j.bits {
		if b != 0 {
			return j.bits, nil
		}
	}
	return nil, fmt.Errorf("the constraint allows no token behind %d", j.chosen())
}

// mask forbids what the constraint does.
func (j *job) mask(logits []float32) error {
	if j.choice.Constraint == nil {
		return nil
	}
	bits, err := j.allowed()
	if bits == nil {
		return err
	}
	for i := range logits {
		if bits[i/32]>>(i%32)&1 == 0 {
			logits[i] = float32(math.Inf(-1))
		}
	}
	return nil
}

// take gives out a token that was chosen, and returns why it is the last one, "" where
// it is not.
func (j *job) take(id int32) (Reason, error) {
	e := Event{}
	if len(j.lp) > 0 {
		e, j.lp = j.lp[0], j.lp[1:]
	}
	e.Choice, e.Token = j.index, id
	j.tokens = append(j.tokens, id)
	if j.counts != nil {
		j.counts[id]++
	}
	if c := j.choice.Constraint; c != nil {
		if err := c.Accept(id); err != nil {
			return ReasonError, err
		}
	}
	switch {
	case slices.Contains(j.choice.Stops, id):
		e.Reason = ReasonStop
	case j.choice.MaxTokens > 0 && j.chosen() >= j.choice.MaxTokens:
		e.Reason = ReasonLength
	}
	if e.Reason != "" {
		j.over = true
	}
	j.st.emit(e)
	return e.Reason, nil
}

// logSum returns the logarithm of the sum of exp(logit).
func logSum(logits []float32) float64 {
	most := math.Inf(-1)
	for _, v := range logits {
		most = max(most, float64(v))
	}
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v) - most)
	}
	return most + math.Log(sum)
}

// top returns the n most probable tokens.
func top(logits []float32, n int, norm float64) []Logprob {
	var best []Logprob
	for id, v := range logits {
		l := Logprob{int32(id), float64(v) - norm}
		if len(best) == n && (n == 0 || !(l.Logprob > best[n-1].Logprob)) {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, l, func(a, b Logprob) int {
			if a.Logprob >= b.Logprob { // the lower id first
				return -1
			}
			return 1
		})
		best = slices.Insert(best, at, l)
		best = best[:min(len(best), n)]
	}
	return best
}
