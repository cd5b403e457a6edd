// Package devicetest holds stages to what package device promises of them. It
// belongs to tests.
package devicetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/runtime/device"
)

// A Widths says what [TestWidth] runs.
type Widths struct {
	Vocab   int64
	Few     []int // rows of the passes that are compared with one row alone, at most the stage's FewRows each
	Prompts []int // tokens that sequences hold before, by turns; one more is a sequence's tokens at most
	Prompt  int   // tokens of a prompt that is cut in several ways; 0: none
	// Recurrent says that states do not go back to where they are asked to: they are
	// kept, and restored.
	Recurrent bool
}

// sequences are texts in progress on one stage, which is a whole model.
type sequences struct {
	t     testing.TB
	b     device.Stage
	vocab int
	total int64 // positions of each at most
	most  int   // rows of a pass of few
	kept  bool
}

// A part is the next tokens of a sequence.
type part struct {
	state  device.State
	tokens []int32
	before device.Snapshot // the state that the tokens follow, where states are kept
	held   int64           // positions of it
}

// back takes a sequence back to where it was prefilled to.
func (s *sequences) back(p part) {
	s.t.Helper()
	if p.before == nil {
		p.state.Rewind(p.held)
		return
	}
	if err := p.state.Restore(p.before); err != nil {
		s.t.Fatal(err)
	}
}

// release gives back what a sequence holds, so that a stage needs places for those alone that a test compares.
func (p part) release() {
	if p.before != nil {
		p.before.Release()
	}
	p.state.Release()
}

// run makes one pass and returns the logits of its rows from one on.
func (s *sequences) run(from int, parts ...part) [][]float32 {
	s.t.Helper()
	return s.pass(device.Batch{}, from, parts...)
}

// runPrompt is run of a prompt's rows.
func (s *sequences) runPrompt(from int, parts ...part) [][]float32 {
	s.t.Helper()
	return s.pass(device.Batch{Prompt: true}, from, parts...)
}

func (s *sequences) pass(batch device.Batch, from int, parts ...part) [][]float32 {
	s.t.Helper()
	row := 0
	for _, p := range parts {
		if err := p.state.Reserve(p.state.Len() + int64(len(p.tokens))); err != nil {
			s.t.Fatal(err)
		}
		row += len(p.tokens)
		wanted := min(max(row-from, 0), len(p.tokens))
		batch.Segments = append(batch.Segments, device.Segment{State: p.state, Tokens: p.tokens, Length: s.total, Wanted: wanted})
	}
	pass, err := s.b.Forward(&batch)
	if err != nil {
		s.t.Fatal(err)
	}
	n := batch.Wanted()
	if n == 0 {
		return nil
	}
	all := make([]float32, n*s.vocab)
	if err := pass.Logits(0, n, all); err != nil {
		s.t.Fatal(err)
	}
	rows := make([][]float32, n)
	for i := range rows {
		rows[i] = all[i*s.vocab : (i+1)*s.vocab]
	}
	return rows
}

func (s *sequences) state() device.State {
	s.t.Helper()
	c, err := s.b.NewState(s.total)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s *sequences) text(seed, n int) []int32 {
	r := rand.New(rand.NewPCG(uint64(seed), 5))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = r.Int32N(int32(s.vocab))
	}
	return ids
}

// same reports rows that differ in a bit.
func (s *sequences) same(what string, got, want [][]float32) {
	s.t.Helper()
	for r := range want {
		bits, most := 0, 0.0
		for i, v := range want[r] {
			if math.Float32bits(v) != math.Float32bits(got[r][i]) {
				bits++
				most = max(most, math.Abs(float64(v-got[r][i])))
			}
		}
		if bits > 0 {
			s.t.Errorf("%s: row %d of %d differs in %d of %d logits, by %.3g at most", what, r, len(want), bits, len(want[r]), most)
			return
		}
	}
}

// TestWidth wants every row of a pass of few rows to have the bits that it has alone:
// the next tokens of several sequences, several next tokens of one, and both at once.
// Rows of a prompt are wanted to have the same bits however it is cut into passes, and
// whoever else is in them.
func TestWidth(t testing.TB, b device.Stage, w Widths) {
	t.Helper()
	s := &sequences{t: t, b: b, vocab: int(w.Vocab), kept: w.Recurrent}
	s.most = slices.Max(w.Few)
	for _, n := range append(w.Prompts, w.Prompt) {
		s.total = max(s.total, int64(n+s.most))
	}
	s.together(w)
	for _, held := range w.Prompts[:min(2, len(w.Prompts))] {
		s.draft(w, held)
	}
	if w.Prompt > 0 {
		s.prompt(w)
	}
}

