package gpu

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/nstf/nstf/formats/tensor"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// Weights travel in chunks: several goroutines read from the file into pinned
// memory while the device copies and arranges what others have read, and one for each
// core checks the hashes of whole tensors. Nothing of the file stays mapped.
const (
	chunkBytes = 4 << 20
	lanes      = 12
)

// A chunk is a piece of a part of a matrix.
type chunk struct {
	m       *matrix
	part    int
	off, n  int64 // bytes of the part
	arrange bool
}

// A lane is what one goroutine needs to bring chunks to the device: it fills one half of its pinned
// memory while the device copies from the other.
type lane struct {
	stream *driver.Stream
	pinned *driver.Pinned
	left   [2]*driver.Event // behind what was copied from each half
	busy   [2]bool          // whether left was recorded since it was waited for
	turn   int
	device driver.Buffer               // chunks that are arranged lie here first
	there  [stagingSlots]*driver.Event // behind what it brought to each slot of the staging buffer
}

// half returns the next half, when the device has left it.
func (l *lane) half() ([]byte, error) {
	l.turn = 1 - l.turn
	if l.busy[l.turn] {
		if err := l.left[l.turn].Wait(); err != nil {
			return nil, err
		}
		l.busy[l.turn] = false
	}
	b := l.pinned.Bytes()
	return b[l.turn*chunkBytes:][:chunkBytes], nil
}

// queued says that the device copies from the half that was returned last.
func (l *lane) queued() error {
	l.busy[l.turn] = true
	return l.stream.Record(l.left[l.turn])
}

// wait waits for all that was queued.
func (l *lane) wait() error {
	l.busy = [2]bool{}
	return l.stream.Wait()
}

// send copies vectors and weights.
func (e *Engine) send(l *layout, o *Options) error {
	for i := range l.vectors {
		v := &l.vectors[i]
		f, err := v.floats()
		if err != nil {
			return err
		}
		if err := upload(e, driver.Buffer{Address: v.place, Size: 4 * int64(len(f))}, f); err != nil {
			return err
		}
	}
	tables, err := e.sendTables(l)
	if err != nil {
		return err
	}
	var total int64
	chunks := l.chunks(&total)
	ctx := context.Background()
	g, ctx := errgroup.WithContext(ctx)
	next, done := make(chan chunk), atomic.Int64{}
	g.Go(func() error {
		defer close(next)
		for _, c := range chunks {
			select {
			case next <- c:
			case <-ctx.Done():
				return nil
			}
		}
		return nil
	})
	g.Go(func() error { return l.check(ctx) })
	for range min(lanes, len(chunks)) {
		g.Go(func() error {
			return e.bring(next, tables, func(n int64) {
				if n = done.Add(n); o.Progress != nil {
					o.Progress("loading weights", n, total)
				}
			})
		})
	}
	err = g.Wait()
	if tables.Size > 0 {
		if ferr := e.m.free(tables.Buffer); err == nil {
			err = ferr
		}
	}
	return err
}

// check checks the tensors whose chunks travel unchecked.
func (l *layout) check(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, m := range l.matrices {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return m.tensor.Check()
		})
	}
	return g.Wait()
}

// tables are what hip.Arrange reads, by format.
type tables struct {
	driver.Buffer
	at map[hip.Format]hip.Address
}

// sendTables copies the tables of all formats that are arranged.
func (e *Engine) sendTables(l *layout) (t tables, err error) {
	t.at = map[hip.Format]hip.Address{}
	var size arena
	for _, m := range l.matrices {
		if _, ok := t.at[m.Format]; !ok && m.Format.BlockBytes() > 0 {
			t.at[m.Format] = size.take(int64(len(m.Format.Table())))
		}
	}
	if len(t.at) == 0 {
		return t, nil
	}
	if t.Buffer, err = e.m.alloc(size.used); err != nil {
		return t, err
	}
	for f, off := range t.at {
		table := f.Table()
		t.at[f] = t.Address + off
		if err := e.m.stream.Upload(t.At(int64(off), int64(len(table))), table); err != nil {
			return t, err
		}
	}
	return t, e.m.stream.Wait()
}

