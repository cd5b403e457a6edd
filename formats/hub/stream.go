package hub

import (
	"cmp"
	"container/list"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"sync"

	"github.com/zeebo/blake3"

	"github.com/nstf/nstf/formats"
)

// A Stream reads the weights of a snapshot from the hub as they are asked for, so that the
// disk needs no room for them. Pieces that were read lately are kept, in memory that is
// bounded; where reading goes on, the next ones are asked for ahead.
//
// What is read twice is the same twice: a piece that comes again is held to what came
// first, and answers to their ETag. A range has no hash of its own: a file is held to the
// hash that the hub lists when its last piece in order is read, which whoever hashes the
// whole file, as who writes a package does, waits for. Until then what was read may be
// damaged.
//
// Its methods may be called from several goroutines.
type Stream struct {
	c      *Client
	s      *Snapshot
	ctx    context.Context
	cancel context.CancelFunc
	files  []*streamed
	size   int64         // of a piece
	memory int64         // of all pieces
	ahead  int           // pieces
	asking chan struct{} // as many as connections

	mu    sync.Mutex
	moved *sync.Cond
	room  int // buffers that may still be made
	free  [][]byte
	have  map[place]*held
	order list.List // of *held, the one used longest ago first
	came  int64
}

// A place is one piece of a file.
type place struct {
	file  *streamed
	index int
}

// A held piece is in memory, or on its way there.
type held struct {
	place
	buf   []byte
	users int // who reads it, or fetches it; 0: it may go
	ready chan struct{}
	err   error
	at    *list.Element
}

// DefaultStreamMemory is what pieces may take where nothing is said, and leastPieces how
// many there are at least.
const (
	DefaultStreamMemory = 256 << 20
	streamPiece         = 4 << 20
	leastPieces         = 8
)

// Stream reads what the cache lacks of a snapshot's weights from the hub, with pieces of at
// most memory bytes kept (0: [DefaultStreamMemory]; never fewer than eight pieces of 4 MiB),
// and pulls the small files. It reads until the context ends, or Close.
func (c *Client) Stream(ctx context.Context, s *Snapshot, memory int64) (*Stream, error) {
	small := *s
	small.Files = nil
	out := &Stream{c: c, s: s, size: cmp.Or(c.bytes, streamPiece), have: map[place]*held{}}
	for _, f := range s.Missing() {
		switch path.Ext(f.Path) {
		case ".safetensors", ".gguf", ".nstf":
			out.add(f)
		default:
			small.Files = append(small.Files, f)
		}
	}
	if len(out.files) > 0 && c.Offline {
		return nil, &Error{What: s.String(), Reason: "the cache has not all of it", Missing: true, Hint: "HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE forbid to ask the hub"}
	}
	if err := c.Pull(ctx, &small); err != nil {
		return nil, err
	}
	if err := c.prepare(); err != nil && len(out.files) > 0 {
		return nil, err
	}
	out.ctx, out.cancel = context.WithCancel(ctx)
	out.moved = sync.NewCond(&out.mu)
	out.room = int(max(cmp.Or(memory, DefaultStreamMemory)/out.size, leastPieces))
	out.memory = int64(out.room) * out.size
	out.ahead = min(c.parallel(), out.room/4)
	out.asking = make(chan struct{}, c.parallel())
	return out, nil
}

func (st *Stream) add(f File) {
	n := 0
	if f.Size > 0 {
		n = int((f.Size-1)/st.size + 1)
	}
	st.files = append(st.files, &streamed{Stream: st, file: f, pieces: n, sums: map[int][16]byte{}, hash: newHash(f),
		from: &origin{Client: st.c, s: st.s, file: f, etags: map[string]string{}}})
}

// Remote returns the files that are read from the hub, at the paths where they would lie in
// the cache.
func (st *Stream) Remote() formats.Remote {
	out := formats.Remote{}
	for _, f := range st.files {
		out[st.s.cache.file(st.s.Repo, st.s.Commit, f.file.Path)] = f
	}
	return out
}

// Bytes returns the size of the files that are read from the hub, and what came of them so
// far, some of it more than once.
func (st *Stream) Bytes() (size, came int64) {
	for _, f := range st.files {
		size += f.file.Size
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return size, st.came
}

// Memory returns what pieces take at most.
func (st *Stream) Memory() int64 { return st.memory }

// Close ends all reading.
func (st *Stream) Close() { st.cancel() }

// buffer returns one for a piece: new, or that of the piece that was used longest ago; nil
// while all are in use.
func (st *Stream) buffer() []byte {
	if n := len(st.free); n > 0 {
		b := st.free[n-1]
		st.free = st.free[:n-1]
		return b
	}
	if st.room > 0 {
		st.room--
		return make([]byte, st.size)
	}
	for e := st.order.Front(); e != nil; e = e.Next() {
		if h := e.Value.(*held); h.users == 0 {
			st.drop(h)
			return h.buf
		}
	}
	return nil
}

func (st *Stream) drop(h *held) {
	st.order.Remove(h.at)
	delete(st.have, h.place)
}

// begin takes a piece that is there or on its way, or has it fetched; nil where nothing is
// to be waited for and there is no buffer. Whoever gets one releases it.
func (st *Stream) begin(p place, wait bool) *held {
	st.mu.Lock()
	defer st.mu.Unlock()
	for {
		if h := st.have[p]; h != nil {
			h.users++
			st.order.MoveToBack(h.at)
			return h
		}
		if buf := st.buffer(); buf != nil {
			h := &held{place: p, buf: buf, users: 2, ready: make(chan struct{})} // of who asked, and of who fetches
			h.at = st.order.PushBack(h)
			st.have[p] = h
			go st.fetch(h)
			return h
		}
		if !wait {
			return nil
		}
		st.moved.Wait()
	}
}

func (st *Stream) release(h *held) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if h.users--; h.users == 0 {
		if h.err != nil { // who comes next tries again
			st.drop(h)
			st.free = append(st.free, h.buf)
		}
		st.moved.Broadcast()
	}
}

