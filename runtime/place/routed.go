package place

import "slices"

// routed is what pieces of a site leave to the processor.
type routed struct {
	blocks  []int
	freed   int64   // bytes of the site
	memory  int64   // of the processor
	moved   float64 // bytes that a token reads there, not here
	home    float64 // seconds of the processor
	seconds float64 // by which the token gets longer
}

// leaves returns by how many seconds a token gets longer where a piece leaves its experts.
func (s *splitter) leaves(site, piece int) float64 {
	x, v := s.Blocks[piece].Routed, &s.sites[site].Speed
	return x.Read/s.sites[s.host].Speed.Read - x.Read/v.Read + float64(len(x.Blocks))*(v.copies(x.Down)+v.copies(x.Up))
}

// leave adds a piece's experts to those that are left.
func (r *routed) leave(s *splitter, site, piece int) {
	x := s.Blocks[piece].Routed
	r.blocks = append(r.blocks, x.Blocks...)
	r.freed, r.memory, r.moved = r.freed+x.Freed[site], r.memory+x.Memory, r.moved+x.Read
	r.home += x.Read / s.sites[s.host].Speed.Read
	r.seconds += s.leaves(site, piece)
}

// routed returns which experts of pieces lo to hi a site leaves to the processor so that the
// rest has room: those that cost least for what they free, until it has, and of those no more
// than are needed.
func (s *splitter) routed(site, lo, hi int) (r routed) {
	over := s.memory(site, lo, hi) - s.sites[site].Memory
	if over <= 0 || !s.hosts(site) {
		return r
	}
	var left []int
	for _, i := range s.order[site] {
		if i >= lo && i < hi && over > 0 {
			left, over = append(left, i), over-s.Blocks[i].Routed.Freed[site]
		}
	}
	for i := len(left) - 1; i >= 0; i-- {
		if f := s.Blocks[left[i]].Routed.Freed[site]; f <= -over {
			over, left = over+f, slices.Delete(left, i, i+1)
		}
	}
	slices.Sort(left)
	for _, i := range left {
		r.leave(s, site, i)
	}
	return r
}

// hosts reports whether a site may leave experts to the processor.
func (s *splitter) hosts(site int) bool { return s.host >= 0 && s.sites[site].Device.Kind != CPU }

// chosen is routed of blocks that were chosen by hand.
func (s *splitter) chosen(site, lo, hi int, blocks []int) (r routed) {
	if len(blocks) == 0 || !s.hosts(site) {
		return r
	}
	for i := lo; i < hi; i++ {
		if x := s.Blocks[i].Routed; x != nil && !slices.ContainsFunc(x.Blocks, func(b int) bool { return !slices.Contains(blocks, b) }) {
			r.leave(s, site, i)
		}
	}
	return r
}
