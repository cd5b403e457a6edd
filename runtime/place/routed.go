package place

import (
	"cmp"
	"slices"

	"github.com/nstf/nstf/formats"
)

// routed is what pieces of a site leave to the processor.
type routed struct {
	blocks  []int
	freed   int64         // bytes of the site
	memory  int64         // of the processor
	moved   float64       // bytes that a token reads there, not here
	home    float64       // seconds of the processor
	seconds float64       // by which the token gets longer
	pinned  map[int][]int // experts, by block, that lie on the site all the same
	here    float64       // bytes that a token reads of those
}

// pinSlack is what experts of a block take on a site beside their share, at most: alignment, a table.
const pinSlack = 16 << 10

// pin has some experts of a piece that is left lie on the site too.
func (r *routed) pin(s *splitter, site, piece int, experts []int) {
	x, v := s.Blocks[piece].Routed, &s.sites[site].Speed
	share := 0.0
	for _, e := range experts {
		share += x.use(e)
	}
	if r.pinned == nil {
		r.pinned = map[int][]int{}
	}
	r.pinned[x.Blocks[0]] = experts
	read := x.Read * min(share, 1)
	r.freed -= int64(len(experts))*x.each(site) + pinSlack
	home := s.home(x) * min(share, 1)
	r.here, r.moved, r.home = r.here+read, r.moved-read, r.home-home
	r.seconds -= home - read/v.Read
}

// home returns the seconds that the processor takes for a token's experts.
func (s *splitter) home(x *Routed) float64 {
	h := &s.sites[s.host]
	switch {
	case x.Home == 0:
		return x.Read / h.Speed.Read
	case h.Pace > 0:
		return x.Home * h.Pace
	}
	return x.Home
}

// use returns the share of choices that an expert gets.
func (x *Routed) use(e int) float64 {
	if x.Use == nil {
		return 1 / float64(x.Count)
	}
	return x.Use[e]
}

// each returns the bytes of one expert on a site.
func (x *Routed) each(site int) int64 { return (x.Freed[site] + int64(x.Count) - 1) / int64(x.Count) }

// pinAll pins experts that were chosen by hand.
func (r *routed) pinAll(s *splitter, site, lo, hi int, experts map[int][]int) error {
	pinned := 0
	for i := lo; i < hi; i++ {
		x := s.Blocks[i].Routed
		if x == nil || len(experts[x.Blocks[0]]) == 0 {
			continue
		}
		some := experts[x.Blocks[0]]
		if x.Count == 0 || some[len(some)-1] >= x.Count {
			return formats.Unsupportedf("", "ranges", "pinned_experts %v of block %d, which has %d that can lie on both devices", some, x.Blocks[0], x.Count)
		}
		r.pin(s, site, i, some)
		pinned++
	}
	if pinned < len(experts) {
		return formats.Errorf("", "ranges", "pinned_experts are of blocks that have no experts of their own")
	}
	return nil
}

// hottest leaves all experts of pieces lo to hi, and pins those that are used most for what they take, as far as the
// site has room.
func (s *splitter) hottest(site, lo, hi int) (r routed) {
	type candidate struct {
		piece, expert int
		worth         float64 // seconds for each byte
	}
	var all []candidate
	left := map[int]bool{}
	v := &s.sites[site].Speed
	for i := lo; i < hi; i++ {
		x := s.Blocks[i].Routed
		if x == nil || x.Freed[site] <= 0 {
			continue
		}
		r.leave(s, site, i)
		left[i] = true
		for e := range x.Count {
			if worth := x.use(e) * (s.home(x) - x.Read/v.Read) / float64(x.each(site)); worth > 0 {
				all = append(all, candidate{i, e, worth})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(b.worth, a.worth) })
	room := s.sites[site].Memory - s.memory(site, lo, hi) + r.freed - int64(len(left))*pinSlack
	some := map[int][]int{}
	for _, c := range all {
		if n := s.Blocks[c.piece].Routed.each(site); n <= room {
			room -= n
			some[c.piece] = append(some[c.piece], c.expert)
		}
	}
	r = routed{}
	for i := lo; i < hi; i++ { // a block that has room for all stays as a whole
		if left[i] && len(some[i]) < max(s.Blocks[i].Routed.Count, 1) {
			r.leave(s, site, i)
			if len(some[i]) > 0 {
				slices.Sort(some[i])
				r.pin(s, site, i, some[i])
			}
		}
	}
	return r
}

// pinnedPlan is the plan of cuts that were found, with experts pinned where that is faster and has room.
func (s *splitter) pinnedPlan(cuts [][2]int) func(site, lo, hi int) routed {
	const gain = 0.98 // of a token's time, for which blocks may be divided
	plain := s.plan
	chosen := map[int]routed{}
	s.plan = func(site, lo, hi int) routed {
		if r, ok := chosen[site]; ok {
			return r
		}
		return plain(site, lo, hi)
	}
	for site, c := range cuts {
		if c[0] == c[1] || !s.hosts(site) {
			continue
		}
		r := plain(site, c[0], c[1])
		if r.blocks == nil {
			continue
		}
		hot, rest := s.hottest(site, c[0], c[1]), s.seconds(site, c[0], c[1])
		if hot.pinned == nil || rest+hot.seconds > gain*(rest+r.seconds) {
			continue
		}
		if chosen[site] = hot; s.missing(cuts) > 0 {
			delete(chosen, site)
		}
	}
	return s.plan
}

// leaves returns by how many seconds a token gets longer where a piece leaves its experts.
func (s *splitter) leaves(site, piece int) float64 {
	x, v := s.Blocks[piece].Routed, &s.sites[site].Speed
	return s.home(x) - x.Read/v.Read + float64(len(x.Blocks))*(v.copies(x.Down)+v.copies(x.Up))
}

// leave adds a piece's experts to those that are left.
func (r *routed) leave(s *splitter, site, piece int) {
	x := s.Blocks[piece].Routed
	r.blocks = append(r.blocks, x.Blocks...)
	r.freed, r.memory, r.moved = r.freed+x.Freed[site], r.memory+x.Memory, r.moved+x.Read
	r.home += s.home(x)
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
