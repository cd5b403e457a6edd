package gpu

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
	"github.com/nstf/nstf/runtime/load"
)

// Experts that lie in the processor's memory come to the device for rows of prompts, as far as rows
// chose them: piece after piece, each into the slot of a staging buffer that the piece so many before
// it has left, by the lanes that bring weights when a model is opened (upload.go). The device says
// how many rows each expert of a block has when its router has run; until then nothing of the block
// comes. The products are those of experts that lie here, and so are their bits: of experts that
// nobody chose a slot has what was there before, which nothing reads.

// pieceBytes is the most of a piece, unless one expert is larger, and leastPieces the fewest of a
// stack: one is multiplied while the next ones come.
const (
	pieceBytes   = 32 << 20
	stagingSlots = 4
	leastPieces  = 4
)

// A piece is neighbouring experts of a stack that streams.
type piece struct {
	matrix // of the stack; tensor, parts and experts are the piece's
	lo     int
	biases formats.Tensor // [experts][N]; without a name there are none
	biasAt int64          // in the staging buffer's slot, behind the weights
	size   int64
	each   []int64 // bytes of an expert in each part, 0 for a part that all share
}

// staging is where pieces lie while they are multiplied.
type staging struct {
	slot    int64 // bytes; 0: nothing streams
	at      [stagingSlots]hip.Address
	formats []hip.Format
	tables  tables // what hip.Arrange reads
	free    [stagingSlots]*driver.Event
	used    [stagingSlots]bool // whether free was recorded
	experts int                // most of a block
	first   *driver.Pinned     // i32[experts+1]: see hip.Route.First
	known   *driver.Event      // behind what came down to first
}

// stream cuts the experts of a mixture into pieces: an empty layer where some are of a form, turned
// or of a scheme that no kernel reads, and rows of prompts are the processor's too.
func (l *layout) stream(m *graph.MoE, tensor func(name string) formats.Tensor) layer {
	out := layer{act: load.Activation(m.Act), gating: load.Gating(m.Gating)}
	for _, to := range []struct {
		from *graph.Linear
		to   **matrix
	}{{m.Gate, &out.gate}, {&m.Up, &out.up}, {&m.Down, &out.down}} {
		if to.from == nil {
			continue
		}
		var biases formats.Tensor
		if to.from.Bias != "" {
			biases = tensor(to.from.Bias)
		}
		if *to.to = pieces(tensor(to.from.Weight), biases, int(m.Experts), to.from); *to.to == nil {
			return layer{}
		}
	}
	for _, w := range []*matrix{out.gate, out.up, out.down} {
		if w == nil {
			continue
		}
		for i := range w.pieces {
			l.staging.slot = max(l.staging.slot, w.pieces[i].size)
		}
		l.staging.experts = max(l.staging.experts, w.experts)
		if !slices.Contains(l.staging.formats, w.Format) {
			l.staging.formats = append(l.staging.formats, w.Format)
		}
	}
	return out
}

// Streams reports whether the routed experts of a mixture can come to a device for rows of prompts.
func Streams(m *graph.MoE, tensor func(name string) formats.Tensor) bool {
	l := (&layout{}).stream(m, tensor)
	return l.up != nil
}

// pieces cuts a stack of experts, nil where that is not possible.
func pieces(t, biases formats.Tensor, experts int, of *graph.Linear) *matrix {
	s, ok := scheme.ByName(t.Scheme)
	if !ok || t.Form != "" || len(t.Shape) != 3 || scheme.Check(&t) != nil {
		return nil
	}
	n, k := t.Shape[1], t.Shape[2]
	m := &matrix{tensor: t, experts: experts, input: of.Input, Weight: hip.Weight{N: int(n), K: int(k)}}
	var err error
	if m.Format, err = hip.FormatOf(s, t.Params, k); err != nil || m.Format.Rotated() {
		return nil
	}
	each := max(min(pieceBytes/max(t.Size()/int64(experts), 1), int64(experts)/leastPieces), 1)
	for lo := 0; lo < experts; {
		p := piece{matrix: *m, lo: lo, biases: biases}
		p.experts = int(min(each, int64(experts-lo)))
		p.pieces = nil
		if p.tensor, err = scheme.Slice(t, int64(lo)*n, int64(p.experts)*n); err != nil {
			return nil
		}
		f, err := hip.FormatOf(s, p.tensor.Params, k)
		if err != nil || f != m.Format {
			return nil
		}
		if p.parts, p.size, err = f.Parts(p.tensor.Shape, p.tensor.Params); err != nil {
			return nil
		}
		one, err := scheme.Slice(p.tensor, 0, n)
		if err != nil {
			return nil
		}
		parts, _, err := f.Parts(one.Shape, one.Params)
		if err != nil {
			return nil
		}
		for i := range parts {
			each := parts[i].Bytes
			if each*int64(p.experts) != p.parts[i].Bytes {
				each = 0
			}
			p.each = append(p.each, each)
		}
		if biases.Name != "" {
			p.biasAt = (p.size + align - 1) &^ (align - 1)
			p.size = p.biasAt + 4*int64(p.experts)*n
		}
		m.pieces = append(m.pieces, p)
		lo += p.experts
	}
	return m
}

