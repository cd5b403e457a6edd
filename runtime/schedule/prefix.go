package schedule

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/nstf/nstf/runtime/cache"
	"github.com/nstf/nstf/runtime/exec"
)

// kept is what is kept of prompts: sequences as they were behind them. Sequences
// share their pages with it until they part. An entry is found by the hashes of its
// tokens, page by page, each over all tokens up to there; what a hash finds is
// compared token by token.
type kept struct {
	ex   *exec.Executor
	disk *Disk // nil: none
	id   string
	read int64 // tokens that came from the disk
	sums int64 // tokens that were hashed for the disk
	lost int64 // entries that were dropped for want of room
	page int
	most int
	seed maphash.Seed
	by   map[uint64][]*entry
	all  []*entry // the one that was used last comes last
}

// A prefix is a prompt by the hashes of its whole pages.
type prefix struct {
	tokens []int32
	hashes []uint64
	chain  *chain // nil: there is no disk
}

// prefix returns a prompt with its hashes, for who begins with it and keeps it.
func (k *kept) prefix(prompt []int32) *prefix {
	p := &prefix{tokens: prompt}
	if k.most > 0 {
		p.hashes = k.hashes(prompt)
		if k.disk != nil {
			p.chain = k.chain(prompt)
		}
	}
	return p
}

// An entry is one prompt.
type entry struct {
	snapshot *exec.Snapshot
	hashes   []uint64 // of its whole pages
}

func newKept(ex *exec.Executor, page int, o *Options) kept {
	k := kept{ex: ex, page: page, most: max(o.Kept, 0), seed: maphash.MakeSeed(), by: map[uint64][]*entry{}}
	if o.Disk != nil && ex.Storable() {
		k.disk, k.id = o.Disk, o.Identity+"\n"+ex.Arithmetic()
	}
	return k
}

// hashes returns those of the whole pages of a prompt. Keys are rotated by its length,
// where a rope asks for that.
func (k *kept) hashes(tokens []int32) []uint64 {
	var h maphash.Hash
	h.SetSeed(k.seed)
	for i := range k.ex.Graph().Ropes {
		maphash.WriteComparable(&h, k.ex.Graph().Ropes[i].Regime(int64(len(tokens))))
	}
	var out []uint64
	for at := 0; at+k.page <= len(tokens); at += k.page {
		for _, id := range tokens[at : at+k.page] {
			h.Write([]byte{byte(id), byte(id >> 8), byte(id >> 16), byte(id >> 24)})
		}
		out = append(out, h.Sum64())
	}
	return out
}

// begin makes an empty sequence begin with as many of a prompt's tokens as are kept, at
// most so many, and returns how many those are: a multiple of [exec.Executor.PromptUnit].
func (k *kept) begin(seq *exec.Sequence, p *prefix, most int) (int, error) {
	if k.most == 0 {
		return 0, nil
	}
	unit := k.ex.PromptUnit()
	most = most / unit * unit
	best, length := (*entry)(nil), 0
	for hashes := p.hashes; len(hashes) > 0 && best == nil; hashes = hashes[:len(hashes)-1] {
		for _, e := range k.by[hashes[len(hashes)-1]] {
			n := min(common(e.snapshot.Tokens(), p.tokens), most) / unit * unit
			if k.ex.Recurrent() && n < e.snapshot.Len() {
				continue
			}
			if n > length {
				best, length = e, n
			}
		}
	}
	if n := k.load(seq, p, most, length); n > 0 {
		return n, nil
	}
	if best == nil {
		return 0, nil
	}
	k.use(best)
	n, err := seq.Restore(best.snapshot, length)
	var full *cache.FullError
	if errors.As(err, &full) { // a place is taken later, by who computes everything
		return 0, nil
	}
	return n, err
}

// add keeps a sequence that holds the first n tokens of a prompt and nothing else.
// Where there is no memory for that, it is not kept.
func (k *kept) add(seq *exec.Sequence, p *prefix, n int) error {
	if k.most == 0 || n < k.page || seq.Len() != n {
		return nil
	}
	hashes := p.hashes[:n/k.page]
	for _, e := range k.by[hashes[len(hashes)-1]] {
		if slices.Equal(e.snapshot.Tokens(), p.tokens[:n]) {
			k.use(e)
			k.save(e, p.chain)
			return nil
		}
	}
	var snapshot *exec.Snapshot
	err := k.fitted(func() (err error) { snapshot, err = seq.Snapshot(); return err })
	var full *cache.FullError
	if errors.As(err, &full) {
		return nil
	}
	if err != nil {
		return err
	}
	e := &entry{snapshot, hashes}
	for _, h := range hashes {
		k.by[h] = append(k.by[h], e)
	}
	k.all = append(k.all, e)
	k.save(e, p.chain)
	if len(k.all) > k.most {
		k.dropOldest()
	}
	return nil
}

