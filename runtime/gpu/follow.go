package gpu

import (
	"encoding/binary"
	"math"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu/driver"
	"github.com/nstf/nstf/runtime/load"
)

// A following is what an engine keeps of a policy of attention: docs/attention.md. The
// arithmetic is kernels/hip's, the rules are those of runtime/cpu/follow.go.
type following struct {
	policy *device.Policy // nil: attention is dense
	first  []int          // of each block of the span, its first head among those that have histories; -1: it is dense
	heads  int            // that have histories, of all blocks
	kept   cpu.KVFormats
	// Histories are f32 [slots][heads][hip.HistoryFloats], shares and those of prompts f64 [heads], counts
	// u64[2], work is of two blocks: one that attends, and one before it whose history is
	// learned meanwhile; of a prompt's blocks the first.
	histories, shares, prompts, counts hip.Address
	work                               [2]hip.Address
	floats                             int // of the history of a slot
}

// followed returns what an engine of a span will follow. The graph is whole, or a rank's share
// and the policy one of [rankPolicy]. Errors are of package formats.
func followed(g *graph.Graph, span device.Span, p *device.Policy) (f following, err error) {
	if p == nil {
		return f, nil
	}
	if p.Rank != nil {
		return f, formats.Unsupportedf("", "", "pages of attention that are weighed by another than the device")
	}
	if err := p.Check(g); err != nil {
		return f, err
	}
	for i := span.Lo; i < span.Hi; i++ {
		f.first = append(f.first, -1)
		if b := &g.Blocks[i]; device.Followed(b) {
			f.first[i-span.Lo] = f.heads
			f.heads += int(b.Attn.KVHeads)
		}
	}
	if f.heads > 0 {
		f.policy = p.LeastOr(leastOf(g))
	}
	return f, nil
}

// leastNumbers of keys and values of a block are read by an H200 while it chooses pages and reads
// them: whole steps are as fast at 14,900 positions of 2048 numbers, in 16 bits; codes take longer
// (docs/perf/attention.md). A sequence that has no more is read as a whole, in any format.
const leastNumbers = 30 << 20

// leastOf says how many positions of a whole graph are read in any case where the policy does not:
// those of the block that has the most numbers for each. All who share the graph count alike, for
// ranks of a team have to follow the policy at the same positions: a rank that does not leaves the
// others waiting.
func leastOf(g *graph.Graph) int64 {
	most := 1
	for i := range g.Blocks {
		if b := &g.Blocks[i]; device.Followed(b) {
			most = max(most, 2*int(b.Attn.KVHeads*b.Attn.HeadDim))
		}
	}
	return max(leastNumbers/int64(most), device.PolicyLeast)
}

// mostSteps bounds what a history counts to in float32.
const mostSteps = 1 << 23

// of returns a step of a block without addresses.
func (f *following) of(b *graph.Block, format cpu.KVFormat) hip.Follow {
	a, _ := attends(b)
	a.KV.Format = format
	p := f.policy
	return hip.Follow{Attend: a, HistoryHeads: f.heads, Mass: float32(p.Mass), Least: int(min(p.Least, math.MaxInt32)), LeastPages: int(p.LeastPages()),
		Refresh: int(min(p.Refresh, mostSteps)), Rank: -1}
}

// place lays out what steps of few rows need, and prompts of t.
func (f *following) place(e *Engine, few, t, slots int, a *arena) {
	if f.policy == nil {
		return
	}
	pages := e.pool.tablePages
	f.floats = f.heads * hip.HistoryFloats(pages)
	f.histories, f.shares, f.prompts, f.counts = a.floats(slots*f.floats), a.take(8*int64(f.heads)), a.take(8*int64(f.heads)), a.take(16)
	var work, prompts int64
	for i, first := range f.first {
		if first < 0 {
			continue
		}
		o := f.of(&e.g.Blocks[e.span.Lo+i], f.kept.Of(e.span.Lo+i))
		o.T, o.MaxPages, o.Capacity = few, pages, int(e.context)
		work = max(work, o.FollowBytes(e.m.target))
		if f.policy.ForPrompts() {
			prompt := hip.PromptFollow{Attend: o.Attend}
			prompt.T = t
			prompts = max(prompts, prompt.PromptFollowBytes())
		}
	}
	f.work = [2]hip.Address{a.take(max(work, prompts)), a.take(work)}
}

// send brings to the device what stands still.
func (f *following) send(e *Engine) error {
	if f.policy == nil {
		return nil
	}
	var shares, prompts []byte
	for i, first := range f.first {
		if first < 0 {
			continue
		}
		for h := range int(e.g.Blocks[e.span.Lo+i].Attn.KVHeads) {
			share := f.policy.Share(e.span.Lo+i, h)
			if share < 1 {
				share -= 1 / float64(f.policy.Refresh) // of the steps that read all
			}
			shares = binary.LittleEndian.AppendUint64(shares, math.Float64bits(share))
			if f.policy.ForPrompts() {
				prompts = binary.LittleEndian.AppendUint64(prompts, math.Float64bits(f.policy.PromptShare(e.span.Lo+i, h)))
			}
		}
	}
	if len(prompts) > 0 {
		if err := e.m.stream.Upload(driver.Buffer{Address: f.prompts, Size: int64(len(prompts))}, prompts); err != nil {
			return err
		}
	}
	if err := e.m.stream.Upload(driver.Buffer{Address: f.shares, Size: int64(len(shares))}, shares); err != nil {
		return err
	}
	return e.m.stream.Fill(driver.Buffer{Address: f.counts, Size: 16}, 0)
}

