package gpu

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
	"github.com/nstf/nstf/runtime/load"
)

// A member is what an engine of a [Team] knows of the others.
type member struct {
	hip.Ranks
	whole       *graph.Graph // that ranks have parts of
	units, unit int          // how the vocabulary is cut: hip.Ranks.Columns
	meeting     *meeting
	buffers     []driver.Buffer // of this rank
	lost        *driver.Pinned  // where kernels say that they waited in vain
	on          []*Device       // all ranks'
	twofold     bool            // prompts are computed in two parts,
	tandem      [2]hip.Ranks    // which exchange apart
}

// A meeting is where the goroutines of all ranks wait for one another: what may fail, or
// take long, is done by all of them before any starts what waits for the others' GPUs.
type meeting struct {
	mu      sync.Mutex
	changed sync.Cond
	ranks   int
	came    int
	round   int
	sent    bool // some rank may have launched what waits for others
	err     error
}

func newMeeting(ranks int) *meeting {
	m := &meeting{ranks: ranks}
	m.changed.L = &m.mu
	return m
}

// wait waits for all ranks, or returns why one of them does not come: it tells by its err.
func (m *meeting) wait(err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil && err != nil {
		m.err = err
		m.changed.Broadcast()
	}
	if m.err != nil {
		return m.err
	}
	round := m.round
	if m.came++; m.came == m.ranks {
		m.came, m.round = 0, m.round+1
		m.changed.Broadcast()
	}
	for m.round == round && m.err == nil {
		m.changed.Wait()
	}
	if m.round == round {
		return m.err
	}
	return nil
}

// begin forgets what went wrong before; nobody waits.
func (m *meeting) begin() { m.came, m.sent, m.err = 0, false, nil }

// send notes that a rank is about to launch what waits for others.
func (m *meeting) send() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = true
}

// first reports whether an engine is alone, or its team's first rank.
func (e *Engine) first() bool { return e.team == nil || e.team.Rank == 0 }

// exchange is the next of the pass, of rows of so many numbers.
func (w *walk) exchange(d int) hip.Exchange {
	w.exchanges++
	x := hip.Exchange{Ranks: &w.e.team.Ranks, Number: w.exchanges, Many: w.many, Half: w.many && !w.e.exact && d%32 == 0}
	if w.part != nil {
		x.Ranks, x.Left = w.part.ranks, true
	}
	return x
}

// total makes n rows of all ranks' parts: in a team.
func (w *walk) total(n int, rows hip.Address) { w.addUp(n, rows, 0, rows) }

// addUp makes n rows of all ranks' parts and of what is added to them: in a team.
func (w *walk) addUp(n int, out, residual, parts hip.Address) {
	if w.e.team != nil {
		d := w.e.shape.width
		w.do(&hip.AllReduce{Exchange: w.exchange(d), T: n, D: d, Out: out, Residual: residual, Own: parts})
	}
}

// mostReceived is how many bytes of a row each block of a product reads at most of what ranks
// sent: of more a launch that adds them up takes less time than what all blocks read beside
// (an H100: 48 KiB 1.6 microseconds of a launch's 2.1, 96 KiB 4 of 2.3).
const mostReceived = 48 << 10

// receives reports whether who reads rows adds up what ranks sent of them: of many numbers, and
// of few where that is little.
func (w *walk) receives() bool {
	return w.many || (8*(w.e.team.Count-1)+4)*w.e.shape.width <= mostReceived
}

// A sent is a branch's rows that go to the other ranks.
type sent struct {
	hip.Exchange
	residual hip.Address // what is added to this rank's part before; 0: nothing
	done     bool        // who computed them has sent them
}

// sent makes a branch of n rows one that all ranks have parts of: who computes this rank's
// sends it, and who reads the hidden state next adds what the others sent. Into a few rows
// one of the ranks adds the hidden state x, so that it need not be read again; x is 0 where
// that does not serve.
func (w *walk) sent(n int, x hip.Address, b *hip.Branch, make func(to target)) {
	d := w.e.shape.width
	s := &sent{Exchange: w.exchange(d)}
	if b.Whole = x != 0 && !w.many; b.Whole && w.e.first() {
		s.residual = x
	}
	make(target{y: b.Rows, sent: s})
	if !s.done {
		w.do(&hip.Send{Exchange: s.Exchange, T: n, D: d, Own: b.Rows, Residual: s.residual})
	}
	switch {
	case s.Left:
		w.bring(s.Exchange, n*d)
	case s.Many:
		w.do(&hip.Mark{Exchange: s.Exchange})
	}
	b.From = &s.Exchange
}

// sends has an operation send what it computes, if that is to be sent and it can.
func (w *walk) sends(s *sent, can func(t hip.Target) bool, product *hip.Product) *hip.Exchange {
	if s == nil || !can(w.e.m.target) {
		return nil
	}
	s.done = true
	product.Residual = s.residual
	return &s.Exchange
}

// squares is how many sums of squares of a row ranks add up in a block, because norms go over
// what several of them have: 0 where none does.
func squares(b *graph.Block, ranks int) int {
	switch a, m := b.Attn, b.Mamba; {
	case a != nil && a.JointNorms && (a.QNorm != nil || a.KNorm != nil):
		return 2
	case m != nil && m.Norm != nil && m.Groups < int64(ranks):
		return int(m.Groups)
	}
	return 0
}

