package grammar

import "math/bits"

// A tokenSet is a set of tokens: a list where there are few, else a bit for each.
type tokenSet struct {
	ids  []int32
	bits []uint32
}

// newTokenSet makes a set of a mask, which stays the caller's.
func newTokenSet(mask []uint32) *tokenSet {
	n := 0
	for _, w := range mask {
		n += bits.OnesCount32(w)
	}
	s := &tokenSet{}
	if n > len(mask)/2 {
		s.bits = append(s.bits, mask...)
		return s
	}
	s.ids = make([]int32, 0, n)
	for i, w := range mask {
		for ; w != 0; w &= w - 1 {
			s.ids = append(s.ids, int32(32*i+bits.TrailingZeros32(w)))
		}
	}
	return s
}

func (s *tokenSet) bytes() int64 { return int64(96 + 4*len(s.ids) + 4*len(s.bits)) }

// addTo sets the bits of a set in a mask.
func (s *tokenSet) addTo(mask []uint32) {
	if s.bits != nil {
		mask = mask[:len(s.bits)]
		for i, w := range s.bits {
			mask[i] |= w
		}
		return
	}
	setAll(mask, s.ids)
}

func setAll(mask []uint32, ids []int32) {
	for _, id := range ids {
		mask[id>>5] |= 1 << (id & 31)
	}
}

// A localMask is what is known of a state of a rule whatever called the rule: the short
// tokens that are legal within it, or that end with it; and the nodes at which the rule
// ends, behind which what is legal depends on who called.
type localMask struct {
	legal *tokenSet
	exits []int32 // nodes of the trie of short tokens, with others below them
}

func (l *localMask) bytes() int64 { return l.legal.bytes() + 64 + 4*int64(len(l.exits)) }

// A walk goes through tokens and configurations at once.
type walk struct {
	m     *machine
	t     *trie
	mask  []uint32
	exits *[]int32 // nil: ends of rules are not asked for
	work  *int     // places that may still be looked at
}

// maxMaskWork bounds the places that one mask looks at, of which most have none.
const maxMaskWork = 1 << 21

// under marks the tokens below a node that are legal behind a configuration.
func (w *walk) under(node int32, c *config) {
	t, classes := w.t, &w.m.g.classes
	for n := node + 1; n < t.end[node]; n = t.end[n] {
		b := t.bytes[n]
		to := c.next[classes[b]].Load()
		if to == nil {
			to = w.m.step(c, b)
			*w.work -= 1 + len(c.places) + to.cost
		}
		if *w.work < 0 {
			return
		}
		if to == dead || to.lost {
			continue
		}
		if t.end[n] == n+1 {
			setAll(w.mask, t.own(n))
			continue
		}
		if k := t.under[n]; k >= 0 && w.stays(to, k) {
			setAll(w.mask, t.below(n))
			continue
		}
		setAll(w.mask, t.own(n))
		if to.end && w.exits != nil {
			*w.exits = append(*w.exits, n)
		}
		if len(to.places) > 0 {
			w.under(n, to)
		}
	}
}

// stays reports whether all bytes of a set lead from a configuration back to it.
func (w *walk) stays(c *config, set int32) bool {
	if c.loops.Load() == nil {
		*w.work -= (len(c.places) + c.cost) * len(w.m.g.samples)
	}
	l, s := w.m.loopBytes(c), &w.t.sets[set]
	return s[0]&^l[0]|s[1]&^l[1]|s[2]&^l[2]|s[3]&^l[3] == 0
}

// localOf returns what is known of a state by itself.
func (v *Vocabulary) localOf(m *machine, s int32, work *int) *localMask {
	key := m.g.keys[s]
	if l, ok := v.local.get(key); ok {
		return l
	}
	mask, exits := make([]uint32, v.Words()), []int32{}
	w := &walk{m: m, t: &v.short, mask: mask, exits: &exits, work: work}
	w.under(0, m.alone(s))
	l := &localMask{legal: newTokenSet(mask), exits: append([]int32(nil), exits...)}
	if *work >= 0 {
		v.local.add(key, l, l.bytes())
	}
	return l
}

// maskOf returns the tokens that are legal behind a configuration, nil where finding them
// takes too much.
func (v *Vocabulary) maskOf(m *machine, c *config, scratch []uint32) *tokenSet {
	clear(scratch)
	work := maxMaskWork
	inner := &walk{m: m, t: &v.short, mask: scratch, work: &work}
	for _, p := range c.places {
		l := v.localOf(m, p.state, &work)
		l.legal.addTo(scratch)
		if p.then == m.bottom || len(l.exits) == 0 {
			continue
		}
		after := m.follow(p.then)
		if after.lost || len(after.places) == 0 {
			continue
		}
		for _, n := range l.exits {
			inner.under(n, after)
		}
	}
	if c != dead && len(c.next) > 0 {
		(&walk{m: m, t: &v.long, mask: scratch, work: &work}).under(0, c)
	}
	if c.end {
		setAll(scratch, v.ends)
	}
	if work < 0 {
		return nil
	}
	return newTokenSet(scratch)
}
