// Package work is the folder that a resumable command keeps beside its output
// until the output is whole: OUT.work, with a journal that names what decides
// the result, and a file for each finished tensor.
//
// A finished tensor is a package of one tensor (formats/nstf) whose model JSON
// is the caller's record. It appears by rename when it is on the disk, so that
// a process may be killed at any point: what has a name is whole, and a run
// that resumes redoes nothing of it. Its tensors are mapped, not held.
//
// A [Job] lists what decides the bytes of the result. A folder is resumed only
// by the same job: another one's tensors would not fit together.
//
// A Folder belongs to one process, which holds its lock until it ends, or by [Join] to
// several, which take leases; its methods belong to one goroutine. What several share may
// lie in an object store ([Bucket]) as well as in a folder.
//
// Compatibility: none between versions of the program; the job names the
// program.
package work

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/zeebo/blake3"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/nstf"
)

// A Job lists what decides a result, by name: hashes of the source, of the
// text, of the plan, the program's version.
type Job map[string]string

// A Folder is an open work folder.
type Folder struct {
	store  store
	lock   io.Closer
	leases *leases                  // nil where no other process works in it
	open   map[string]*nstf.Package // by file name
}

// Path returns the work folder of an output.
func Path(out string) string { return out + ".work" }

// ErrExists says that a work folder is there already.
var ErrExists = errors.New("an interrupted run left its work there")

// journal is the file that names the job, maxJournal what it may take.
const (
	journal    = "journal.json"
	maxJournal = 1 << 20
)

// lockFile is held by the process that works in a folder.
const lockFile = "lock"

// Create makes a work folder for a job. It fails with [ErrExists] where an interrupted
// run's is there, and with an [*atomicfile.BusyError] where a living one's is.
func Create(path string, job Job) (*Folder, error) {
	lock, list, err := take(path)
	if err != nil {
		return nil, err
	}
	if slices.Contains(list, journal) {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, ErrExists), lock.Close())
	}
	if err := clear(path, list); err != nil { // killed before it had a journal
		return nil, errors.Join(err, lock.Close())
	}
	return begin(path, job, lock)
}

func begin(path string, job Job, lock *atomicfile.Lock) (*Folder, error) {
	p, err := json.MarshalIndent(job, "", "  ")
	if err == nil {
		err = atomicfile.Scratch(filepath.Join(path, journal)).WriteFile(append(p, '\n'))
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Folder{store: files(path), lock: lock, open: map[string]*nstf.Package{}}, nil
}

// take locks a folder, which is made where it is missing, and lists what is in it. A
// folder that is there and is nobody's work is refused before a lock is left in it.
func take(path string) (*atomicfile.Lock, []string, error) {
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(path, 0o777); err != nil {
			return nil, nil, err
		}
	case err != nil:
		return nil, nil, err
	default:
		if err := ours(path, names(entries)); err != nil {
			return nil, nil, err
		}
	}
	lock, err := atomicfile.TakeLock(filepath.Join(path, lockFile))
	if err != nil {
		return nil, nil, err
	}
	entries, err = os.ReadDir(path)
	if err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	return lock, names(entries), nil
}

// ours refuses a place that holds other things and no journal.
func ours(place string, list []string) error {
	if slices.Contains(list, journal) {
		return nil
	}
	for _, name := range list {
		if name != lockFile && !strings.Contains(name, halfWritten) {
			err := formats.Unsupportedf(place, "", "taking what is not an interrupted run's: it holds %s and no %s", formats.Brief(name, 80), journal)
			err.Hint = "move it away, or choose another output or work folder"
			return err
		}
	}
	return nil
}

// Resume opens the work folder of the same job, or makes one where none is
// there. A folder of another job is refused with an error that names what
// differs, and that of a living process with an [*atomicfile.BusyError].
func Resume(path string, job Job) (*Folder, error) {
	lock, list, err := take(path)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(list, journal) { // killed before it had one: nothing is lost
		if err := clear(path, list); err != nil {
			return nil, errors.Join(err, lock.Close())
		}
		return begin(path, job, lock)
	}
	ctx := context.Background() // a folder asks nobody
	f := &Folder{store: files(path), lock: lock, open: map[string]*nstf.Package{}}
	if err := sameJob(ctx, f.store, job, "give the command that was interrupted, or begin anew by --discard"); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return f, f.sweep(ctx)
}

