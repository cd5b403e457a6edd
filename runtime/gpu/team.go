package gpu

import (
	"errors"
	"fmt"
	"sync"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu/driver"
	"github.com/nstf/nstf/runtime/load"
)

// A Team is GPUs of one kind that compute each pass together: each has a share of every
// block ([load.Cut]), and what they make of a row is added over peer memory, twice a block.
// Sums are added in the order of ranks, so that all have the same bits, in every run; they
// are not those of one GPU alone, which adds in another order.
//
// It is used as an [Engine] is. Each rank has its own queue of work, captured for itself:
// no step waits for the host. A rank that gets nothing from another for some tens of seconds
// gives up; the next who reads tokens or logits gets an error that names both.
type Team struct {
	ranks   []*Engine
	members []*member
	mu      sync.Mutex
	failed  error // why it cannot be used any more
}

var _ device.Stage = (*Team)(nil)

// NewTeam places the shares of a checked graph on opened devices, which are closed behind
// it. Of the options those of [Device.New] count. It fails with an UnsupportedError where
// devices differ or do not reach one another, or where the model has something that is not
// cut.
func NewTeam(on []*Device, g *graph.Graph, tensor func(name string) formats.Tensor, o Options) (_ *Team, err error) {
	t := &Team{}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	shards, err := t.meet(on, g, tensor)
	if err != nil {
		return nil, err
	}
	t.twofold(g, tensor, &o)
	if err := t.plan(g, shards, &o); err != nil {
		return nil, err
	}
	policy := o.Policy
	for i, m := range t.members {
		o.team, o.Policy = m, rankPolicy(policy, g, i, len(shards))
		e, err := on[i].New(shards[i].Graph, device.Whole(g), shards[i].Tensor, o)
		if err != nil {
			return nil, err
		}
		t.ranks = append(t.ranks, e)
	}
	return t, nil
}

// CheckTeam reports whether devices may compute a model together: nil, or why not. Nothing is
// placed.
func CheckTeam(on []*Device, g *graph.Graph, tensor func(name string) formats.Tensor) error {
	_, err := (&Team{}).meet(on, g, tensor)
	return err
}

// meet cuts the model, and has the devices reach one another.
func (t *Team) meet(on []*Device, g *graph.Graph, tensor func(name string) formats.Tensor) (shards []*load.Shard, err error) {
	n := len(on)
	if n < 2 || n > hip.MostRanks {
		return nil, load.Uncut("", "%d GPUs, where 2 to %d are", n, hip.MostRanks)
	}
	if g.Width%4 != 0 {
		return nil, load.Uncut("", "a width of %d on several GPUs", g.Width)
	}
	meeting := newMeeting(n)
	for i, d := range on {
		if a, b := on[0].m.target, d.m.target; a != b {
			return nil, load.Uncut("", "%v and %v, which are of two kinds,", on[0], d)
		}
		for _, other := range on {
			if err := d.m.device.Reach(other.m.device); errors.Is(err, driver.ErrPeer) {
				return nil, load.Uncut("", "%v", err)
			} else if err != nil {
				return nil, err
			}
		}
		shard, err := load.Cut(g, tensor, i, n)
		if err != nil {
			return nil, err
		}
		shards = append(shards, shard)
		t.members = append(t.members, &member{Ranks: hip.Ranks{Rank: i, Count: n}, whole: g, units: shard.Units, unit: shard.Unit, meeting: meeting, on: on})
	}
	return shards, nil
}

// numbers returns how much ranks exchange at once: few numbers, and so many rows of many.
func (t *Team) numbers(g *graph.Graph, shards []*load.Shard, least int) (few, rows, width int) {
	width, rows = int(g.Width), max(least, fewRows)
	most, sums := width, 0
	for i := range shards {
		lo, hi := t.members[0].Columns(i, shards[i].Units, shards[i].Unit)
		most = max(most, hi-lo)
	}
	for i := range g.Blocks {
		sums = max(sums, squares(&g.Blocks[i], len(shards)))
	}
	return max(fewRows*most, rows*sums), rows, width
}

// twofold has all ranks compute long prompts in two parts, where they can.
func (t *Team) twofold(g *graph.Graph, tensor func(name string) formats.Tensor, o *Options) {
	for _, m := range t.members {
		m.twofold = twofold(g, len(t.members), tensor, o)
	}
}

