package grammar

// Fresh computes the mask at a matcher's place as if it had not been asked for before.
// What is known of states of rules stays known.
func (m *Matcher) Fresh(dst []uint32) bool {
	s := m.c.v.maskOf(m.c.m, m.now, dst)
	return s != nil
}

// Place names a matcher's place.
func (m *Matcher) Place() any { return m.now }