// place takes the staging buffer and the tables.
func (s *staging) place(a *arena) {
	if s.slot == 0 {
		return
	}
	for i := range s.at {
		s.at[i] = a.take(s.slot)
	}
	s.tables.at = map[hip.Format]hip.Address{}
	for _, f := range s.formats {
		if f.BlockBytes() > 0 {
			s.tables.at[f] = a.take(int64(len(f.Table())))
		}
	}
}

// send fills the tables.
func (s *staging) send(m *machine) (err error) {
	if s.slot == 0 {
		return nil
	}
	if s.first, err = m.device.Pinned(int64(4 * (s.experts + 1))); err != nil {
		return err
	}
	if s.known, err = m.device.Event(); err != nil {
		return err
	}
	for i := range s.free {
		if s.free[i], err = m.device.Event(); err != nil {
			return err
		}
	}
	for f, at := range s.tables.at {
		table := f.Table()
		if err := m.stream.Upload(driver.Buffer{Address: at, Size: int64(len(table))}, table); err != nil {
			return err
		}
	}
	return nil
}

// release gives the events back.
func (s *staging) release() error {
	var errs []error
	for _, e := range append(s.free[:], s.known) {
		if e != nil {
			errs = append(errs, e.Free())
		}
	}
	if s.first != nil {
		errs = append(errs, s.first.Free())
	}
	return errors.Join(errs...)
}

// streamed is expert of a stack whose pieces come while others are multiplied.
func (w *walk) streamed(m *matrix, slots, share int, in source, y, residual hip.Address) {
	for i := range m.pieces {
		p, at := &m.pieces[i], w.e.staging.at[w.slot]
		op := hip.Product{W: p.Weight, Y: y, Residual: residual}
		if op.W.Data = at; p.biasAt > 0 {
			op.Bias = at + hip.Address(p.biasAt)
		}
		w.cut(cut{bring: p, turn: w.slot})
		w.do(&hip.Matmul{T: slots, Exact: w.e.exact, X: in.x, First: w.list.first + hip.Address(4*p.lo), Slots: w.list.slots, Stack: p.experts, Of: m.experts,
			Share: share, Brought: i > 0, Products: []hip.Product{op}, Scratch: w.s.tiles})
		w.cut(cut{leave: true, turn: w.slot})
		w.slot = (w.slot + 1) % stagingSlots
	}
}

// A feed brings the pieces of a pass, in order.
type feed struct {
	e      *Engine
	list   []*arriving
	next   int             // piece that is waited for
	routes []chan struct{} // of each block, closed when what it chose is on its way down
	routed int             // blocks of which it is
	cancel context.CancelFunc
	ctx    context.Context
	group  *errgroup.Group
}

// arriving is a piece on its way: left counts the jobs that are not queued, there closes behind the
// last, and gone when the products that read it are queued.
type arriving struct {
	piece
	turn, route int
	left        atomic.Int32
	mu          sync.Mutex
	behind      []*driver.Event // the jobs of each lane
	there, gone chan struct{}
}

// A job is a chunk of a piece, or without bytes its biases.
type job struct {
	*arriving
	chunk
}

// feed begins to bring what a list of stretches waits for, nil for nothing.
func (e *Engine) feed(list []stretch) *feed {
	f := &feed{e: e}
	for i := range list {
		if p := list[i].bring; p != nil {
			a := &arriving{piece: *p, turn: list[i].turn, route: len(f.routes) - 1, there: make(chan struct{}), gone: make(chan struct{})}
			a.Data = e.staging.at[a.turn]
			f.list = append(f.list, a)
		}
		if list[i].known > 0 {
			f.routes = append(f.routes, make(chan struct{}))
		}
	}
	if len(f.list) == 0 {
		return nil
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.group, f.ctx = errgroup.WithContext(f.ctx)
	jobs := make(chan job)
	f.group.Go(func() error { return f.produce(jobs) })
	for range lanes {
		f.group.Go(func() error { return f.bring(jobs) })
	}
	return f
}

// know says that what a block's rows chose is on its way down.
func (f *feed) know() error {
	if err := f.e.m.stream.Record(f.e.staging.known); err != nil {
		return err
	}
	close(f.routes[f.routed])
	f.routed++
	return nil
}

// waitFor reports whether a channel was closed before the feed ended.
func (f *feed) waitFor(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-f.ctx.Done():
		return false
	}
}