// Discard removes a work folder, if there is one. A folder that holds other things
// and no journal is somebody else's, and refused, and so is one that a living process
// works in.
func Discard(path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	lock, _, err := take(path)
	if err != nil {
		return err
	}
	return files(path).discard(context.Background(), lock)
}

// clear removes everything from a folder but journal and lock.
func clear(path string, list []string) error {
	for _, name := range list {
		if name == journal || name == lockFile {
			continue
		}
		if err := os.RemoveAll(filepath.Join(path, name)); err != nil {
			return err
		}
	}
	return nil
}

// halfWritten is in the names of files that are not whole yet (formats/atomicfile).
const halfWritten = ".tmp-"

func parseJournal(name string, p []byte) (Job, error) {
	var job Job
	if err := json.Unmarshal(p, &job); err != nil {
		return nil, formats.Errorf(name, "", "not a journal: %v", err)
	}
	return job, nil
}

// different lists the keys in which jobs differ.
func different(a, b Job) (out []string) {
	keys := map[string]bool{}
	for k := range a {
		keys[k] = true
	}
	for k := range b {
		keys[k] = true
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if a[k] != b[k] {
			out = append(out, k)
		}
	}
	return out
}

// sweep removes what a killed process left half-written.
func (f *Folder) sweep(ctx context.Context) error {
	list, err := f.store.list(ctx)
	for _, name := range list {
		if strings.Contains(name, halfWritten) {
			err = errors.Join(err, f.store.remove(ctx, name))
		}
	}
	return err
}

// Put stores a tensor that is finished, with a record, which becomes JSON. It
// returns the tensor as it lies in the folder; what t held may be dropped.
func (f *Folder) Put(ctx context.Context, t formats.Tensor, record any) (formats.Tensor, error) {
	if err := f.put(ctx, t, record, f.store.write); err != nil {
		return t, err
	}
	out, _, ok := f.Get(ctx, t.Name)
	if !ok && ctx.Err() != nil {
		return t, context.Cause(ctx)
	}
	if !ok {
		return t, fmt.Errorf("%s/%s: cannot be read back", f.store, fileName(t.Name))
	}
	return out, nil
}

// Leave stores, as Put does, what is only on the way to finished tensors and can be made again:
// it is not read back, and what of it is not on the disk when a machine loses its power is
// found damaged.
func (f *Folder) Leave(ctx context.Context, t formats.Tensor, record any) error {
	return f.put(ctx, t, record, f.store.leave)
}

func (f *Folder) put(ctx context.Context, t formats.Tensor, record any, store func(ctx context.Context, name string, write func(out *atomicfile.Output) error) error) error {
	p, err := json.Marshal(record)
	if err != nil {
		return err
	}
	file := fileName(t.Name)
	if old := f.open[file]; old != nil {
		delete(f.open, file)
		if err := old.Close(); err != nil {
			return err
		}
	}
	return store(ctx, file, func(out *atomicfile.Output) error {
		return nstf.Write(out, nstf.Meta{Model: p}, []nstf.Item{{Tensor: t}}, nstf.WriteOptions{Context: ctx})
	})
}

// Get returns a finished tensor and its record. What is damaged counts as not
// finished.
func (f *Folder) Get(ctx context.Context, name string) (formats.Tensor, json.RawMessage, bool) {
	file := fileName(name)
	p := f.open[file]
	if p == nil {
		path, err := f.store.fetch(ctx, file)
		if err != nil {
			return formats.Tensor{}, nil, false
		}
		if p, err = whole(ctx, path); err != nil {
			return formats.Tensor{}, nil, false
		}
	}
	item, ok := p.Tensor(name)
	if !ok {
		p.Close()
		return formats.Tensor{}, nil, false
	}
	f.open[file] = p
	return item.Tensor, p.Model(), true
}