// PagesRead returns the pages that steps by a policy have read, and rows of prompts that choose, and how
// many there were, both summed over steps or rows, blocks and key-value heads; 0 where the device is lost.
func (e *Engine) PagesRead() (read, held int64) {
	if e.follow.policy == nil {
		return 0, 0
	}
	b, err := e.m.fetch(driver.Buffer{Address: e.follow.counts, Size: 16})
	if err != nil {
		return 0, 0
	}
	return int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))
}

// PagesRead returns those of all ranks.
func (t *Team) PagesRead() (read, held int64) {
	for _, e := range t.ranks {
		r, h := e.PagesRead()
		read, held = read+r, held+h
	}
	return read, held
}

// A past is what a state knows of the device's summaries and histories.
type past struct {
	summarized int64 // pages, from the first on
	learned    bool  // the histories of its slot are its own; else there are none
}

// cut forgets all but the first positions, and the history.
func (p *past) cut(positions int64) {
	p.summarized, p.learned = min(p.summarized, positions/PageSize), false
}

// histories are those of the state's slot.
func (s *state) histories() driver.Buffer {
	f := &s.e.follow
	return driver.Buffer{Address: at(f.histories, int(s.slot), f.floats), Size: 4 * int64(f.floats)}
}

// followsUp prepares rows n of a pass of few, which come behind what the state has.
func (s *state) followsUp(n int) error {
	f := &s.e.follow
	if f.policy == nil || s.Len()+int64(n)-1 < f.policy.Least {
		return nil
	}
	if !s.past.learned {
		if err := s.e.m.stream.Fill(s.histories(), 0); err != nil {
			return err
		}
		s.past.learned = true
	}
	known := max((s.Len()+int64(n)-1)/PageSize-1, 1)
	if known <= s.past.summarized {
		return nil
	}
	var calls []hip.Call
	for i := range s.e.pool.layers {
		if l := &s.e.pool.layers[i]; l.Summarized {
			op := hip.Summarize{KV: *l, Table: at(s.e.pool.table, int(s.slot), s.e.pool.tablePages), First: int(s.past.summarized), Count: int(known - s.past.summarized)}
			calls = append(calls, op.Calls(s.e.m.target)...)
		}
	}
	if err := s.e.ready(calls); err != nil {
		return err
	}
	s.past.summarized = known
	return s.e.m.launch(calls)
}

// learnedNumbers returns a copy of the state's histories, nil where there are none.
func (s *state) learnedNumbers() ([]float32, error) {
	if !s.past.learned {
		return nil, nil
	}
	numbers := make([]float32, s.e.follow.floats)
	return numbers, s.e.download(numbers, s.histories().Address)
}

// A reading says how the rows of a pass attend in blocks that follow the policy.
type reading struct {
	ranks int  // most rows of a sequence, some of which follow it; 0: none does
	dense bool // some are too short for that
}

// readingOf looks at the rows of a pass of few.
func (e *Engine) readingOf(b *device.Batch) (r reading) {
	f := &e.follow
	if f.policy == nil {
		return r
	}
	for i := range b.Segments {
		s := &b.Segments[i]
		first, n := s.State.(*state).Len(), s.Rows()
		if first+int64(n)-1 >= f.policy.Least {
			r.ranks = max(r.ranks, n)
		}
		r.dense = r.dense || first < f.policy.Least
	}
	return r
}

// follows reports whether some rows attend by the policy in a block.
func (w *walk) follows(b *block) bool {
	return w.reading.ranks > 0 && w.e.follow.first[b.index] >= 0
}

// followAttention lists attention of rows from lo on: to all pages, or for rows that follow the policy to some.
func (w *walk) followAttention(b *block, lo int, dense *hip.Attend) {
	f := &w.e.follow
	if w.choosePages(b, lo, dense) {
		return
	}
	if !w.follows(b) {
		w.do(dense)
		return
	}
	op := f.of(b.Block, dense.KV.Format)
	op.Attend = *dense
	op.Histories = f.histories + hip.Address(4*f.first[b.index]*hip.HistoryFloats(w.e.pool.tablePages))
	op.Shares, op.Counts = f.shares+hip.Address(8*f.first[b.index]), f.counts
	if h := w.e.pool.hosts; h != nil {
		op.Uses = h.counts
	}
	if w.reading.dense {
		dense.Below = op.Least
		w.do(dense)
	}
	for rank := range w.reading.ranks {
		one := op
		if w.reading.ranks > 1 {
			one.Rank = rank
		}
		if one.Work = f.work[0]; w.learning != nil && w.learning.Work == one.Work {
			one.Work = f.work[1]
		}
		if w.learning != nil && w.learning.Fits(&one, w.e.m.target) {
			one.Before = w.learning
		} else {
			w.learn()
		}
		w.do(&one)
		one.Before = nil
		w.learning = &one
	}
}

