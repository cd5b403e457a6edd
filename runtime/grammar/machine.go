package grammar

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// A machine runs a grammar: it makes the states of all matchers, each once, and
// remembers where a byte leads. It is safe for concurrent use.
//
// A configuration is a set of pairs: a state of a rule, and where the rule returns to,
// which is again a set of pairs. Rules that are entered at the same byte share what they
// return to, so that the sets of an ambiguous grammar grow with the text and not
// exponentially, as in Earley's algorithm. Where a byte leads is computed when it is
// asked for and kept.
type machine struct {
	g      *Grammar
	bottom *returns // of the whole
	mu     sync.Mutex
	all    map[string]*config
	sets   map[string]*returns
	ids    uint32
	bytes  int64
	limit  int64
}

// A place is a state of a rule, and where the rule returns to. A state of -1 is the end
// of the whole.
type place struct {
	state int32
	then  *returns
}

// A returns is what follows the end of a rule: places, sorted.
type returns struct {
	id     uint32
	places []place
	after  atomic.Pointer[config] // what they come to
}

// A config is the state of a matcher: places that read a byte, and whether the text may
// end here.
type config struct {
	places []place
	end    bool
	lost   bool // too many places
	cost   int  // places that were looked at to make it
	next   []atomic.Pointer[config]
	loops  atomic.Pointer[[4]uint64] // bytes that lead back here
	jump   atomic.Int32              // 0: unknown, 1: several bytes or none, 2+b: b alone
}

// maxPlaces bounds the places of a configuration.
const maxPlaces = 4096

// ErrAmbiguous says that a text can be read in too many ways at once.
var ErrAmbiguous = errors.New("the grammar is too ambiguous: a text can be read in too many ways at once")

// dead is where no legal text goes.
var dead = &config{}

func newMachine(g *Grammar, limit int64) *machine {
	m := &machine{g: g, limit: limit}
	m.bottom = &returns{places: []place{{state: -1}}}
	m.clear()
	return m
}

// clear forgets what is kept. Configurations that matchers hold stay what they are.
func (m *machine) clear() {
	for _, c := range m.all {
		for i := range c.next {
			c.next[i].Store(nil)
		}
	}
	for _, r := range m.sets {
		r.after.Store(nil)
	}
	m.all, m.sets, m.bytes = map[string]*config{}, map[string]*returns{}, 0
}

// start returns the configuration in front of a text.
func (m *machine) start() *config {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.g.starts[0]
	return m.close([]place{{s, m.bottom}})
}

// alone returns the configuration of a state by itself, whose rule returns to nowhere:
// its end is that of the rule. What it enters without reading is not in it.
func (m *machine) alone(state int32) *config {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.intern([]place{{state, m.bottom}}, false, 1)
}