// chunks cuts all matrices.
func (l *layout) chunks(total *int64) []chunk {
	var all []chunk
	for _, m := range l.matrices {
		all = append(all, m.chunks()...)
	}
	for i := range all {
		*total += all[i].n
	}
	return all
}

// chunks cuts a matrix.
func (m *matrix) chunks() (all []chunk) {
	for i, p := range m.parts {
		all = append(all, m.cut(i, 0, p.Bytes)...)
	}
	return all
}

// cut cuts bytes lo to hi of a part.
func (m *matrix) cut(part int, lo, hi int64) (all []chunk) {
	step, arranged := int64(chunkBytes), m.parts[part].Arranged
	if arranged {
		step -= step % m.Format.BlockBytes()
	}
	for ; lo < hi; lo += step {
		all = append(all, chunk{m, part, lo, min(step, hi-lo), arranged})
	}
	return all
}

// bring takes chunks to the device until there are no more.
func (e *Engine) bring(next <-chan chunk, t tables, done func(n int64)) error {
	l, err := e.m.lane()
	if err != nil {
		return err
	}
	for c := range next {
		if err = e.bringOne(l, &c, t); err != nil {
			break
		}
		done(c.n)
	}
	return errors.Join(err, l.wait(), e.m.giveBack(l))
}

// lane returns one that nobody uses.
func (m *machine) lane() (*lane, error) {
	m.mu.Lock()
	if n := len(m.idle) - 1; n >= 0 {
		l := m.idle[n]
		m.idle = m.idle[:n]
		m.mu.Unlock()
		return l, nil
	}
	m.mu.Unlock()
	var l lane
	var err error
	if l.stream, err = m.device.Stream(); err == nil {
		if l.pinned, err = m.device.Pinned(2 * chunkBytes); err == nil {
			l.device, err = m.alloc(chunkBytes)
		}
	}
	for _, e := range [][]*driver.Event{l.left[:], l.there[:]} {
		for i := range e {
			if err == nil {
				e[i], err = m.device.Event()
			}
		}
	}
	if err != nil {
		return nil, errors.Join(err, l.close(m))
	}
	return &l, nil
}

// giveBack keeps a lane for the next stage, where others may come.
func (m *machine) giveBack(l *lane) error {
	if !m.keep {
		return l.close(m)
	}
	m.mu.Lock()
	m.idle = append(m.idle, l)
	m.mu.Unlock()
	return nil
}

func (l *lane) close(m *machine) error {
	var errs []error
	if l.stream != nil {
		errs = append(errs, l.stream.Close())
	}
	if l.pinned != nil {
		errs = append(errs, l.pinned.Free())
	}
	if l.device.Size > 0 {
		errs = append(errs, m.free(l.device))
	}
	for _, e := range append(l.left[:], l.there[:]...) {
		if e != nil {
			errs = append(errs, e.Free())
		}
	}
	return errors.Join(errs...)
}

// bringOne has the device copy a chunk, and arrange it, behind what the lane's stream waits for.
func (e *Engine) bringOne(l *lane, c *chunk, t tables) error {
	p := &c.m.parts[c.part]
	b, err := l.half()
	if err != nil {
		return err
	}
	b = b[:c.n]
	if err := read(c.m.tensor.Parts[c.part].Data.Unchecked(), b, c.off); err != nil {
		return fmt.Errorf("%q: %w", c.m.tensor.Name, err)
	}
	to := driver.Buffer{Address: c.m.Data + hip.Address(p.Offset+c.off), Size: c.n}
	if c.arrange {
		to = l.device
	}
	if err := l.stream.Upload(to, b); err != nil {
		return err
	}
	if c.arrange {
		size := c.m.Format.BlockBytes()
		op := hip.Arrange{Format: c.m.Format, Rows: int64(c.m.N * max(c.m.experts, 1)), K: int64(c.m.K), First: c.off / size, Count: c.n / size,
			From: l.device.Address, Table: t.at[c.m.Format], To: c.m.Data + hip.Address(p.Offset)}
		if err := e.m.launchOn(l.stream, op.Calls(e.m.target)); err != nil {
			return err
		}
	}
	return l.queued()
}

// read fills p from an offset on.
func read(b tensor.Blob, p []byte, off int64) error {
	n, err := b.ReadAt(p, off)
	if n < len(p) {
		return err
	}
	return nil
}