// learn lists what the last step has to learn, which no other has done beside its choice.
func (w *walk) learn() {
	if w.learning != nil {
		w.do(&hip.Learn{Of: w.learning})
		w.learning = nil
	}
}

// rankPolicy is a policy for the key-value heads that one rank of a team has of a graph. Its
// least positions are the whole graph's.
func rankPolicy(p *device.Policy, g *graph.Graph, rank, ranks int) *device.Policy {
	if p = p.LeastOr(leastOf(g)); p == nil {
		return p
	}
	own := *p
	for _, shares := range []*[][]float64{&own.Heads, &own.Prompts} {
		all := *shares
		if all == nil {
			continue
		}
		*shares = make([][]float64, len(all))
		for i, heads := range all {
			if a := g.Blocks[i].Attn; a != nil && int64(len(heads)) == a.KVHeads {
				lo, n := load.KeyHeads(a.KVHeads, rank, ranks)
				(*shares)[i] = heads[lo : lo+n]
			}
		}
	}
	return &own
}

// chosenRows are rows of a prompt whose blocks of queries choose pages: those of one sequence, in whole pages.
type chosenRows struct {
	state         *state
	owner         int
	first, blocks int   // of the pass
	from, known   int64 // pages that are to be summarised
}

// chooses returns which of the coming n rows of a sequence choose, the first of which is one of a pass. Rows whose
// page another pass shares do not, so that a row's bits do not depend on where its prompt was cut between pages.
func (s *state) chooses(first, n int) (c chosenRows, some bool) {
	p := s.e.follow.policy
	if !p.ForPrompts() {
		return c, false
	}
	at := s.Len()
	from, end := (max(at, p.Least)+PageSize-1)/PageSize*PageSize, (at+int64(n))/PageSize*PageSize
	if from >= end {
		return c, false
	}
	return chosenRows{state: s, owner: int(s.slot), first: first + int(from-at), blocks: int((end - from) / PageSize), from: s.past.summarized, known: end/PageSize - 2}, true
}

// summarize lists the summaries that rows which choose need of a block's keys and values, which are there.
func (w *walk) summarize(b *block) {
	kv := &w.e.pool.layers[b.kv]
	if b.k == nil || !kv.Summarized {
		return
	}
	for i := range w.choosing {
		if c := &w.choosing[i]; c.known > c.from {
			w.do(&hip.Summarize{KV: *kv, Table: at(w.e.pool.table, c.owner, w.e.pool.tablePages), First: int(c.from), Count: int(c.known - c.from)})
		}
	}
}

// choosePages lists attention of rows from lo on, of which some choose pages, and reports whether there is such.
func (w *walk) choosePages(b *block, lo int, dense *hip.Attend) bool {
	f := &w.e.follow
	if len(w.choosing) == 0 || f.first[b.index] < 0 || !dense.FollowsPrompts(w.e.m.target) {
		return false
	}
	op := hip.PromptFollow{Attend: *dense, Shares: f.prompts + hip.Address(8*f.first[b.index]), LeastPages: device.LeastPromptPages, Counts: f.counts, Work: f.work[0]}
	for _, c := range w.choosing {
		if skip := (max(lo-c.first, 0) + PageSize - 1) / PageSize; skip < c.blocks {
			op.Chosen = append(op.Chosen, hip.ChosenRows{First: c.first + PageSize*skip - lo, Blocks: c.blocks - skip})
		}
	}
	w.do(&op)
	return true
}

// addReading adds the kernels of passes of so many rows of which some follow the policy.
func (u *unitSet) addReading(e *Engine, rows int) {
	for _, r := range []reading{{ranks: 1}, {ranks: 1, dense: true}} {
		if r.dense && rows == 1 {
			continue
		}
		w := e.newWalk(rows, false, 0)
		w.reading = r
		w.forward()
		for i := range w.calls {
			u.add(w.calls[i].Unit)
		}
	}
	for i := range e.pool.layers {
		if op := (&hip.Summarize{KV: e.pool.layers[i]}); op.KV.Summarized {
			u.add(op.Calls(e.m.target)[0].Unit)
		}
	}
}

// addChoosing adds the kernels of passes of prompts of so many rows of which some choose pages.
func (u *unitSet) addChoosing(e *Engine, rows int) {
	w := e.newWalk(rows, true, 0)
	w.choosing = []chosenRows{{blocks: rows / PageSize, known: 1}}
	w.forward()
	for i := range w.calls {
		u.add(w.calls[i].Unit)
	}
}
