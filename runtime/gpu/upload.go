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
	chunkBytes = 8 << 20
	lanes      = 6
)

// A chunk is a piece of a part of a matrix.
type chunk struct {
	m       *matrix
	part    int
	off, n  int64 // bytes of the part
	arrange bool
}

// A lane is what one goroutine needs to bring chunks to the device.
type lane struct {
	stream *driver.Stream
	pinned *driver.Pinned
	device driver.Buffer // chunks that are arranged lie here first
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
		step := int64(chunkBytes)
		if p.Arranged {
			step -= step % m.Format.BlockBytes()
		}
		for off := int64(0); off < p.Bytes; off += step {
			all = append(all, chunk{m, i, off, min(step, p.Bytes-off), p.Arranged})
		}
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
	return errors.Join(err, e.m.giveBack(l))
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
		if l.pinned, err = m.device.Pinned(chunkBytes); err == nil {
			l.device, err = m.alloc(chunkBytes)
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
	return errors.Join(errs...)
}

func (e *Engine) bringOne(l *lane, c *chunk, t tables) error {
	p := &c.m.parts[c.part]
	b := l.pinned.Bytes()[:c.n]
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
	return l.stream.Wait()
}

// read fills p from an offset on.
func read(b tensor.Blob, p []byte, off int64) error {
	n, err := b.ReadAt(p, off)
	if n < len(p) {
		return err
	}
	return nil
}
