package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/nstf"
)

// Work may be shared by processes on many machines. Each takes a lease before it makes
// something, and renews it. A lease that stands still for long enough, by the clock of who
// looks at it, is of a dead process, and another takes it. That a living one is taken for
// dead costs work done twice and nothing else: what is made has the same bytes, and appears
// whole.

const leaseEnd = ".lease"

// leases are those of one process.
type leases struct {
	id      string
	store   claims
	silence time.Duration // after which a process counts as dead
	stop    func()

	mu   sync.Mutex
	mine map[string]*taken
	seen map[string]sighting // of others'
}

// A taken lease is this process's.
type taken struct {
	mu  sync.Mutex // of one request at a time
	is  mark
	end bool // given back, or lost
}

// A sighting is a claim as it was when it was seen to change last.
type sighting struct {
	mark
	since time.Time
}

// newLeases begins to renew what will be taken, until stop is called.
func newLeases(c claims, silence time.Duration) *leases {
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	ctx, stop := context.WithCancel(context.Background())
	l := &leases{id: fmt.Sprintf("process %d on %s, %016x", os.Getpid(), formats.Brief(host, 100), rand.Uint64()), store: c, silence: silence, stop: stop, mine: map[string]*taken{}, seen: map[string]sighting{}}
	go l.beat(ctx)
	return l
}

