package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/nstf"
)

// A work folder may be shared by processes on many machines that see one file system.
// Each takes a lease before it makes something: a file that appears for one of them alone
// (O_EXCL), whose time that process renews. A lease whose time stands still for long
// enough, by the clock of who looks at it, is of a dead process, and another takes it. That
// a living one is taken for dead costs work done twice and nothing else: what is made has
// the same bytes, and appears by rename.

const leaseEnd = ".lease"

// leases are those of one process.
type leases struct {
	id      string
	silence time.Duration // after which a process counts as dead
	stop    func()

	mu   sync.Mutex
	mine map[string]bool     // paths
	seen map[string]sighting // of others', by path
}

// A sighting is a lease as it was when it was seen to change last.
type sighting struct {
	stamp string
	since time.Time
}

// Join opens a work folder for one of several processes that share it, and makes it where
// it is missing. A folder of another job is refused like by [Resume]. Who says nothing for
// as long as silence counts as dead.
func Join(path string, job Job, silence time.Duration) (*Folder, error) {
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	if err := ours(path, entries); err != nil {
		return nil, err
	}
	p, err := json.MarshalIndent(job, "", "  ")
	if err != nil {
		return nil, err
	}
	if _, err := atomicfile.Claim(filepath.Join(path, journal), append(p, '\n')); err != nil {
		return nil, err
	}
	if err := sameJob(path, job, "give all shards the same flags, or another work folder"); err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	ctx, stop := context.WithCancel(context.Background())
	l := &leases{id: fmt.Sprintf("process %d on %s, %016x", os.Getpid(), host, rand.Uint64()), silence: silence, stop: stop, mine: map[string]bool{}, seen: map[string]sighting{}}
	go l.beat(ctx)
	return &Folder{path: path, leases: l, open: map[string]*nstf.Package{}}, nil
}

// Gather opens the work folder that shards of a job have filled.
func Gather(path string, job Job) (*Folder, error) {
	if _, err := os.Stat(filepath.Join(path, journal)); errors.Is(err, fs.ErrNotExist) {
		return nil, formats.Errorf(path, "", "no shard has worked there: it holds no %s", journal)
	}
	return Resume(path, job)
}

// sameJob refuses a folder of another job.
func sameJob(path string, job Job, hint string) error {
	was, err := readJournal(path)
	if err != nil {
		return err
	}
	if d := different(was, job); len(d) > 0 {
		e := formats.Unsupportedf(path, "", "resuming with another %s", strings.Join(d, ", another "))
		e.Hint = hint
		return e
	}
	return nil
}

// Shared reports whether other processes may work in the folder.
func (f *Folder) Shared() bool { return f != nil && f.leases != nil }

// Lease takes the right to make something, and reports whether this process has it now.
// Whoever has it looks again whether it has been made, and calls release in the end. A
// folder that is not shared gives everything.
func (f *Folder) Lease(name string) (release func(), ok bool, err error) {
	if !f.Shared() {
		return func() {}, true, nil
	}
	l, path := f.leases, filepath.Join(f.path, strings.TrimSuffix(fileName(name), ".nstf")+leaseEnd)
	for range 2 {
		claimed, err := atomicfile.Claim(path, []byte(l.id))
		if err != nil {
			return nil, false, err
		}
		if claimed {
			l.mu.Lock()
			l.mine[path] = true
			l.mu.Unlock()
			return func() { l.release(path) }, true, nil
		}
		if !l.dead(path) {
			return nil, false, nil
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, false, err
		}
	}
	return nil, false, nil
}

// dead reports whether the owner of a lease has been silent for too long, or it is gone.
func (l *leases) dead(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	owner, err := formats.ReadHead(path, 200)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	stamp := fmt.Sprint(info.ModTime().UnixNano(), string(owner))
	l.mu.Lock()
	defer l.mu.Unlock()
	was, ok := l.seen[path]
	if !ok || was.stamp != stamp {
		l.seen[path] = sighting{stamp, time.Now()}
		return false
	}
	return time.Since(was.since) > l.silence
}

// release gives a lease back, unless another process has taken it.
func (l *leases) release(path string) {
	l.mu.Lock()
	delete(l.mine, path)
	l.mu.Unlock()
	if owner, err := formats.ReadHead(path, 200); err == nil && string(owner) == l.id {
		os.Remove(path)
	}
}

// beat renews the leases of this process until the context ends.
func (l *leases) beat(ctx context.Context) {
	t := time.NewTicker(max(l.silence/8, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			l.mu.Lock()
			for path := range l.mine {
				os.Chtimes(path, now, now) // one that is gone was taken over
			}
			l.mu.Unlock()
		}
	}
}

// Check says what keeps a finished tensor from being used: that it is not there
// (fs.ErrNotExist), or what is damaged.
func (f *Folder) Check(ctx context.Context, name string) error {
	if _, _, ok := f.Get(ctx, name); ok {
		return nil
	}
	p, err := nstf.Open(filepath.Join(f.path, fileName(name)))
	if err != nil {
		return err
	}
	defer p.Close()
	return p.Verify(ctx, nil)
}