// TeamNeed returns the bytes that [NewTeam] places on each device, whatever is free now.
func TeamNeed(on []*Device, g *graph.Graph, tensor func(name string) formats.Tensor, o Options) (all []int64, err error) {
	t := &Team{}
	shards, err := t.meet(on, g, tensor)
	if err != nil {
		return nil, err
	}
	t.twofold(g, tensor, &o)
	few, rows, width := t.numbers(g, shards, o.Rows)
	policy := o.Policy
	for i, m := range t.members {
		o.team, o.Policy = m, rankPolicy(policy, g, i, len(shards))
		p, err := on[i].Plan(shards[i].Graph, device.Whole(g), shards[i].Tensor, o)
		if err != nil {
			return nil, err
		}
		m.size(few, rows, width)
		all = append(all, p.sum()+m.bytes()+LoadingBytes)
	}
	return all, nil
}

// Exchanges returns how often so many ranks add up what they have of a token's row, or put it
// together.
func Exchanges(g *graph.Graph, ranks int) int {
	n := 1 // logits
	for i := range g.Blocks {
		b := &g.Blocks[i]
		if b.Mixes() {
			n++
		}
		if squares(b, ranks) > 0 {
			n++
		}
		if b.Feeds() {
			n++
		}
		if b.FFN != nil && b.MoE != nil && (b.DensePostNorm != nil || b.MoEPostNorm != nil) { // see block.settles
			n++
		}
	}
	return n
}

// plan takes the memory that ranks exchange numbers in, and finds what has room on all of
// them.
func (t *Team) plan(g *graph.Graph, shards []*load.Shard, o *Options) error {
	rows := maxRows
	if o.Rows > 0 {
		rows = o.Rows
	}
	few, rows, width := t.numbers(g, shards, rows)
	for _, m := range t.members {
		m.size(few, rows, width)
	}
	for _, m := range t.members {
		if err := m.place(t.members); err != nil {
			return err
		}
	}
	var least Plan
	for i, m := range t.members {
		own := *o
		own.team, own.Policy = m, rankPolicy(o.Policy, g, i, len(shards))
		p, err := m.on[i].Plan(shards[i].Graph, device.Whole(g), shards[i].Tensor, own)
		if err != nil {
			return err
		}
		if i == 0 {
			least = p
		}
		least.Rows, least.Context, least.Pages = min(least.Rows, p.Rows), min(least.Context, p.Context), min(least.Pages, p.Pages)
	}
	o.Rows, o.Context, o.Positions = least.Rows, least.Context, least.Pages*PageSize
	return nil
}

// each has all ranks do something at once. Where one of them fails the team is of no use any
// more, unless none had launched anything: what others launched waits in vain, and their
// graphs and counts of exchanges are not its own.
func (t *Team) each(f func(i int, e *Engine) error) error {
	if err := t.check(t.fail(nil)); err != nil {
		return err
	}
	meeting := t.members[0].meeting
	meeting.begin()
	errs := make([]error, len(t.ranks))
	var wait sync.WaitGroup
	rank := func(i int) {
		if errs[i] = f(i, t.ranks[i]); errs[i] != nil {
			errs[i] = meeting.wait(errs[i])
		}
	}
	for i := 1; i < len(t.ranks); i++ {
		wait.Go(func() { rank(i) })
	}
	rank(0)
	wait.Wait()
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
		}
	}
	if failed == 0 {
		return nil
	}
	err := meeting.err
	if failed < len(errs) || meeting.sent {
		t.fail(err)
	}
	return err
}

// fail notes why the team cannot be used any more, if it is told one, and returns the
// first reason.
func (t *Team) fail(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed == nil {
		t.failed = err
	}
	return t.failed
}

// check returns why numbers that came are none.
func (t *Team) check(err error) error {
	for _, m := range t.members {
		if lost := m.err(); lost != nil {
			err = t.fail(lost)
		}
	}
	return err
}

// A teamState is a state of each rank: their books are the same.
type teamState struct {
	t     *Team
	ranks []device.State
}

var _ device.State = (*teamState)(nil)

// NewState implements device.Stage.
func (t *Team) NewState(capacity int64) (device.State, error) {
	return t.newState(func(i int) (device.State, error) { return t.ranks[i].NewState(capacity) })
}

// newState makes a state of each rank's, or none.
func (t *Team) newState(of func(i int) (device.State, error)) (device.State, error) {
	s := &teamState{t: t}
	for i := range t.ranks {
		r, err := of(i)
		if err != nil {
			s.Release()
			return nil, err
		}
		s.ranks = append(s.ranks, r)
	}
	return s, nil
}

