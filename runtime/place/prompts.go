package place

import (
	"fmt"
	"math"
	"sort"
)

// Prompts are two ways to compute the routed experts in the processor's memory for rows of
// prompts, as they were timed.
type Prompts struct {
	Blocks int     `json:"blocks"`   // whose experts can come to the device
	Rows   int     `json:"rows"`     // of the pass that both are predicted for
	Home   float64 `json:"home_s"`   // seconds of such a pass where the processor multiplies
	Stream float64 `json:"stream_s"` // of one where the weights of those that rows choose come to the device
	From   int     `json:"from"`     // rows from which on the latter is less; 0: from none on
}

// UsualPrompt is the rows of a prompt that the way is chosen for: one for all prompts, for a row's
// bits would else depend on how long its prompt is, or how much of it is new.
const UsualPrompt = 512

// Streams reports whether the weights had better come to the device.
func (p *Prompts) Streams() bool { return p.From > 0 && p.From <= UsualPrompt }

// Experts are the routed experts of blocks, which are alike, and what the processor takes for them.
type Experts struct {
	Blocks, Count, TopK int
	Bytes               int64   // of one expert
	Few, Many           float64 // seconds of one expert with TimedFew and with TimedMany rows
}

// Rows that an expert is timed with.
const (
	TimedFew  = 16
	TimedMany = 64
)

// touched is how many experts so many rows choose, each as if at random.
func (e *Experts) touched(rows int) float64 {
	return float64(e.Count) * (1 - math.Pow(1-float64(e.TopK)/float64(e.Count), float64(rows)))
}

// Seconds predicts what the processor takes for so many rows, each of which chooses experts as if
// at random, and reads so many bytes a second:
//
//	touched = Count * (1 - (1 - TopK/Count)^rows)
//	seconds = Blocks * touched * max(Bytes / read, the time of rows*TopK/touched rows between those timed, or beyond)
func (e *Experts) Seconds(rows int, read float64) float64 {
	touched := e.touched(rows)
	each := float64(rows*e.TopK) / touched
	t := e.Few + (e.Many-e.Few)*(each-TimedFew)/(TimedMany-TimedFew)
	if each < TimedFew {
		t = e.Few * each / TimedFew
	}
	return float64(e.Blocks) * touched * max(float64(e.Bytes)/read, t)
}

// NewPrompts compares both ways for experts of all kinds: read and stream are bytes a second that
// the processor reads, and that come to the device.
func NewPrompts(all []Experts, rows int, read, stream float64) *Prompts {
	home := func(rows int) (t float64) {
		for i := range all {
			t += all[i].Seconds(rows, read)
		}
		return t
	}
	come := func(rows int) (t float64) {
		for i := range all {
			t += float64(all[i].Blocks) * all[i].touched(rows) * float64(all[i].Bytes) / stream
		}
		return t
	}
	p := &Prompts{Rows: rows, Home: home(rows), Stream: come(rows)}
	for i := range all {
		p.Blocks += all[i].Blocks
	}
	const most = 1 << 20
	if p.From = 1 + sort.Search(most, func(i int) bool { return home(i+1) > come(i+1) }); p.From > most {
		p.From = 0
	}
	return p
}

// PromptWay says which way prompts go, and what both take.
func (r *Range) PromptWay() string {
	p := r.Prompts
	if p == nil {
		return fmt.Sprintf("for prompts the processor multiplies too: their weights cannot come to %v", r.Device)
	}
	weights := "their weights"
	if p.Blocks < len(r.HostExperts) {
		weights = fmt.Sprintf("the weights of %d of them", p.Blocks)
	}
	longer := "and longer for no rows"
	if p.From > 0 {
		longer = fmt.Sprintf("and longer from %d rows on", p.From)
	}
	both := fmt.Sprintf("%.3g ms for %d rows, where the processor takes %.3g ms", 1e3*p.Stream, p.Rows, 1e3*p.Home)
	if r.Streams {
		return fmt.Sprintf("for prompts %s come to %v: %s, %s", weights, r.Device, both, longer)
	}
	return fmt.Sprintf("for prompts the processor multiplies too: were %s sent to %v, that took %s, %s", weights, r.Device, both, longer)
}

// Of layouts that differ in how many rows their passes have, which is memory that experts may lie in, that one is
// taken which reads a prompt and writes an answer of so many tokens sooner.
const (
	promptTokens = 2048
	answerTokens = 256
)

// Exchange predicts the seconds of that, without what all layouts take alike.
func (l *Layout) Exchange() float64 {
	t := answerTokens * l.Seconds
	for i := range l.Ranges {
		p := l.Ranges[i].Prompts
		if p == nil {
			continue
		}
		pass := p.Home
		if l.Ranges[i].Streams {
			pass = p.Stream
		}
		t += pass * math.Ceil(promptTokens/float64(p.Rows))
	}
	return t
}