// whole opens a file that is not damaged.
func whole(ctx context.Context, path string) (*nstf.Package, error) {
	p, err := nstf.Open(path)
	if err != nil {
		return nil, err
	}
	if err := p.Verify(ctx, nil); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Ready checks several at once, on all cores, so that [Folder.Get] has little left to do.
func (f *Folder) Ready(ctx context.Context, names []string) {
	var all sync.WaitGroup
	found := make([]*nstf.Package, len(names))
	for i, name := range names {
		if file := fileName(name); f.open[file] == nil {
			if path, err := f.store.fetch(ctx, file); err == nil {
				all.Go(func() { found[i], _ = whole(ctx, path) }) // Get says what is wrong
			}
		}
	}
	all.Wait()
	for i, p := range found {
		if p != nil {
			f.open[fileName(names[i])] = p
		}
	}
}

// Close closes the files, gives the lock back and leaves the folder. Its tensors are gone.
func (f *Folder) Close() error {
	errs := []error{f.shut()}
	if f.lock != nil {
		errs = append(errs, f.lock.Close())
	}
	return errors.Join(append(errs, f.store.close())...)
}

func (f *Folder) shut() error {
	var errs []error
	for _, p := range f.open {
		errs = append(errs, p.Close())
	}
	f.open = map[string]*nstf.Package{}
	if f.leases != nil {
		f.leases.stop()
	}
	return errors.Join(errs...)
}

// Remove closes the files and removes the folder: the output is whole.
func (f *Folder) Remove(ctx context.Context) error {
	return errors.Join(f.shut(), f.store.discard(ctx, f.lock), f.store.close())
}

// Has reports whether something of that name was put, whole or damaged since.
func (f *Folder) Has(ctx context.Context, name string) bool { return f.HasFile(ctx, fileName(name)) }

// HasFile reports whether another file is there. One that cannot be asked for is not: whoever
// wants to make it then learns why.
func (f *Folder) HasFile(ctx context.Context, name string) bool {
	ok, err := f.store.has(ctx, name)
	return ok && err == nil
}

// Drop removes what was put under a name, if it is there.
func (f *Folder) Drop(ctx context.Context, name string) error {
	file := fileName(name)
	var err error
	if p := f.open[file]; p != nil {
		delete(f.open, file)
		err = p.Close()
	}
	return errors.Join(err, f.store.remove(ctx, file))
}

// DropFile removes another file, if it is there.
func (f *Folder) DropFile(ctx context.Context, name string) error { return f.store.remove(ctx, name) }

// Tidy gives back what is held of things that other processes have dropped since: their
// names have spaces, which those of tensors that finish a model never have.
func (f *Folder) Tidy(ctx context.Context) error {
	list, err := f.store.list(ctx)
	if err != nil {
		return err
	}
	for file, p := range f.open {
		if strings.Contains(file, "+") && !slices.Contains(list, file) {
			delete(f.open, file)
			err = errors.Join(err, p.Close())
		}
	}
	return err
}

// plain are the names that every file system takes as they are, but for spaces.
var plain = regexp.MustCompile(`^[a-z0-9][a-z0-9._ -]{0,99}$`)

// fileName returns where a tensor lies. Graphs come from foreign files: a name
// that is no plain words becomes its hash.
func fileName(name string) string {
	if plain.MatchString(name) {
		return strings.ReplaceAll(name, " ", "+") + ".nstf" // + is in no plain word
	}
	h := blake3.Sum256([]byte(name))
	return "x-" + hex.EncodeToString(h[:16]) + ".nstf"
}

// Fetch returns the path of a file of this machine with what [Folder.Write] wrote, or
// fs.ErrNotExist. It is for reading.
func (f *Folder) Fetch(ctx context.Context, name string) (string, error) {
	return f.store.fetch(ctx, name)
}

// Write has what the function writes appear as another file, whole.
func (f *Folder) Write(ctx context.Context, name string, write func(out *atomicfile.Output) error) error {
	return f.store.write(ctx, name, write)
}

// String returns what a user calls the folder.
func (f *Folder) String() string { return f.store.String() }

// Own returns the path of something that this process alone keeps there, on this machine.
func (f *Folder) Own(name string) string { return filepath.Join(f.store.near(), name) }

// Empty reports whether no tensor has been finished.
func (f *Folder) Empty(ctx context.Context) bool {
	list, err := f.store.list(ctx)
	return err == nil && !slices.ContainsFunc(list, func(name string) bool {
		return strings.HasSuffix(name, ".nstf") || strings.HasPrefix(name, "try-")
	})
}
