package work

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
)

// A Place is where processes on several machines share work: a [Dir] that all of them see,
// or a [Bucket].
type Place interface {
	// open makes it ready, and holds it to what leases need.
	open(ctx context.Context) (store, error)
}

// A store holds what has been made, under names, and the leases of who is making something.
// What has a name is whole. What a store answers is true for all processes at once.
//
// Methods belong to one goroutine, those of [claims] to any.
type store interface {
	claims
	fmt.Stringer // what a user calls it

	// list names what lies there. Copies on this machine of what does not are removed.
	list(ctx context.Context) ([]string, error)
	has(ctx context.Context, name string) (bool, error)
	// fetch returns a file of this machine with what lies under a name now, or
	// fs.ErrNotExist.
	fetch(ctx context.Context, name string) (path string, err error)
	// write has what the function writes appear under a name, whole.
	write(ctx context.Context, name string, write func(out *atomicfile.Output) error) error
	// leave is write for what may be lost where a machine loses its power.
	leave(ctx context.Context, name string, write func(out *atomicfile.Output) error) error
	// begin writes what nothing lies under yet: of several processes one does.
	begin(ctx context.Context, name string, data []byte) error
	// remove removes what lies under a name, if something does.
	remove(ctx context.Context, name string) error

	// lock keeps other processes that lock it out, with an [*atomicfile.BusyError].
	lock(ctx context.Context, silence time.Duration) (io.Closer, error)
	// discard removes all of it, the journal last, and gives the lock back.
	discard(ctx context.Context, lock io.Closer) error
	// near is a folder of this machine.
	near() string
	// poll is how often it is asked for what others make.
	poll() time.Duration
	close() error
}

// claims are what leases are made of.
type claims interface {
	// look returns a claim as it is now: nobody's, or with a mark that is another one after
	// each renewal.
	look(ctx context.Context, name string) (mark, error)
	// take makes a claim this process's if it still is as it was seen, and returns it as it
	// then is: of several processes that have seen the same one does.
	take(ctx context.Context, name string, seen mark, owner string) (mark, bool, error)
	// renew gives a claim another mark, and fails where it was taken over.
	renew(ctx context.Context, name string, own mark, owner string) (mark, error)
	// give makes a claim nobody's, unless it was taken over.
	give(ctx context.Context, name string, own mark, owner string) error
}

// A mark is a state of a claim.
type mark struct {
	stamp string // "" where nothing lies under its name
	free  bool   // nobody has it
}

// A Dir is a folder that all processes see.
type Dir string

func (d Dir) open(context.Context) (store, error) {
	return files(d), os.MkdirAll(string(d), 0o777)
}

// files are a store in a folder: an entry is a file that appears by rename, a claim one that
// appears for one process alone (a link, or O_EXCL), whose time is renewed.
type files string

func (d files) at(name string) string { return filepath.Join(string(d), name) }

func (d files) String() string { return string(d) }

func (d files) list(context.Context) ([]string, error) {
	entries, err := os.ReadDir(string(d))
	return names(entries), err
}

func names(entries []fs.DirEntry) (out []string) {
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func (d files) has(_ context.Context, name string) (bool, error) {
	_, err := os.Stat(d.at(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (d files) fetch(_ context.Context, name string) (string, error) {
	_, err := os.Stat(d.at(name))
	return d.at(name), err
}

func (d files) write(_ context.Context, name string, write func(out *atomicfile.Output) error) error {
	return write(atomicfile.Scratch(d.at(name)))
}

func (d files) leave(_ context.Context, name string, write func(out *atomicfile.Output) error) error {
	return write(atomicfile.Scratch(d.at(name)).Loose())
}

func (d files) begin(_ context.Context, name string, data []byte) error {
	_, err := atomicfile.Claim(d.at(name), data)
	return err
}

func (d files) remove(_ context.Context, name string) error {
	if err := os.Remove(d.at(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (d files) lock(context.Context, time.Duration) (io.Closer, error) {
	l, err := atomicfile.TakeLock(d.at(lockFile))
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (d files) discard(_ context.Context, lock io.Closer) error {
	entries, err := os.ReadDir(string(d))
	if err == nil {
		err = clear(string(d), names(entries))
	}
	if cerr := lock.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(string(d))
}

func (d files) near() string { return string(d) }

func (d files) poll() time.Duration { return 100 * time.Millisecond }

func (d files) close() error { return nil }

// maxOwner is the most that is read of who has a claim, in bytes.
const maxOwner = 200

func (d files) look(_ context.Context, name string) (mark, error) {
	info, err := os.Stat(d.at(name))
	if errors.Is(err, fs.ErrNotExist) {
		return mark{free: true}, nil
	}
	if err != nil {
		return mark{}, err
	}
	owner, err := formats.ReadHead(d.at(name), maxOwner)
	if errors.Is(err, fs.ErrNotExist) {
		return mark{free: true}, nil
	}
	return mark{stamp: fmt.Sprint(info.ModTime().UnixNano(), " ", string(owner))}, err
}

// take may give a claim whose owner is dead to two processes that find that out at once.
func (d files) take(ctx context.Context, name string, seen mark, owner string) (mark, bool, error) {
	if seen.stamp != "" {
		if now, err := d.look(ctx, name); err != nil || now != seen && !now.free {
			return now, false, err
		}
		if err := d.remove(ctx, name); err != nil {
			return mark{}, false, err
		}
	}
	ok, err := atomicfile.Claim(d.at(name), []byte(owner))
	return mark{stamp: owner}, ok, err
}

func (d files) renew(_ context.Context, name string, own mark, _ string) (mark, error) {
	now := time.Now()
	return own, os.Chtimes(d.at(name), now, now) // one that is gone was taken over
}

func (d files) give(_ context.Context, name string, _ mark, owner string) error {
	if is, err := formats.ReadHead(d.at(name), maxOwner); err == nil && string(is) == owner {
		return os.Remove(d.at(name))
	}
	return nil
}