// rankNorms normalises rows of which ranks have parts, the last of them behind w.t rows of
// sums, of so many each.
func (w *walk) rankNorms(sums int, norms ...*hip.RankNorm) {
	s, m := w.s, w.e.team
	for _, n := range norms {
		n.Stride, n.Sums = sums, at(s.squares, w.t-n.T, sums)
		w.do(hip.RankSquares{RankNorm: n})
	}
	w.exchanges++
	w.do(&hip.AllReduce{Exchange: hip.Exchange{Ranks: &m.Ranks, Number: w.exchanges}, T: w.t, D: sums, Out: s.squares, Own: s.squares})
	for _, n := range norms {
		w.do(n)
	}
}

// fours rounds up to what many numbers are exchanged by.
func fours(n int) int { return (n + 3) &^ 3 }

// jointRanks is joint in a team. Of a key-value head that several ranks have, the first counts.
func (w *walk) jointRanks(b *block, lo int) {
	s, m := w.s, w.e.team
	a := m.whole.Blocks[b.index].Attn
	var norms []*hip.RankNorm
	if b.kNorm.Weight != 0 {
		own, _ := load.KeyHeads(a.KVHeads, m.Rank, m.Count)
		before, _ := load.KeyHeads(a.KVHeads, max(m.Rank-1, 0), m.Count)
		norms = append(norms, &hip.RankNorm{T: w.t, D: b.k.N, Width: int(a.KVHeads * a.HeadDim), X: s.k, Norm: b.kNorm, Column: 1, First: 1, Columns: 1, Counted: m.Rank > 0 && own == before})
	}
	if b.qNorm.Weight != 0 && lo < w.t {
		norms = append(norms, &hip.RankNorm{T: w.t - lo, D: b.q.N, Width: int(a.Heads * a.HeadDim), X: at(s.q, lo, b.q.N), Norm: b.qNorm, Columns: 1})
	}
	if len(norms) > 0 {
		w.rankNorms(2, norms...)
	}
}

// together lays n rows of all ranks' logits side by side.
func (w *walk) together(n int, out, parts hip.Address) {
	m := w.e.team
	w.exchanges++
	w.do(&hip.AllGather{Exchange: hip.Exchange{Ranks: &m.Ranks, Number: w.exchanges}, T: n, Units: m.units, Unit: m.unit, Out: out, Own: parts})
}

// end ends the list of what ranks exchange.
func (w *walk) end() {
	if w.exchanges == 0 {
		return
	}
	ranks := &w.e.team.Ranks
	if w.part != nil {
		if ranks = w.part.ranks; w.exchanges%2 != 0 {
			w.do(&hip.Meet{Exchange: w.exchange(w.e.shape.width)})
		}
	}
	w.do(&hip.EndExchanges{Ranks: ranks, Exchanges: w.exchanges})
	w.exchanges = 0
}

// patience is how often a kernel looks for what another rank sends: some tens of seconds.
const patience = 1 << 25

// size says how many numbers ranks exchange at once: few, and rows of many.
func (m *member) size(few, rows, width int) {
	m.FewSlot, m.ManySlot = (few+1)&^1, fours(rows*width)
	m.twofold = m.twofold && rows >= leastTandem
	for i := range m.tandem {
		m.tandem[i] = hip.Ranks{Rank: m.Rank, Count: m.Count, ManySlot: fours(firstPart(rows) * width)}
	}
}

// bytes are those of all that other ranks write to.
func (m *member) bytes() int64 {
	n := m.FewBytes() + m.ManyBytes()
	if m.twofold {
		n += m.tandem[0].ManyBytes() + m.tandem[1].ManyBytes()
	}
	return n
}

// place takes the memory that other ranks write to, of the size that all have, and tells them where it is.
func (m *member) place(all []*member) error {
	dev := m.on[m.Rank].m
	m.Patience = patience
	sizes := []int64{m.FewBytes(), m.ManyBytes(), align}
	if m.twofold {
		for i := range m.tandem {
			sizes = append(sizes, m.tandem[i].ManyBytes(), align)
		}
	}
	var at []hip.Address
	for _, n := range sizes {
		b, err := dev.device.AllocFine(n)
		if err != nil {
			return err
		}
		dev.most.Store(max(dev.most.Load(), dev.used.Add(b.Size)))
		m.buffers = append(m.buffers, b)
		if err := dev.stream.Fill(b, 0); err != nil {
			return err
		}
		at = append(at, b.Address)
	}
	m.State = at[2]
	for _, o := range all {
		o.Few[m.Rank], o.Many[m.Rank] = at[0], at[1]
		for i := range m.tandem[:(len(at)-3)/2] {
			o.tandem[i].Many[m.Rank] = at[3+2*i]
		}
	}
	var err error
	if m.lost, err = dev.device.Pinned(align); err != nil {
		return err
	}
	clear(m.lost.Bytes())
	if m.Lost, err = m.lost.Address(); err != nil {
		return err
	}
	for i := range m.tandem[:(len(at)-3)/2] {
		r := &m.tandem[i]
		r.State, r.Lost, r.Patience = at[4+2*i], m.Lost, m.Patience
	}
	return dev.stream.Wait()
}

// err says which rank this one waited for in vain.
func (m *member) err() error {
	if m.lost == nil { // nothing has begun
		return nil
	}
	n := binary.LittleEndian.Uint32(m.lost.Bytes())
	if n == 0 {
		return nil
	}
	return &driver.Error{Call: fmt.Sprintf("%v waited for %v", m.on[m.Rank], m.on[n-1]), Detail: "which sent nothing", Reason: driver.ErrLost,
		Hint: "start the program again; `nstf doctor` says whether each device works by itself"}
}

// close gives the memory back.
func (m *member) close() (errs []error) {
	dev := m.on[m.Rank].m
	for _, b := range m.buffers {
		errs = append(errs, dev.free(b))
	}
	m.buffers = nil
	if m.lost != nil {
		errs = append(errs, m.lost.Free())
		m.lost = nil
	}
	return errs
}
