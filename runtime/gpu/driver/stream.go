package driver

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/nstf/nstf/kernels/hip"
)

// A Stream carries out work in order. Streams of one device run beside one
// another. A stream is used by one goroutine at a time.
type Stream struct {
	device    *Device
	handle    uintptr
	recording *Graph                // what is being captured; nil: nothing
	failed    atomic.Pointer[error] // the first failure of queued work, or of a stream it waits for, until somebody is told
	done      waiter
}

// Stream makes a stream.
func (d *Device) Stream() (*Stream, error) {
	s := &Stream{device: d}
	err := d.do(func() error {
		p := &d.lib.procs.streamCreate
		if code := call(p, uintptr(unsafe.Pointer(&s.handle)), streamNonBlocking); code != 0 {
			return d.check(p, "", code)
		}
		s.done = waiter{d, &d.lib.procs.streamWait, [1]uintptr{s.handle}}
		d.mu.Lock()
		d.streams[s] = struct{}{}
		d.mu.Unlock()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Close waits for the stream and gives it back.
func (s *Stream) Close() error {
	d := s.device
	err := s.Wait()
	d.mu.Lock()
	_, ok := d.streams[s]
	delete(d.streams, s)
	d.mu.Unlock()
	if ok && err == nil {
		p := &d.lib.procs.streamDestroy
		err = d.do(func() error { return d.check(p, "", call(p, s.handle)) })
	}
	return err
}

// queue begins a command of the stream; commit ends it.
func (s *Stream) queue(k kind) (*command, error) {
	c, err := s.device.worker.reserve(s.device.refused)
	if err != nil {
		return nil, err
	}
	c.kind, c.stream = k, s
	return c, nil
}

// commit queues a command, and notes it where the stream is being captured.
func (s *Stream) commit(c *command) {
	if g := s.recording; g != nil {
		g.commands = append(g.commands, *c)
		if !s.device.properties.Graphs {
			s.device.worker.drop()
			return
		}
	}
	s.device.worker.commit()
}

// Wait waits until all work of the stream is done and returns the first
// error of it.
func (s *Stream) Wait() error {
	if s.recording != nil {
		return captureError("Wait")
	}
	err := s.done.wait()
	if first := s.failed.Swap(nil); first != nil {
		s.device.told(first)
		return *first
	}
	return err
}

// Launch queues a kernel. It copies the arguments and does not allocate.
func (s *Stream) Launch(f *Function, c hip.Call) error {
	if err := s.checkLaunch(f, &c); err != nil {
		return err
	}
	q, err := s.queue(kindLaunch)
	if err != nil {
		return err
	}
	q.fn, q.grid, q.block, q.lds, q.cooperative, q.early, q.n = f, c.Grid, c.Block, c.LDS, c.Cooperative, c.Early, len(c.Args)
	for i, a := range c.Args {
		q.args[i] = a.Bits
	}
	s.commit(q)
	return nil
}

// checkLaunch finds what is wrong with a call before the runtime does.
func (s *Stream) checkLaunch(f *Function, c *hip.Call) error {
	d := s.device
	threads := uint64(c.Block[0]) * uint64(c.Block[1]) * uint64(c.Block[2])
	limit := d.properties.Threads
	if m := f.attributes.MaxThreads; m > 0 {
		limit = m
	}
	switch {
	case f.device != d:
		return launchError(f, "the kernel is on %v, the stream on %v", f.device, d)
	case c.Symbol != "" && c.Symbol != f.symbol:
		return launchError(f, "the call is one of %s", c.Symbol)
	case c.Grid[0] == 0 || c.Grid[1] == 0 || c.Grid[2] == 0 || threads == 0:
		return launchError(f, "grid %v, block %v: a dimension is 0", c.Grid, c.Block)
	case threads > uint64(limit):
		return launchError(f, "block %v: more than %d threads", c.Block, limit)
	case int64(c.LDS)+int64(f.attributes.LDS) > int64(d.properties.Target.LDS):
		return launchError(f, "%d bytes of LDS, %d of them dynamic: more than %d", int64(c.LDS)+int64(f.attributes.LDS), c.LDS, d.properties.Target.LDS)
	case len(c.Args) > maxArgs:
		return launchError(f, "%d arguments: more than %d", len(c.Args), maxArgs)
	case c.Cooperative && !d.properties.Cooperative:
		e := launchError(f, "%v has no cooperative launch", d)
		e.Reason = ErrMissing
		return e
	}
	return nil
}

func launchError(f *Function, format string, args ...any) *Error {
	return &Error{Call: "launch of " + f.symbol, Detail: fmt.Sprintf(format, args...), Reason: ErrRange}
}

// Copy queues a copy of n bytes between buffers of the device.
func (s *Stream) Copy(dst, src Buffer, n int64) error {
	if n < 0 || n > dst.Size || n > src.Size {
		return rangeError("Copy", n, min(dst.Size, src.Size))
	}
	if n == 0 {
		return nil
	}
	c, err := s.queue(kindCopy)
	if err != nil {
		return err
	}
	c.dst, c.src, c.len = uint64(dst.Address), uint64(src.Address), uint64(n)
	s.commit(c)
	return nil
}

// Fill queues setting every byte of a buffer.
func (s *Stream) Fill(dst Buffer, b byte) error {
	if dst.Size == 0 {
		return nil
	}
	c, err := s.queue(kindFill)
	if err != nil {
		return err
	}
	c.dst, c.src, c.len = uint64(dst.Address), uint64(b), uint64(dst.Size)
	s.commit(c)
	return nil
}

// Upload copies to the device. From pinned memory it only queues: the source
// has to stay as it is until the stream was waited for. Other sources may be
// changed when it returns, though the copy may still be under way.
func (s *Stream) Upload(dst Buffer, src []byte) error {
	if int64(len(src)) > dst.Size {
		return rangeError("Upload", int64(len(src)), dst.Size)
	}
	if len(src) == 0 {
		return nil
	}
	if s.device.isPinned(src) {
		return s.transfer(kindUpload, dst.Address, src)
	}
	if s.recording != nil {
		return captureError("Upload of memory that is not pinned")
	}
	for at := dst.Address; len(src) > 0; {
		t, err := s.device.staging.take(int64(len(src)))
		if err != nil {
			return err
		}
		n := copy(t.pinned.bytes, src)
		if err = s.transfer(kindUpload, at, t.pinned.bytes[:n]); err == nil {
			err = s.Record(t.event)
			t.busy = err == nil
		}
		t.give()
		if err != nil {
			return err
		}
		at, src = at+hip.Address(n), src[n:]
	}
	return nil
}

// Download copies from the device. Into pinned memory it only queues; else it
// waits for the stream and returns the first error of its work.
func (s *Stream) Download(dst []byte, src Buffer) error {
	if int64(len(dst)) > src.Size {
		return rangeError("Download", int64(len(dst)), src.Size)
	}
	if len(dst) == 0 {
		return nil
	}
	if s.device.isPinned(dst) {
		return s.transfer(kindDownload, src.Address, dst)
	}
	if s.recording != nil {
		return captureError("Download to memory that is not pinned")
	}
	for at := src.Address; len(dst) > 0; {
		t, err := s.device.staging.take(int64(len(dst)))
		if err != nil {
			return err
		}
		n := min(len(dst), len(t.pinned.bytes))
		if err = s.transfer(kindDownload, at, t.pinned.bytes[:n]); err == nil {
			err = s.Wait()
		}
		if err == nil {
			copy(dst, t.pinned.bytes[:n])
		}
		t.give()
		if err != nil {
			return err
		}
		at, dst = at+hip.Address(n), dst[n:]
	}
	return nil
}

// transfer queues a copy between the device and pinned memory.
func (s *Stream) transfer(k kind, device hip.Address, host []byte) error {
	c, err := s.queue(k)
	if err != nil {
		return err
	}
	c.dst, c.src, c.len = uint64(device), uint64(uintptr(unsafe.Pointer(&host[0]))), uint64(len(host))
	s.commit(c)
	return nil
}

func rangeError(what string, n, size int64) error {
	return &Error{Call: what, Detail: fmt.Sprintf("%d bytes do not lie in a buffer of %d", n, size), Reason: ErrRange}
}

func captureError(what string) error {
	return &Error{Call: what, Detail: "not while the stream is captured", Reason: ErrRange}
}