// fetch reads a piece from the hub.
func (st *Stream) fetch(h *held) {
	st.asking <- struct{}{}
	err := h.file.fetch(h.index, h.buf)
	<-st.asking
	h.err = err
	close(h.ready)
	st.release(h)
}

// A streamed file is read from the hub.
type streamed struct {
	*Stream
	file   File
	from   *origin
	pieces int

	checks sync.Mutex
	sums   map[int][16]byte // BLAKE3 of the pieces that came
	hash   hash.Hash        // of the pieces before next, in order
	next   int
	wrong  error // what the hash of the whole file says
}

// Size returns the file's size.
func (f *streamed) Size() int64 { return f.file.Size }

// span returns where a piece lies.
func (f *streamed) span(i int) (first, end int64) {
	return int64(i) * f.size, min(int64(i+1)*f.size, f.file.Size)
}

// fetch reads a piece into buf, and holds it to what came before.
func (f *streamed) fetch(i int, buf []byte) error {
	first, end := f.span(i)
	what := f.s.Repo + ", " + f.file.Path
	to := &filler{buf: buf[:end-first]}
	err := f.c.again(f.ctx, f.file.Path, func() (bool, error) {
		was := to.n
		_, err := f.from.piece(f.ctx, first+int64(to.n), end, to)
		if !errors.Is(err, errShort) && err != nil {
			to.n = was
		}
		return to.n > was, err
	})
	f.mu.Lock()
	f.came += int64(to.n)
	f.mu.Unlock()
	if err != nil {
		return f.c.explain(f.s.Ref, what, err)
	}
	var sum [16]byte
	all := blake3.Sum256(to.buf)
	copy(sum[:], all[:])
	f.checks.Lock()
	defer f.checks.Unlock()
	if was, ok := f.sums[i]; ok && was != sum {
		return &Error{What: what, Reason: fmt.Sprintf("changed on the hub while it was read: the bytes from %d on are not those that came before", first)}
	}
	f.sums[i] = sum
	return nil
}

// A filler is a writer into a buffer.
type filler struct {
	buf []byte
	n   int
}

// Write implements io.Writer.
func (f *filler) Write(p []byte) (int, error) {
	n := copy(f.buf[f.n:], p)
	f.n += n
	if n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

// ReadAt implements io.ReaderAt.
func (f *streamed) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("hub: read at %d", off)
	}
	n := 0
	for n < len(p) && off < f.file.Size {
		i := int(off / f.size)
		m, err := f.read(i, p[n:], off-int64(i)*f.size)
		if err != nil {
			return n, err
		}
		n, off = n+m, off+int64(m)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// read copies bytes of a piece from off on.
func (f *streamed) read(i int, p []byte, off int64) (int, error) {
	h := f.begin(place{f, i}, true)
	defer f.release(h)
	f.goOn(i)
	<-h.ready
	if h.err != nil {
		return 0, h.err
	}
	first, end := f.span(i)
	data := h.buf[:end-first]
	if err := f.check(i, data); err != nil {
		return 0, err
	}
	return copy(p, data[off:]), nil
}

// goOn has the pieces behind one fetched where the one before was read, too.
func (f *streamed) goOn(i int) {
	f.mu.Lock()
	_, before := f.have[place{f, i - 1}]
	f.mu.Unlock()
	for j := i + 1; before && j <= i+f.ahead && j < f.pieces; j++ {
		h := f.begin(place{f, j}, false)
		if h == nil {
			return
		}
		f.release(h)
	}
}

// check hashes the pieces as they are read in order, and holds the whole to its hash.
func (f *streamed) check(i int, data []byte) error {
	f.checks.Lock()
	defer f.checks.Unlock()
	if i == f.next {
		f.hash.Write(data)
		if f.next++; f.next == f.pieces {
			if sum := hex.EncodeToString(f.hash.Sum(nil)); sum != f.file.Etag {
				f.wrong = &Error{What: f.s.Repo + ", " + f.file.Path, Reason: fmt.Sprintf("the hub says that its hash is %s, and sent bytes whose hash is %s", f.file.Etag, sum)}
			}
		}
	}
	return f.wrong
}
