package schedule

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zeebo/blake3"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
)

// A Disk keeps what was computed of prompts in a folder, within a number of bytes: a
// file for each page of positions, named by a hash of the model and all tokens up to
// there, and for recurrent models one for each state that was kept. Schedulers of
// several models may share it, and it outlives the process.
//
// A file holds a hash of itself and appears by rename. What does not hold its hash is
// removed, and so is what was not used for longest where there is no room: of one
// prompt its end first.
type Disk struct {
	dir  string
	most int64
	lock *atomicfile.Lock

	mu      sync.Mutex
	files   map[string]*file
	by      map[string][]*file // states, by the hash of the whole pages before them
	bytes   int64
	pending int64 // bytes that wait to be written
	stats   DiskStats
	jobs    chan *file
	done    chan struct{}
	closed  bool
}

// DiskStats are counters of a [Disk], and how it is now.
type DiskStats struct {
	Files, Bytes    int64
	Written, Read   int64 // files
	Dropped         int64 // for want of room
	Damaged, Failed int64 // removed because they did not hold their hash; not written
}

// A file is one that is there, or about to be.
type file struct {
	name string
	size int64
	used int64  // nanoseconds
	date int64  // of used, what the folder says
	body []byte // that waits to be written; nil: it is
}

const (
	diskMagic   = "NSTFKEPT1\n"
	pageSuffix  = ".page"
	stateSuffix = ".state"
	mostPending = 256 << 20 // bytes that wait to be written; more are not kept
	mostFile    = 1 << 32
	diskHead    = len(diskMagic) + 32 // before what a file holds
	dateEvery   = time.Minute         // how far the folder's dates are behind, until Close
)

// OpenDisk opens a folder, which is made where it is missing, for one process at a time:
// an [*atomicfile.BusyError] says that another has it.
func OpenDisk(dir string, most int64) (*Disk, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := atomicfile.TakeLock(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	d := &Disk{dir: dir, most: most, lock: lock, files: map[string]*file{}, by: map[string][]*file{}, jobs: make(chan *file, 1<<16), done: make(chan struct{})}
	for _, e := range entries {
		info, err := e.Info()
		switch name := e.Name(); {
		case err != nil || !info.Mode().IsRegular():
		case strings.Contains(name, ".tmp-"): // of a process that was killed
			os.Remove(filepath.Join(dir, name))
		case strings.HasSuffix(name, pageSuffix), strings.HasSuffix(name, stateSuffix):
			at := info.ModTime().UnixNano()
			d.add(&file{name: name, size: info.Size(), used: at, date: at})
		}
	}
	d.shrink()
	go d.write()
	return d, nil
}

// Close waits for what is being written, and gives the folder back.
func (d *Disk) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	close(d.jobs)
	d.mu.Unlock()
	<-d.done
	d.mu.Lock()
	for _, f := range d.files {
		d.date(f, 0)
	}
	d.mu.Unlock()
	return d.lock.Close()
}

// Stats returns what happened so far.
func (d *Disk) Stats() DiskStats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	s.Files, s.Bytes = int64(len(d.files)), d.bytes
	return s
}

// add lists a file. The lock is held, or nobody else knows the disk.
func (d *Disk) add(f *file) {
	d.files[f.name] = f
	d.bytes += f.size
	if key, _, ok := strings.Cut(f.name, "-"); ok {
		d.by[key] = append(d.by[key], f)
	}
}

// remove takes a file off the list, and off the disk.
func (d *Disk) remove(f *file) {
	if d.files[f.name] != f {
		return
	}
	delete(d.files, f.name)
	d.bytes -= f.size
	if key, _, ok := strings.Cut(f.name, "-"); ok {
		if d.by[key] = slices.DeleteFunc(d.by[key], func(o *file) bool { return o == f }); len(d.by[key]) == 0 {
			delete(d.by, key)
		}
	}
	os.Remove(filepath.Join(d.dir, f.name))
}

// shrink removes what was not used for longest until there is room.
func (d *Disk) shrink() {
	if d.bytes <= d.most {
		return
	}
	var all []*file
	for _, f := range d.files {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *file) int {
		return cmp.Or(cmp.Compare(a.used, b.used), strings.Compare(a.name, b.name))
	})
	// A tenth more than has to go, so that this is rare.
	for _, f := range all {
		if d.bytes <= d.most-d.most/10 {
			break
		}
		d.stats.Dropped++
		d.remove(f)
	}
}

// keep has a file written in the background, where its content may wait, and reports
// whether it is there or about to be. The content is asked for where it is not there.
func (d *Disk) keep(name string, content func() []byte) bool {
	d.mu.Lock()
	there := d.files[name] != nil
	full := d.closed || d.pending >= mostPending || len(d.jobs) == cap(d.jobs)
	d.mu.Unlock()
	if there || full {
		return there
	}
	return d.put(name, content())
}

func (d *Disk) put(name string, body []byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.files[name] != nil {
		return true
	}
	n := int64(diskHead + len(body))
	if d.closed || n > d.most || d.pending+n > mostPending || len(d.jobs) == cap(d.jobs) {
		return false
	}
	f := &file{name: name, size: n, used: time.Now().UnixNano(), body: body}
	d.add(f)
	d.pending += n
	d.jobs <- f
	return true
}

