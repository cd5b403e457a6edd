package schedule

import (
	"cmp"
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
	forced  []int32 // tokens that the host has to choose next
	score   *score  // nil: nobody asks for the prompt's probabilities

	seq      *exec.Sequence // nil: it waits
	d        *exec.Decoding
	prompted int     // tokens to be computed in the order of prompts
	prefix   *prefix // these
	keep     bool
	under    int           // tokens under way before the step
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
	if j.choice.onHost() {
		c.Choose = j.choose
	}
	if j.choice.Constraint != nil {
		c.Mask = j.choice.Constraint.Mask
	}
	if j.score != nil {
		c.Score = j.score.take
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
func (j *job) choose(logits []float32, mask []uint32, tokens []int32) (id int32, err error) {
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
	switch {
	case len(j.forced) > 0:
		id = j.forced[0]
	case mask != nil:
		id = j.sampler.NextOf(mask, logits, tokens, int64(len(tokens)))
	default:
		id = j.sampler.Next(logits, tokens, int64(len(tokens)))
	}
	if raw != nil {
		e.Logprob = float64(raw[id]) - norm
	}
	j.lp = append(j.lp, e)
	return id, nil
}

// jumps reports whether what the job has not read is what it was forced to.
func (j *job) jumps() bool {
	n := j.d.Unread()
	return n > 0 && j.read && j.seq.Len() >= j.prompted && len(j.tokens)-n == j.seq.Len()
}

// jump gives out the tokens that have to follow the one that was taken, and returns why
// the last of them is the last one, "" where it is not. Where the host chooses it is led
// to them instead, one after the other: it tells their probabilities.
func (j *job) jump() (Reason, error) {
	c := j.choice
	if c.Constraint == nil || len(j.forced) > 0 {
		return "", nil
	}
	ids := c.Constraint.Forced()
	if c.onHost() {
		j.forced = ids
		return "", nil
	}
	for _, id := range ids[:j.d.Force(ids)] {
		j.st.s.count(func(m *Metrics) { m.Tokens++; m.Forced++ })
		if reason, err := j.take(id); reason != "" {
			return reason, err
		}
	}
	return "", nil
}

// take gives out a token that was chosen, and returns why it is the last one, "" where
// it is not.
func (j *job) take(id int32) (Reason, error) {
	e := Event{}
	if len(j.lp) > 0 {
		e, j.lp = j.lp[0], j.lp[1:]
	}
	if len(j.forced) > 0 {
		j.forced = j.forced[1:]
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