// Len implements device.State.
func (s *teamState) Len() int64 { return s.ranks[0].Len() }

// Bytes implements device.State.
func (s *teamState) Bytes() (n int64) {
	for _, r := range s.ranks {
		n += r.Bytes()
	}
	return n
}

// Reserve implements device.State.
func (s *teamState) Reserve(n int64) error {
	for i, r := range s.ranks {
		if err := r.Reserve(n); err != nil {
			for _, before := range s.ranks[:i] {
				before.Rewind(before.Len())
			}
			return err
		}
	}
	return nil
}

// Rewind implements device.State.
func (s *teamState) Rewind(n int64) (left int64) {
	for _, r := range s.ranks {
		left = r.Rewind(n)
	}
	return left
}

// A teamSnapshot is a snapshot of each rank.
type teamSnapshot []device.Snapshot

// Snapshot implements device.State.
func (s *teamState) Snapshot() (device.Snapshot, error) {
	var all teamSnapshot
	for _, r := range s.ranks {
		n, err := r.Snapshot()
		if err != nil {
			all.Release()
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// Len implements device.Snapshot.
func (s teamSnapshot) Len() int64 { return s[0].Len() }

// Release implements device.Snapshot.
func (s teamSnapshot) Release() {
	for _, n := range s {
		n.Release()
	}
}

// Restore implements device.State.
func (s *teamState) Restore(from device.Snapshot) error {
	for i, n := range from.(teamSnapshot) {
		if err := s.ranks[i].Restore(n); err != nil {
			return err
		}
	}
	return nil
}

// Fork implements device.State.
func (s *teamState) Fork() (device.State, error) {
	return s.t.newState(func(i int) (device.State, error) { return s.ranks[i].Fork() })
}

// Release implements device.State.
func (s *teamState) Release() {
	for _, r := range s.ranks {
		r.Release()
	}
	s.ranks = nil
}

// A teamPass is a pass of each rank.
type teamPass struct {
	t     *Team
	ranks []device.Pass
}

var _ device.Pass = (*teamPass)(nil)

// Forward implements device.Stage.
func (t *Team) Forward(b *device.Batch) (device.Pass, error) {
	if b.Hidden != nil {
		return nil, errors.New("gpu: a batch of another stage's input")
	}
	for i := range b.Segments {
		if s, ok := b.Segments[i].State.(*teamState); !ok || s.t != t {
			return nil, fmt.Errorf("gpu: the state of segment %d is a %T", i, b.Segments[i].State)
		}
	}
	p := &teamPass{t, make([]device.Pass, len(t.ranks))}
	err := t.each(func(i int, e *Engine) (err error) {
		own := device.Batch{Prompt: b.Prompt, Segments: append([]device.Segment(nil), b.Segments...)}
		for k := range own.Segments {
			own.Segments[k].State = b.Segments[k].State.(*teamState).ranks[i]
		}
		p.ranks[i], err = e.Forward(&own)
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Logits implements device.Pass.
func (p *teamPass) Logits(lo, hi int, dst []float32) error {
	err := p.t.each(func(i int, _ *Engine) error { return p.ranks[i].Logits(lo, hi, dst) }) // the first writes them
	return p.t.check(err)
}

// Normed implements device.Pass.
func (p *teamPass) Normed(lo, hi int, dst []float32) error {
	return p.t.check(p.ranks[0].Normed(lo, hi, dst))
}

// Tokens implements device.Pass.
func (p *teamPass) Tokens() ([]int32, error) {
	ids, err := p.ranks[0].Tokens()
	if err = p.t.check(err); err != nil {
		return nil, err
	}
	return ids, nil
}

// Hidden implements device.Pass.
func (p *teamPass) Hidden() device.Hidden { return p.ranks[0].Hidden() }

// Context returns the positions of a sequence.
func (t *Team) Context() int64 { return t.ranks[0].Context() }

// Span implements device.Stage.
func (t *Team) Span() device.Span { return t.ranks[0].Span() }

// MaxRows implements device.Stage.
func (t *Team) MaxRows() int { return t.ranks[0].MaxRows() }

// FewRows implements device.Stage.
func (t *Team) FewRows() int { return t.ranks[0].FewRows() }

// Ahead implements device.Stage.
func (t *Team) Ahead() int { return t.ranks[0].Ahead() }

// Room implements device.Stage.
func (t *Team) Room() device.Room { return t.ranks[0].Room() }

// Memory implements device.Stage.
func (t *Team) Memory() (all device.Memory) {
	for _, e := range t.ranks {
		m := e.Memory()
		all.Resident, all.Scratch = all.Resident+m.Resident, all.Scratch+m.Scratch
	}
	return all
}

// StateBytes implements device.Stage.
func (t *Team) StateBytes(positions int64) (sum int64, err error) {
	for _, e := range t.ranks {
		n, err := e.StateBytes(positions)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

var _ device.Meter = (*Team)(nil)

// Name implements device.Meter.
func (t *Team) Name() string { return fmt.Sprintf("%d %s", len(t.ranks), t.ranks[0].Name()) }

// CopyRate implements device.Meter: of all devices at once, in sum.
func (t *Team) CopyRate() (sum float64, err error) {
	rates := make([]float64, len(t.ranks))
	err = t.each(func(i int, e *Engine) (err error) {
		rates[i], err = e.CopyRate()
		return err
	})
	for _, r := range rates {
		sum += r
	}
	return sum, err
}

// Profile implements device.Meter: of the first rank, while all run.
func (t *Team) Profile(rows int) (first []device.KernelTime, err error) {
	err = t.each(func(i int, e *Engine) error {
		times, err := e.Profile(rows)
		if i == 0 {
			first = times
		}
		return err
	})
	return first, t.check(err)
}

// Close gives back everything on the devices.
func (t *Team) Close() error {
	var errs []error
	for _, e := range t.ranks {
		errs = append(errs, e.Close())
	}
	for _, m := range t.members {
		errs = append(errs, m.close()...)
	}
	t.ranks, t.members = nil, nil
	return errors.Join(errs...)
}

// timedPatience gives up a measurement after a second or so.
const timedPatience = patience >> 5

// timedExchanges is how many ExchangeSeconds times at once, each behind the one before.
const timedExchanges = 200

// ExchangeSeconds returns what adding a row of so many numbers over devices takes among
// others that are captured, of devices that [CheckTeam] lets compute together.
func ExchangeSeconds(on []*Device, width int) (seconds float64, err error) {
	t := &Team{}
	meeting := newMeeting(len(on))
	defer func() { err = errors.Join(err, t.Close()) }()
	for i := range on {
		t.members = append(t.members, &member{Ranks: hip.Ranks{Rank: i, Count: len(on)}, meeting: meeting, on: on})
	}
	for _, m := range t.members {
		m.size(width, 1, 4)
	}
	for _, m := range t.members {
		if err := m.place(t.members); err != nil {
			return 0, err
		}
		m.Patience = timedPatience
	}
	errs, times := make([]error, len(on)), make([]float64, len(on))
	var wait sync.WaitGroup
	for i, m := range t.members {
		wait.Go(func() { times[i], errs[i] = m.exchangeSeconds(width) })
	}
	wait.Wait()
	for i := range on {
		seconds = max(seconds, times[i])
	}
	return seconds, t.check(errors.Join(errs...))
}

// exchangeSeconds is one rank's part of ExchangeSeconds.
func (m *member) exchangeSeconds(width int) (float64, error) {
	dev := m.on[m.Rank].m
	b, err := dev.alloc(8 * int64(width))
	if err == nil {
		defer dev.free(b)
		err = dev.stream.Fill(b, 0)
	}
	var calls []hip.Call
	for i := range timedExchanges {
		o := hip.AllReduce{Exchange: hip.Exchange{Ranks: &m.Ranks, Number: i + 1}, T: 1, D: width, Out: b.Address, Residual: b.Address, Own: at(b.Address, 1, width)}
		calls = append(calls, o.Calls(dev.target)...)
	}
	calls = append(calls, (&hip.EndExchanges{Ranks: &m.Ranks, Exchanges: timedExchanges}).Calls(dev.target)...)
	if err == nil {
		err = dev.prepare(calls)
	}
	var g *driver.Graph
	if err == nil {
		g, err = dev.stream.Capture(func() error { return dev.launch(calls) })
	}
	if err := m.meeting.wait(err); err != nil {
		return 0, err
	}
	defer g.Free()
	if err := dev.stream.Replay(g); err != nil { // the first is slower, and lets all begin at once
		return 0, err
	}
	ms, err := dev.timed(func() error { return dev.stream.Replay(g) })
	return ms / 1e3 / timedExchanges, err
}