// write writes what waits.
func (d *Disk) write() {
	defer close(d.done)
	for f := range d.jobs {
		err := d.writeOne(f.name, f.body)
		d.mu.Lock()
		d.pending -= f.size
		f.body = nil
		switch {
		case err != nil:
			d.stats.Failed++
			d.remove(f)
		case d.files[f.name] == f:
			d.stats.Written++
			d.date(f, 0)
		default: // dropped meanwhile
			os.Remove(filepath.Join(d.dir, f.name))
		}
		d.shrink()
		d.mu.Unlock()
	}
}

// date writes down when a file was used, for who opens the folder next, where what is
// written is further behind than late.
func (d *Disk) date(f *file, late time.Duration) {
	if f.body == nil && f.used-f.date > int64(late) {
		at := time.Unix(0, f.used)
		os.Chtimes(filepath.Join(d.dir, f.name), at, at)
		f.date = f.used
	}
}

// sumOf is the hash that a file holds, of its name and what it holds beside.
func sumOf(name string, body []byte) []byte {
	h := blake3.New()
	h.Write([]byte(name))
	h.Write(body)
	return h.Sum(nil)
}

func (d *Disk) writeOne(name string, body []byte) error {
	f, err := atomicfile.Scratch(filepath.Join(d.dir, name)).Create(int64(diskHead + len(body)))
	if err != nil {
		return err
	}
	defer f.Abort()
	for _, p := range [][]byte{[]byte(diskMagic), sumOf(name, body), body} {
		if _, err := f.Write(p); err != nil {
			return err
		}
	}
	return f.Commit()
}

// get reads a file that holds its hash, nil where there is none, and removes it where it
// does not.
func (d *Disk) get(name string) []byte {
	d.mu.Lock()
	f, body := d.files[name], []byte(nil)
	if f != nil {
		body = f.body
	}
	d.mu.Unlock()
	if f == nil || body != nil {
		return body
	}
	p, err := formats.ReadFile(filepath.Join(d.dir, name), mostFile, "a part of a prompt")
	whole := err == nil && len(p) >= diskHead && string(p[:len(diskMagic)]) == diskMagic && bytes.Equal(sumOf(name, p[diskHead:]), p[len(diskMagic):diskHead])
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case whole:
		d.stats.Read++
		return p[diskHead:]
	case d.files[name] == f: // and was not dropped meanwhile
		d.stats.Damaged++
		d.remove(f)
	}
	return nil
}

// touch notes that files were used, of which the first is to go last.
func (d *Disk) touch(names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for i, name := range names {
		if f := d.files[name]; f != nil {
			f.used = now.Add(time.Duration(len(names)-i) * time.Microsecond).UnixNano()
			d.date(f, dateEvery)
		}
	}
}

// A chain is the hashes of a prompt's whole pages: of the model and all tokens up to
// there.
type chain struct {
	page   int
	keys   []string // of as many pages, hexadecimal
	tokens []int32
}

// chainOf returns the hashes of tokens for what identifies the model and its
// arithmetic.
func chainOf(identity []byte, tokens []int32, page int) *chain {
	c := &chain{page: page, tokens: tokens}
	sum := blake3.Sum256(identity)
	c.keys = append(c.keys, hex.EncodeToString(sum[:])) // before any token
	for at := 0; at+page <= len(tokens); at += page {
		sum = blake3.Sum256(appendTokens(sum[:], tokens[at:at+page]))
		c.keys = append(c.keys, hex.EncodeToString(sum[:]))
	}
	return c
}

func appendTokens(dst []byte, tokens []int32) []byte {
	dst = slices.Clip(dst)
	for _, id := range tokens {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(id))
	}
	return dst
}

// pageName is the file of page i.
func (c *chain) pageName(i int) string { return c.keys[i+1] + pageSuffix }

// stateName is the file of the state behind the first n tokens.
func (c *chain) stateName(n int) string {
	key := c.keys[n/c.page]
	sum := blake3.Sum256(appendTokens([]byte(key), c.tokens[n/c.page*c.page:n]))
	return fmt.Sprintf("%s-%d-%x%s", key, n, sum[:16], stateSuffix)
}

// pages returns how many of the first pages are there.
func (d *Disk) pages(c *chain) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for n+1 < len(c.keys) && d.files[c.pageName(n)] != nil {
		n++
	}
	return n
}

// state returns the longest state of the prompt that is there with its whole pages, at
// most so many tokens; 0: none.
func (d *Disk) state(c *chain, most int) int {
	d.mu.Lock()
	var found []int
	for i := range c.keys {
		for _, f := range d.by[c.keys[i]] {
			var n int
			if _, err := fmt.Sscanf(f.name[len(c.keys[i]):], "-%d-", &n); err == nil && n/c.page == i && n <= min(most, len(c.tokens)) && c.stateName(n) == f.name {
				found = append(found, n)
			}
		}
	}
	d.mu.Unlock()
	whole := d.pages(c)
	slices.Sort(found)
	for _, n := range slices.Backward(found) {
		if n/c.page <= whole {
			return n
		}
	}
	return 0
}