// follow returns the configuration behind the end of a rule.
func (m *machine) follow(r *returns) *config {
	if c := r.after.Load(); c != nil {
		return c
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.close(slices.Clone(r.places))
	r.after.Store(c)
	return c
}

// step returns the configuration behind a byte, dead where there is none.
func (m *machine) step(c *config, b byte) *config {
	k := m.g.classes[b]
	if c == dead {
		return dead
	}
	if n := c.next[k].Load(); n != nil {
		return n
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bytes > m.limit {
		m.clear()
	}
	var kernel []place
	for _, p := range c.places {
		if t := m.g.states[p.state].next(b); t >= 0 {
			kernel = append(kernel, place{t, p.then})
		}
	}
	n := dead
	if len(kernel) > 0 {
		n = m.close(kernel)
	}
	c.next[k].Store(n)
	return n
}

// close adds to places those that are had without reading: behind the ends of rules,
// and in rules that are called.
func (m *machine) close(work []place) *config {
	seen, ended := map[place]bool{}, map[*returns]bool{} // ended: whose rules end here
	var out []place
	end, cost := false, 0
	entered := map[int32][]place{} // rules, to where they return
	enter := func(p place, calls []call) {
		for _, c := range calls {
			if m.g.final[c.to] { // a rule that ends with a call returns for its caller
				entered[c.rule] = append(entered[c.rule], p.then.places...)
				cost += len(p.then.places)
			} else {
				entered[c.rule] = append(entered[c.rule], place{c.to, p.then})
			}
		}
	}
	for len(work) > 0 {
		p := work[len(work)-1]
		work = work[:len(work)-1]
		if p.state < 0 {
			end = true
			continue
		}
		if seen[p] {
			continue
		}
		if seen[p] = true; len(seen) > maxPlaces {
			return &config{lost: true, cost: maxPlaces, next: make([]atomic.Pointer[config], len(m.g.samples))}
		}
		s := &m.g.states[p.state]
		if len(s.edges) > 0 {
			out = append(out, p)
		}
		if s.accept && !ended[p.then] {
			ended[p.then] = true
			work = append(work, p.then.places...)
			cost += len(p.then.places)
		}
		enter(p, s.calls)
	}
	// Callers first: where a rule returns to is then known whole. Rules that end at once
	// are passed by edges of their callers, so such ends count for nothing here.
	for len(entered) > 0 {
		first := int32(-1)
		for r := range entered {
			if first < 0 || m.g.order[r] < m.g.order[first] {
				first = r
			}
		}
		p := place{m.g.starts[first], m.set(entered[first])}
		delete(entered, first)
		s := &m.g.states[p.state]
		if len(s.edges) > 0 {
			out = append(out, p)
		}
		enter(p, s.calls)
	}
	if len(out) == 0 && !end {
		return dead
	}
	return m.intern(out, end, cost+len(seen))
}

func comparePlaces(a, b place) int {
	if c := cmp.Compare(a.state, b.state); c != 0 || a.then == b.then {
		return c
	}
	if a.then == nil || b.then == nil {
		return cmp.Compare(a.state, b.state)
	}
	return cmp.Compare(a.then.id, b.then.id)
}

// placesKey sorts places, leaves doubles out and returns what names them.
func placesKey(p []place, end bool) ([]place, []byte) {
	slices.SortFunc(p, comparePlaces)
	p = slices.Compact(p)
	key := make([]byte, 0, 8*len(p)+1)
	for _, x := range p {
		key = binary.LittleEndian.AppendUint32(key, uint32(x.state))
		id := uint32(0)
		if x.then != nil {
			id = x.then.id
		}
		key = binary.LittleEndian.AppendUint32(key, id)
	}
	if end {
		key = append(key, 1)
	}
	return p, key
}

// set returns the one set of places to return to.
func (m *machine) set(p []place) *returns {
	p, key := placesKey(p, false)
	if r, ok := m.sets[string(key)]; ok {
		return r
	}
	if len(p) == 1 && p[0].state < 0 {
		return m.bottom
	}
	m.ids++
	r := &returns{id: m.ids, places: p}
	m.sets[string(key)] = r
	m.bytes += int64(64 + 4*len(key))
	return r
}

// intern returns the one configuration of places.
func (m *machine) intern(p []place, end bool, cost int) *config {
	p, key := placesKey(p, end)
	if c, ok := m.all[string(key)]; ok {
		return c
	}
	c := &config{places: p, end: end, cost: cost, next: make([]atomic.Pointer[config], len(m.g.samples))}
	m.all[string(key)] = c
	m.bytes += int64(128 + 4*len(key) + 8*len(c.next))
	return c
}

// loopBytes returns the bytes that lead from a configuration back to it.
func (m *machine) loopBytes(c *config) *[4]uint64 {
	if l := c.loops.Load(); l != nil {
		return l
	}
	l := new([4]uint64)
	loops := make([]bool, len(m.g.samples))
	for k, b := range m.g.samples {
		loops[k] = m.step(c, b) == c
	}
	for b := range 256 {
		if loops[m.g.classes[b]] {
			l[b>>6] |= 1 << (b & 63)
		}
	}
	c.loops.Store(l)
	return l
}

// only returns the byte that alone may follow, if there is one and the text may not end.
func (m *machine) only(c *config) (byte, bool) {
	v := c.jump.Load()
	if v == 0 {
		v = 1
		if !c.end && c != dead {
			var seen []int
			for b := 0; b < 256 && len(seen) < 2; b++ {
				if m.step(c, byte(b)) != dead {
					seen = append(seen, b)
				}
			}
			if len(seen) == 1 {
				v = int32(2 + seen[0])
			}
		}
		if c != dead {
			c.jump.Store(v)
		}
	}
	return byte(v - 2), v >= 2
}