// chain returns the hashes by which the disk knows a prompt.
func (k *kept) chain(tokens []int32) *chain {
	k.sums += int64(len(tokens))
	id := k.id
	for i := range k.ex.Graph().Ropes {
		id += fmt.Sprintf("\n%v", k.ex.Graph().Ropes[i].Regime(int64(len(tokens))))
	}
	return chainOf([]byte(id), tokens, k.page)
}

// save has the disk keep what it lacks of an entry, the beginning of a chain: the whole
// pages, and of a recurrent model what is remembered behind all tokens, with the page that
// is not whole. Where there is no room for one of these, what follows it is of no use.
func (k *kept) save(e *entry, c *chain) {
	if c == nil {
		return
	}
	n := e.snapshot.Len()
	var names []string
	keep := func(name string, content func() []byte) bool {
		ok := k.disk.keep(name, content)
		if ok {
			names = append(names, name)
		}
		return ok
	}
	all := true
	for i := 0; i < n/k.page && all; i++ {
		all = keep(c.pageName(i), func() []byte { return e.snapshot.AppendPage(nil, i) })
	}
	if all && k.ex.Recurrent() {
		keep(c.stateName(n), func() []byte {
			body := e.snapshot.AppendRest(make([]byte, 8))
			binary.LittleEndian.PutUint64(body, uint64(len(body)-8))
			if n%k.page > 0 {
				body = e.snapshot.AppendPage(body, n/k.page)
			}
			return body
		})
	}
	k.disk.touch(names)
}

// load makes an empty sequence begin with what the disk has of a prompt, at most so many
// tokens, where that is more than another source has, and returns how many those are.
// What cannot be read is as if it were not there.
func (k *kept) load(seq *exec.Sequence, p *prefix, most, other int) int {
	c := p.chain
	if c == nil {
		return 0
	}
	for range 100 { // files that were damaged
		n := min(k.disk.pages(c)*k.page, most)
		if k.ex.Recurrent() {
			n = k.disk.state(c, most)
		}
		if n <= other || n%k.ex.PromptUnit() != 0 {
			return 0
		}
		pages, rest, whole := k.fetch(c, n)
		if !whole {
			continue // one is gone
		}
		if k.fitted(func() error { return seq.Load(p.tokens[:n], int64(len(p.tokens)), pages, rest) }) != nil {
			return 0
		}
		k.read += int64(n)
		return n
	}
	return 0
}

// fetch reads what the disk has of n tokens, and reports whether it has all.
func (k *kept) fetch(c *chain, n int) (pages [][]byte, rest []byte, whole bool) {
	var names []string
	recurrent := k.ex.Recurrent()
	for at := 0; at < n && (!recurrent || at+k.page <= n); at += k.page {
		name := c.pageName(at / k.page)
		names = append(names, name)
		p := k.disk.get(name)
		if p == nil {
			return nil, nil, false
		}
		pages = append(pages, p)
	}
	if recurrent {
		name := c.stateName(n)
		names = append(names, name)
		p := k.disk.get(name)
		if len(p) < 8 || binary.LittleEndian.Uint64(p) > uint64(len(p)-8) {
			return nil, nil, false
		}
		size := binary.LittleEndian.Uint64(p)
		if rest = p[8 : 8+size]; n%k.page > 0 {
			pages = append(pages, p[8+size:])
		}
	}
	k.disk.touch(names)
	return pages, rest, true
}

// bound returns the next position behind so many of a prompt at which a recurrent
// sequence is kept: now and then, and shortly before the end, for the next turn of a
// conversation begins with this prompt but for what asks for an answer. Only multiples of
// [exec.Executor.PromptUnit] are of use.
func (k *kept) bound(at, prompt int) int {
	const every, tail = 1024, 17 // every: of units too
	unit := k.ex.PromptUnit()
	if end := (prompt - tail) / unit * unit; at < end {
		return min((at/every+1)*every, end)
	}
	return prompt
}

// use puts an entry last.
func (k *kept) use(e *entry) {
	at := slices.Index(k.all, e)
	k.all = append(slices.Delete(k.all, at, at+1), e)
}

// dropOldest gives back what only the entry holds that was not used for longest, and
// reports whether there was one.
func (k *kept) dropOldest() bool {
	if len(k.all) == 0 {
		return false
	}
	e := k.all[0]
	k.all = slices.Delete(k.all, 0, 1)
	for _, h := range e.hashes {
		list := k.by[h]
		if list = slices.DeleteFunc(list, func(o *entry) bool { return o == e }); len(list) == 0 {
			delete(k.by, h)
		} else {
			k.by[h] = list
		}
	}
	e.snapshot.Release()
	return true
}

// fitted calls do until there is room for it, or nothing is kept any more.
func (k *kept) fitted(do func() error) error {
	err := do()
	for full(err) && k.dropOldest() {
		k.lost++
		err = do()
	}
	return err
}

// drop gives everything back.
func (k *kept) drop() {
	for k.dropOldest() {
	}
}

// common returns how many tokens two texts share at their beginning.
func common(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