// produce hands out the jobs of each piece when it is known which of its experts rows chose, and the
// products of the piece before in its slot are queued.
func (f *feed) produce(jobs chan<- job) error {
	defer close(jobs)
	s, route := &f.e.staging, -1
	for i, a := range f.list {
		if i >= len(s.at) && !f.waitFor(f.list[i-len(s.at)].gone) {
			return nil
		}
		if a.route != route {
			if !f.waitFor(f.routes[a.route]) {
				return nil
			}
			if err := s.known.Wait(); err != nil {
				return err
			}
			route = a.route
		}
		all := a.jobs(func(expert int) bool {
			first := s.first.Bytes()[4*(a.lo+expert):]
			return !bytes.Equal(first[:4], first[4:8])
		})
		if len(all) == 0 {
			close(a.there)
		}
		a.left.Store(int32(len(all)))
		for _, j := range all {
			select {
			case jobs <- j:
			case <-f.ctx.Done():
				return nil
			}
		}
	}
	return nil
}

// jobs are what brings the experts of a piece that rows chose, neighbours together.
func (a *arriving) jobs(chosen func(expert int) bool) (all []job) {
	for lo := 0; lo < a.experts; {
		hi := lo
		for hi < a.experts && chosen(hi) {
			hi++
		}
		if lo == hi {
			lo++
			continue
		}
		for i, each := range a.each {
			all = append(all, a.cut(i, int64(lo)*each, int64(hi)*each)...)
		}
		lo = hi
	}
	if len(all) == 0 {
		return nil
	}
	for i, each := range a.each {
		if each == 0 {
			all = append(all, a.cut(i, 0, a.parts[i].Bytes)...)
		}
	}
	if a.biasAt > 0 {
		all = append(all, job{arriving: a})
	}
	return all
}

// cut cuts bytes lo to hi of a part into chunks.
func (a *arriving) cut(part int, lo, hi int64) (all []job) {
	for _, c := range a.matrix.cut(part, lo, hi) {
		all = append(all, job{a, c})
	}
	return all
}

// bring does jobs until there are no more.
func (f *feed) bring(jobs <-chan job) error {
	l, err := f.e.m.lane()
	if err != nil {
		return err
	}
	for j := range jobs {
		if f.e.staging.used[j.turn] {
			err = l.stream.After(f.e.staging.free[j.turn])
		}
		switch {
		case err != nil:
		case j.m == nil:
			err = f.e.bringBiases(l, j.arriving)
		default:
			err = f.e.bringOne(l, &j.chunk, f.e.staging.tables)
		}
		if err == nil {
			err = j.queued(l)
		}
		if err != nil {
			break
		}
	}
	return errors.Join(err, l.wait(), f.e.m.giveBack(l))
}

// queued says that a lane's stream has a job.
func (a *arriving) queued(l *lane) error {
	e := l.there[a.turn]
	if err := l.stream.Record(e); err != nil {
		return err
	}
	a.mu.Lock()
	if !slices.Contains(a.behind, e) {
		a.behind = append(a.behind, e)
	}
	a.mu.Unlock()
	if a.left.Add(-1) == 0 {
		close(a.there)
	}
	return nil
}

// bringBiases brings a piece's, as float32.
func (e *Engine) bringBiases(l *lane, a *arriving) error {
	x := make([]float32, a.experts*a.N)
	if err := scheme.DecodeRows(x, &a.biases, int64(a.lo), int64(a.experts)); err != nil {
		return err
	}
	return l.stream.Upload(driver.Buffer{Address: a.Data + hip.Address(a.biasAt), Size: 4 * int64(len(x))}, bytesOf(nil, x))
}

// wait has the passes' stream wait for the next piece.
func (f *feed) wait() error {
	a := f.list[f.next]
	if !f.waitFor(a.there) {
		return f.group.Wait()
	}
	for _, e := range a.behind {
		if err := f.e.m.stream.After(e); err != nil {
			return err
		}
	}
	return nil
}

// leave says that the products of the piece that was waited for are queued.
func (f *feed) leave(turn int) error {
	s := &f.e.staging
	if err := f.e.m.stream.Record(s.free[turn]); err != nil {
		return err
	}
	s.used[turn] = true
	close(f.list[f.next].gone)
	f.next++
	return nil
}

// end waits for all who bring pieces, or where a pass failed has them stop.
func (f *feed) end(failed error) error {
	if f == nil {
		return failed
	}
	if failed != nil {
		f.cancel()
	}
	err := f.group.Wait()
	f.cancel()
	if failed != nil {
		return failed
	}
	return err
}
