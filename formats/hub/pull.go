package hub

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nstf/nstf/formats/atomicfile"
)

// defaultChunk is how many bytes one request asks for: large enough that asking costs
// nothing, small enough that little is lost with a connection.
const defaultChunk = 16 << 20

// Pull downloads what the cache lacks of a snapshot. Several requests run at once, over
// files and within them. What was downloaded before an error or a kill is kept beside the
// blobs (names end with .incomplete) and taken by the next Pull. Every file is held to the
// hash that the hub said; where it differs, all of it is asked for again, and what differs
// is replaced.
func (c *Client) Pull(ctx context.Context, s *Snapshot) error {
	missing := s.Missing()
	if len(missing) == 0 {
		return nil
	}
	if c.Offline {
		return &Error{What: s.String(), Reason: "the cache has not all of it", Missing: true, Hint: "HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE forbid to ask the hub"}
	}
	if err := c.prepare(); err != nil {
		return err
	}
	if err := s.cache.begin(s.Ref, s.Commit); err != nil {
		return err
	}
	p := &pull{Client: c, s: s}
	var twins []File // of files that are downloaded anyhow
	seen := map[string]bool{}
	missing = slices.DeleteFunc(missing, func(f File) bool {
		if seen[f.Etag] {
			twins = append(twins, f)
			return true
		}
		seen[f.Etag] = true
		p.total += f.Size
		return false
	})
	if err := atomicfile.Room(s.cache.snapshot(s.Repo, s.Commit), p.total-p.begun(missing)); err != nil {
		return err
	}
	tasks := make(chan task)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(tasks)
		// The largest last: what is small does not wait for it.
		slices.SortStableFunc(missing, func(a, b File) int { return cmp.Compare(a.Size, b.Size) })
		for _, f := range missing {
			if err := p.feed(ctx, f, tasks); err != nil {
				return err
			}
		}
		return nil
	})
	for range c.parallel() {
		group.Go(func() error {
			for t := range tasks {
				if err := t.part.fetch(ctx, t.index); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	for _, part := range p.parts { // where an error left them open
		part.close()
	}
	for _, f := range twins {
		if err == nil {
			err = s.cache.link(s.Repo, s.Commit, f)
		}
	}
	return err
}

// A pull is one call of Pull.
type pull struct {
	*Client
	s     *Snapshot
	parts []*part // of files that were begun, by the producer alone

	mu          sync.Mutex
	done, total int64
}

// A task is one chunk of a file.
type task struct {
	part  *part
	index int
}

// begun counts the bytes that an earlier pull left, and that need no room any more. A
// part has holes: what it takes is at most its length.
func (p *pull) begun(files []File) (n int64) {
	for _, f := range files {
		if info, err := os.Stat(p.s.cache.blob(p.s.Repo, f.Etag) + partSuffix); err == nil {
			n += min(info.Size(), f.Size)
		}
	}
	return n
}

// step counts bytes that came, or that have to come again.
func (p *pull) step(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	if p.Progress != nil {
		p.Progress(p.done, p.total)
	}
}

const partSuffix, journalSuffix = ".part.incomplete", ".list.incomplete"

// feed begins a file and hands out what of it is missing.
func (p *pull) feed(ctx context.Context, f File, tasks chan<- task) error {
	c, repo := p.s.cache, p.s.Repo
	lock, err := p.take(ctx, f)
	if err != nil {
		return err
	}
	if info, err := os.Stat(c.blob(repo, f.Etag)); err == nil && info.Size() == f.Size { // of another commit, or by another process
		p.step(f.Size)
		err := c.link(repo, p.s.Commit, f)
		lock.Close()
		return err
	}
	t := &part{pull: p, from: &origin{Client: p.Client, s: p.s, file: f}, file: f, lock: lock, chunk: p.chunk(), chunks: max(1, int((f.Size+p.chunk()-1)/p.chunk()))}
	t.moved = sync.NewCond(&t.mu)
	p.parts = append(p.parts, t)
	if err := t.open(); err != nil {
		return err
	}
	left := t.left
	go t.follow()
	if left == 0 {
		return t.finish(ctx)
	}
	for i := range t.chunks {
		if t.have[i] { // not yet changed by workers: each has its own chunk
			continue
		}
		select {
		case tasks <- task{t, i}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// take waits for the lock of a blob, which another process may hold while it downloads.
func (p *pull) take(ctx context.Context, f File) (*atomicfile.Lock, error) {
	name, err := p.s.cache.lock(p.s.Repo, f.Etag)
	if err != nil {
		return nil, err
	}
	for told := false; ; told = true {
		lock, err := atomicfile.TakeLock(name)
		var busy *atomicfile.BusyError
		if !errors.As(err, &busy) {
			return lock, err
		}
		if !told {
			p.note("%s is being downloaded by %s: waiting for it", f.Path, busy.Holder)
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// A part is a file that is being downloaded.
type part struct {
	*pull
	from    *origin
	file    File
	lock    *atomicfile.Lock
	f       *os.File
	journal *os.File // its chunks that are whole, a line each
	chunk   int64    // bytes of each, but for the last
	chunks  int

	mu    sync.Mutex
	moved *sync.Cond
	have  []bool // chunks that are written
	left  int
	ended bool   // nobody waits any more
	sum   string // hash of what was read, "" until all of it was or an error came
	read  error
}

// header begins a journal: what it was written for.
func (t *part) header() string {
	return fmt.Sprintf("nstf 1 %s %d %d\n", t.file.Etag, t.file.Size, t.chunk)
}

// open opens the part and takes what an earlier pull left of it.
func (t *part) open() (err error) {
	blob := t.s.cache.blob(t.s.Repo, t.file.Etag)
	t.have = make([]bool, t.chunks)
	t.left = t.chunks
	if t.f, err = os.OpenFile(blob+partSuffix, os.O_RDWR|os.O_CREATE, 0o666); err != nil {
		return err
	}
	if t.journal, err = os.OpenFile(blob+journalSuffix, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666); err != nil {
		return err
	}
	lines := bufio.NewScanner(t.journal)
	ours := lines.Scan() && lines.Text()+"\n" == t.header()
	info, err := t.f.Stat()
	if err != nil {
		return err
	}
	var there int64
	for ours && lines.Scan() {
		i, err := strconv.Atoi(strings.TrimSuffix(lines.Text(), "."))
		// A line that ends in a dot is whole; a chunk behind the file's end is not there.
		if err != nil || !strings.HasSuffix(lines.Text(), ".") || i < 0 || i >= t.chunks || t.have[i] {
			continue
		}
		if first, end := t.span(i); end <= info.Size() {
			t.have[i] = true
			t.left--
			there += end - first
		}
	}
	if !ours {
		if err := t.journal.Truncate(0); err != nil {
			return err
		}
		if _, err := t.journal.WriteString(t.header()); err != nil {
			return err
		}
		if err := t.f.Truncate(0); err != nil {
			return err
		}
	}
	t.step(there)
	return nil
}

// span returns where chunk i begins and ends.
func (t *part) span(i int) (first, end int64) {
	return int64(i) * t.chunk, min(int64(i+1)*t.chunk, t.file.Size)
}

// fetch downloads a chunk; who writes the last one finishes the file.
func (t *part) fetch(ctx context.Context, i int) error {
	off, end := t.span(i)
	err := t.again(ctx, t.file.Path, func() (bool, error) {
		n, err := t.from.piece(ctx, off, end, &counted{io.NewOffsetWriter(t.f, off), t.pull})
		switch {
		case errors.Is(err, errShort): // the next try begins behind what came
			off += n
		case err != nil:
			t.step(-n)
		}
		return n > 0, err
	})
	if err != nil {
		return t.explain(t.s.Ref, t.s.Repo+", "+t.file.Path, err)
	}
	if _, err := fmt.Fprintf(t.journal, "%d.\n", i); err != nil {
		return err
	}
	t.mu.Lock()
	t.have[i] = true
	t.left--
	last := t.left == 0
	t.moved.Broadcast()
	t.mu.Unlock()
	if last {
		return t.finish(ctx)
	}
	return nil
}

// errShort says that a connection ended amid a piece: what came is good.
var errShort = fmt.Errorf("connection ended early: %w", io.ErrUnexpectedEOF)

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// A counted writer tells of what passes.
type counted struct {
	w io.Writer
	p *pull
}

// Write implements io.Writer.
func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.p.step(int64(n))
	return n, atomicfile.Full(c.p.s.cache.Root, err)
}

// newHash returns what the hub names a content by: SHA-256, or git's SHA-1 of a blob.
func newHash(f File) hash.Hash {
	if len(f.Etag) == 64 {
		return sha256.New()
	}
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", f.Size)
	return h
}

// follow hashes the chunks in order as they are written, from the page cache.
func (t *part) follow() {
	h := newHash(t.file)
	buf := make([]byte, 1<<20)
	var err error
	for i := 0; i < t.chunks && err == nil; i++ {
		t.mu.Lock()
		for !t.have[i] && !t.ended {
			t.moved.Wait()
		}
		ended := t.ended && !t.have[i]
		t.mu.Unlock()
		if ended {
			return
		}
		first, end := t.span(i)
		_, err = io.CopyBuffer(struct{ io.Writer }{h}, io.NewSectionReader(t.f, first, end-first), buf)
	}
	t.mu.Lock()
	t.sum, t.read = hex.EncodeToString(h.Sum(nil)), err
	t.moved.Broadcast()
	t.mu.Unlock()
}

// finish holds the whole file to its hash and puts it into the cache.
func (t *part) finish(ctx context.Context) error {
	t.mu.Lock()
	for t.sum == "" {
		t.moved.Wait()
	}
	sum, err := t.sum, t.read
	t.mu.Unlock()
	if err == nil && sum != t.file.Etag {
		if sum, err = t.mend(ctx); err == nil && sum != t.file.Etag {
			t.discard()
			return &Error{What: t.s.Repo + ", " + t.file.Path, Reason: fmt.Sprintf("the hub says that its hash is %s, and twice sent bytes whose hash is %s", t.file.Etag, sum)}
		}
	}
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.f.Sync(); err != nil {
		return atomicfile.Full(t.s.cache.Root, err)
	}
	blob := t.s.cache.blob(t.s.Repo, t.file.Etag)
	if err := os.Rename(blob+partSuffix, blob); err != nil {
		return err
	}
	os.Remove(blob + journalSuffix)
	return t.s.cache.link(t.s.Repo, t.s.Commit, t.file)
}

// mend asks for every chunk again, replaces what differs, and returns the new hash.
func (t *part) mend(ctx context.Context) (string, error) {
	t.note("%s is damaged: comparing it with the hub's", t.file.Path)
	h, differ := newHash(t.file), 0
	var was, is bytes.Buffer
	for i := range t.chunks {
		first, end := t.span(i)
		was.Reset()
		if _, err := io.Copy(&was, io.NewSectionReader(t.f, first, end-first)); err != nil {
			return "", err
		}
		err := t.again(ctx, t.file.Path, func() (bool, error) {
			is.Reset()
			_, err := t.from.piece(ctx, first, end, &is)
			return false, err
		})
		if err != nil {
			return "", t.explain(t.s.Ref, t.s.Repo+", "+t.file.Path, err)
		}
		if !bytes.Equal(was.Bytes(), is.Bytes()) {
			differ++
			if _, err := t.f.WriteAt(is.Bytes(), first); err != nil {
				return "", atomicfile.Full(t.s.cache.Root, err)
			}
		}
		h.Write(is.Bytes())
	}
	t.note("%s: %d of %d pieces were damaged", t.file.Path, differ, t.chunks)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// discard removes what is there of a file that the hub cannot mean.
func (t *part) discard() {
	t.close()
	blob := t.s.cache.blob(t.s.Repo, t.file.Etag)
	os.Remove(blob + partSuffix)
	os.Remove(blob + journalSuffix)
}

// close lets go of a file, whatever of it is there.
func (t *part) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	t.ended = true
	t.moved.Broadcast()
	if t.f != nil {
		t.f.Close()
	}
	if t.journal != nil {
		t.journal.Close()
	}
	t.lock.Close()
}