// Join opens a place for one of several processes that share work there, and begins the job
// where none has. A place that holds another job is refused like by [Resume]. Who says
// nothing for as long as silence counts as dead.
func Join(ctx context.Context, p Place, job Job, silence time.Duration) (_ *Folder, err error) {
	s, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	list, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	if err := ours(s.String(), list); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(job, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := s.begin(ctx, journal, append(text, '\n')); err != nil {
		return nil, err
	}
	if err := sameJob(ctx, s, job, "give all shards the same flags, or another work folder"); err != nil {
		return nil, err
	}
	return &Folder{store: s, leases: newLeases(s, silence), open: map[string]*nstf.Package{}}, nil
}

// Gather opens the place that shards of a job have filled, for one process, which keeps
// others that gather away.
func Gather(ctx context.Context, p Place, job Job, silence time.Duration) (_ *Folder, err error) {
	if d, ok := p.(Dir); ok {
		if _, err := os.Stat(files(d).at(journal)); errors.Is(err, fs.ErrNotExist) {
			return nil, idle(string(d)) // and nothing is made there
		}
	}
	s, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	f := &Folder{store: s, open: map[string]*nstf.Package{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	list, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(list, journal) {
		return nil, idle(s.String())
	}
	if f.lock, err = s.lock(ctx, silence); err != nil {
		return nil, err
	}
	if err := sameJob(ctx, s, job, "give the flags that the shards were given"); err != nil {
		return nil, err
	}
	return f, f.sweep(ctx)
}

func idle(place string) error {
	return formats.Errorf(place, "", "no shard has worked there: it holds no %s", journal)
}

// sameJob refuses a folder of another job.
func sameJob(ctx context.Context, s store, job Job, hint string) error {
	was, err := readJournal(ctx, s)
	if err != nil {
		return err
	}
	if d := different(was, job); len(d) > 0 {
		e := formats.Unsupportedf(s.String(), "", "resuming with another %s", strings.Join(d, ", another "))
		e.Hint = hint
		return e
	}
	return nil
}

// Shared reports whether other processes may work in the folder.
func (f *Folder) Shared() bool { return f != nil && f.leases != nil }

// Poll is how often others may be asked for, so that it costs little.
func (f *Folder) Poll() time.Duration { return f.store.poll() }

// Lease takes the right to make something, and reports whether this process has it now.
// Whoever has it looks again whether it has been made, and calls release in the end. A
// folder that is not shared gives everything.
func (f *Folder) Lease(ctx context.Context, name string) (release func(), ok bool, err error) {
	if !f.Shared() {
		return func() {}, true, nil
	}
	return f.leases.take(ctx, strings.TrimSuffix(fileName(name), ".nstf")+leaseEnd)
}

// take takes a claim that is free, or of a dead process.
func (l *leases) take(ctx context.Context, name string) (release func(), ok bool, err error) {
	seen, err := l.store.look(ctx, name)
	if err != nil || !seen.free && !l.dead(name, seen) {
		return nil, false, err
	}
	is, ok, err := l.store.take(ctx, name, seen, l.id)
	if err != nil || !ok {
		return nil, false, err
	}
	own := &taken{is: is}
	l.mu.Lock()
	l.mine[name] = own
	delete(l.seen, name)
	l.mu.Unlock()
	return func() { l.release(ctx, name, own) }, true, nil
}

// dead reports whether the owner of a claim has been silent for too long.
func (l *leases) dead(name string, is mark) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, ok := l.seen[name]
	if !ok || was.mark != is {
		l.seen[name] = sighting{is, time.Now()}
		return false
	}
	return time.Since(was.since) > l.silence
}

// release gives a lease back, unless another process has taken it. Where that fails others
// wait until it counts as dead.
func (l *leases) release(ctx context.Context, name string, own *taken) {
	l.mu.Lock()
	if l.mine[name] == own {
		delete(l.mine, name)
	}
	l.mu.Unlock()
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.end {
		return
	}
	own.end = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.silence)
	defer cancel()
	l.store.give(ctx, name, own.is, l.id)
}

// beat renews the leases of this process until the context ends.
func (l *leases) beat(ctx context.Context) {
	t := time.NewTicker(max(l.silence/8, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		l.mu.Lock()
		mine := make(map[string]*taken, len(l.mine))
		for name, own := range l.mine {
			mine[name] = own
		}
		l.mu.Unlock()
		var all sync.WaitGroup
		for name, own := range mine {
			all.Go(func() { l.renew(ctx, name, own) })
		}
		all.Wait()
	}
}

// renew tells others that this process lives. What fails is tried again at the next beat,
// until another process has taken the lease.
func (l *leases) renew(ctx context.Context, name string, own *taken) {
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.end {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, max(l.silence/4, time.Second))
	defer cancel()
	l.renewed(ctx, name, own)
}

// renewed renews a lease whose mutex is held.
func (l *leases) renewed(ctx context.Context, name string, own *taken) error {
	is, err := l.store.renew(ctx, name, own.is, l.id)
	if errors.Is(err, errLost) {
		own.end = true
	} else if err == nil {
		own.is = is
	}
	return err
}

// keep renews a lease at once, and fails with errLost where another process has taken it.
func (l *leases) keep(ctx context.Context, name string) error {
	l.mu.Lock()
	own := l.mine[name]
	l.mu.Unlock()
	if own == nil {
		return errLost
	}
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.end {
		return errLost
	}
	return l.renewed(ctx, name, own)
}

// errLost says that a lease is another process's.
var errLost = errors.New("the lease was taken over")

// Check says what keeps a finished tensor from being used: that it is not there
// (fs.ErrNotExist), or what is damaged.
func (f *Folder) Check(ctx context.Context, name string) error {
	if _, _, ok := f.Get(ctx, name); ok {
		return nil
	}
	path, err := f.store.fetch(ctx, fileName(name))
	if err != nil {
		return err
	}
	p, err := nstf.Open(path)
	if err != nil {
		return err
	}
	defer p.Close()
	return p.Verify(ctx, nil)
}

// readJournal reads the job of a place.
func readJournal(ctx context.Context, s store) (Job, error) {
	path, err := s.fetch(ctx, journal)
	if err != nil {
		return nil, err
	}
	p, err := formats.ReadFile(path, maxJournal, "a journal")
	if err != nil {
		return nil, err
	}
	return parseJournal(s.String()+"/"+journal, p)
}