// prefilled returns a sequence that holds n tokens.
func (s *sequences) prefilled(seed, n int) part {
	c, ids := s.state(), s.text(seed, n+s.most)
	for at := 0; at < n; {
		step := min(n-at, s.b.MaxRows())
		s.run(step, part{state: c, tokens: ids[at : at+step]})
		at += step
	}
	p := part{state: c, tokens: ids[n:], held: int64(n)}
	if s.kept {
		var err error
		if p.before, err = c.Snapshot(); err != nil {
			s.t.Fatal(err)
		}
	}
	return p
}

// together steps several sequences at once.
func (s *sequences) together(w Widths) {
	s.t.Helper()
	var all []part
	var alone [][]float32
	for i := range s.most {
		p := s.prefilled(i, w.Prompts[i%len(w.Prompts)])
		all = append(all, part{p.state, p.tokens[:1], p.before, p.held})
		alone = append(alone, s.run(0, all[i])...)
	}
	forget := func() {
		for _, p := range all {
			s.back(p)
		}
	}
	for _, n := range w.Few {
		forget()
		first := (s.most - n) / 2 // others than the first ones, too
		s.same(fmt.Sprintf("%d sequences", n), s.run(0, all[first:first+n]...), alone[first:first+n])
	}
	for _, p := range all {
		p.release()
	}
}

// draft appends several tokens to a sequence at once, alone and beside another one.
func (s *sequences) draft(w Widths, held int) {
	s.t.Helper()
	p, other := s.prefilled(100, held), s.prefilled(101, 3)
	defer p.release()
	defer other.release()
	var alone [][]float32
	for i := range p.tokens {
		alone = append(alone, s.run(0, part{state: p.state, tokens: p.tokens[i : i+1]})...)
	}
	for _, n := range w.Few {
		s.back(p)
		s.same(fmt.Sprintf("%d tokens behind %d", n, held), s.run(0, part{state: p.state, tokens: p.tokens[:n]}), alone[:n])
		if n < 2 {
			continue
		}
		s.back(p)
		s.same(fmt.Sprintf("the last of %d tokens behind %d", n, held), s.run(n-1, part{state: p.state, tokens: p.tokens[:n]}), alone[n-1:n])
		s.back(p)
		half := n / 2
		rows := s.run(0, part{state: other.state, tokens: other.tokens[:n-half]}, part{state: p.state, tokens: p.tokens[:half]})
		s.same(fmt.Sprintf("%d tokens behind %d, and %d of another sequence", half, held, n-half), rows[n-half:], alone[:half])
		s.back(other)
	}
}

// prompt cuts a text into passes in several ways.
func (s *sequences) prompt(w Widths) {
	s.t.Helper()
	ids, c := s.text(200, w.Prompt), s.state()
	defer c.Release()
	passes := func(sizes ...int) (rows [][]float32) {
		c.Rewind(0)
		at := 0
		for _, n := range sizes {
			rows = append(rows, s.runPrompt(0, part{state: c, tokens: ids[at : at+n]})...)
			at += n
		}
		return rows
	}
	whole := passes(w.Prompt)
	least, half := device.FewRows+1, w.Prompt/2
	for _, sizes := range [][]int{{least, w.Prompt - least}, {half, w.Prompt - half}, {w.Prompt - least, least}, {1, 2, half, w.Prompt - half - 8, 5}} {
		s.same(fmt.Sprintf("a prompt in passes of %v", sizes), passes(sizes...), whole)
	}
	passes(half)
	s.same("a prompt's last row", s.runPrompt(w.Prompt-half-1, part{state: c, tokens: ids[half:]}), whole[w.Prompt-1:])
	passes(w.Prompt - 1)
	s.same("a prompt's last row alone", s.runPrompt(0, part{state: c, tokens: ids[w.Prompt-1:]}), whole[w.Prompt-1:])
	passes(half)
	other := s.state()
	defer other.Release()
	rows := s.runPrompt(0, part{state: other, tokens: s.text(201, 5)}, part{state: c, tokens: ids[half:]})
	s.same("a prompt beside another", rows[5:], whole[half:])
	passes(w.Prompt - 1)
	other.Rewind(0)
	rows = s.runPrompt(19, part{state: other, tokens: s.text(201, 20)}, part{state: c, tokens: ids[w.Prompt-1:]})
	s.same("the last row of a prompt behind another's", rows[1:], whole[w.Prompt-1:])
}
