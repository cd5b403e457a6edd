package place

import (
	"cmp"
	"math"
	"slices"

	"github.com/nstf/nstf/formats"
)

// A Speed is what the time of a token on a device is predicted from.
type Speed struct {
	Read   float64 `json:"read_bytes_s"`             // bytes of weights and cache in a second
	Block  float64 `json:"block_s"`                  // seconds that a block takes beside: launches
	Copy   float64 `json:"copy_s"`                   // seconds of a copy of few bytes to or from the host, waited for
	Link   float64 `json:"link_bytes_s"`             // bytes that such a copy moves in a second
	Stream float64 `json:"stream_bytes_s,omitempty"` // bytes of the processor's memory that come to the device in a second; 0: nobody asked
}

// copies returns the seconds that so many bytes take between the device and the host; on
// the processor, which has no link, none.
func (s *Speed) copies(bytes int64) float64 {
	if s.Link == 0 {
		return 0
	}
	return s.Copy + float64(bytes)/s.Link
}

// A Site is a device that blocks may be laid on.
type Site struct {
	Device Request
	Name   string
	Memory int64 // bytes that may be taken
	Work   int64 // of them, what a pass takes wherever anything lies
	// Handed is bytes of the processor's memory that rows of a pass take where experts lie there:
	// of a GPU what they travel through, of the processor what it computes them in.
	Handed int64
	Speed  Speed
	// Pace is how many times as long as from single measurements the speed has been made, as so many
	// runs took: see Site.Paced.
	Pace float64
	Runs int
}

// A Piece is a part of a model that lies on one device as a whole: blocks Lo to Hi, or
// what stands before or behind all of them.
type Piece struct {
	Lo, Hi int
	Read   float64 // bytes that a token reads
	Memory []int64 // bytes that it takes on each site: weights, and what sequences remember
	// Routed is its routed experts, which may lie in the processor's memory while the rest is on
	// a GPU; nil: it has none.
	Routed *Routed
}

// Routed is the routed experts of a piece.
type Routed struct {
	Blocks []int   // that have some
	Read   float64 // bytes that a token reads of them
	Home   float64 // seconds that the processor took for that when it was timed; 0: what it reads such bytes in
	Memory int64   // bytes that they take in the processor's memory
	Freed  []int64 // bytes of each site that a piece without them takes less
	// Count is how many experts there are, of one block whose experts may lie on both devices; 0: these may not.
	// Use is the share of choices that each gets, nil: as much as any.
	Count int
	Use   []float64
	Down  int64 // bytes that a token's row, with its choice, takes to the processor in each block
	Up    int64 // bytes of what comes back
}

// Pieces are a model that is laid out.
type Pieces struct {
	Embed, Head Piece
	Blocks      []Piece // one at least, in order
	Tied        []int64 // on each site: bytes that the embedding and the head have in common
	Common      []int64 // that every range takes
	Row         int64   // bytes of a hidden state
}

// Split lays a model out on devices so that a token takes the least time: each device
// gets neighbouring blocks, in the order of the sites, or none. Where the processor is one of
// the sites, blocks of a GPU without room for all of them leave their routed experts to it. The
// search for cuts is exact; which experts those are is within the time of one block's of the
// best for each GPU, and the best where blocks are alike. Where nothing fits the error is a [RoomError].
//
//	time of a range = read / Read + blocks * Block + what is handed from and to the host
//	                + of experts that the processor has, the same with its Read, and a row down and up for each block
func Split(p *Pieces, sites []Site) (*Layout, error) {
	s := newSplitter(p, sites)
	cuts, least := s.fastest()
	if s.host >= 0 && least > 0 { // the processor's memory may do for whole blocks
		s.host = -1
		var missing int64
		if cuts, missing = s.fastest(); missing > 0 {
			return nil, &RoomError{min(least, missing), sites}
		}
	} else if least > 0 {
		return nil, &RoomError{least, sites}
	}
	return s.layout(cuts, s.pinnedPlan(cuts)), nil
}

// fastest returns the cuts whose token takes the least time, or that lack the fewest bytes,
// and how many.
func (s *splitter) fastest() (cuts [][2]int, missing int64) {
	seconds := s.table(func(site, lo, hi int) float64 {
		if s.lack(site, lo, hi) > 0 {
			return math.Inf(1)
		}
		return s.seconds(site, lo, hi) + s.plan(site, lo, hi).seconds
	})
	if cuts = s.search(seconds); cuts == nil {
		cuts = s.search(func(site, lo, hi int) float64 { return float64(s.lack(site, lo, hi)) })
		return cuts, s.missing(cuts)
	}
	if missing = s.missing(cuts); missing == 0 {
		return cuts, 0
	}
	// The experts have no room beside the processor's blocks: every range of those is tried.
	best := math.Inf(1)
	for a := range len(s.Blocks) + 1 {
		for b := a; b <= len(s.Blocks); b++ {
			if a == b && a > 0 { // none, as before
				continue
			}
			tried := s.search(func(site, lo, hi int) float64 {
				if site == s.host && (lo != a || hi != b) {
					return math.Inf(1)
				}
				return seconds(site, lo, hi)
			})
			if tried == nil {
				continue
			}
			t, n := 0.0, s.missing(tried)
			for site, c := range tried {
				if c[0] < c[1] {
					t += seconds(site, c[0], c[1])
				}
			}
			if n == 0 && t < best || n > 0 && n < missing {
				cuts, missing = tried, n
			}
			if n == 0 {
				best = min(best, t)
			}
		}
	}
	return cuts, missing
}

// table keeps what costs came to.
func (s *splitter) table(cost func(site, lo, hi int) float64) func(site, lo, hi int) float64 {
	n := len(s.Blocks) + 1
	kept := make([]float64, len(s.sites)*n*n)
	for i := range kept {
		kept[i] = -1
	}
	return func(site, lo, hi int) float64 {
		t := &kept[(site*n+lo)*n+hi]
		if *t < 0 {
			*t = cost(site, lo, hi)
		}
		return *t
	}
}

// Lay is the layout of ranges that were chosen by hand, in the order of their sites.
func Lay(p *Pieces, sites []Site, ranges []Range) (*Layout, error) {
	s := newSplitter(p, sites)
	cuts, last := make([][2]int, len(sites)), 0
	by := map[int]Range{}
	for site := range sites {
		cuts[site] = [2]int{last, last}
		i := slices.IndexFunc(ranges, func(r Range) bool { return r.Device == sites[site].Device })
		if i < 0 {
			continue
		}
		r := ranges[i]
		lo := slices.IndexFunc(p.Blocks, func(b Piece) bool { return b.Lo == r.Lo })
		hi := slices.IndexFunc(p.Blocks, func(b Piece) bool { return b.Hi == r.Hi })
		if lo < 0 || hi < lo {
			return nil, formats.Unsupportedf("", "graph.blocks", "a range of blocks %d to %d: blocks read keys and values of others, which lie on the same device", r.Lo, r.Hi)
		}
		cuts[site], last, by[site] = [2]int{lo, hi + 1}, hi+1, r
	}
	if last != len(p.Blocks) {
		return nil, formats.Errorf("", "ranges", "they are not of all %d blocks", p.Blocks[len(p.Blocks)-1].Hi)
	}
	var wrong error
	plan := func(site, lo, hi int) routed {
		r := s.chosen(site, lo, hi, by[site].HostExperts)
		if err := r.pinAll(s, site, lo, hi, by[site].Pinned); err != nil {
			wrong = err
		}
		return r
	}
	for site, c := range cuts {
		if want, got := by[site].HostExperts, plan(site, c[0], c[1]).blocks; !slices.Equal(want, got) {
			return nil, formats.Errorf("", "ranges", "host_experts are %v, of which %v have routed experts of their own to leave", want, got)
		}
	}
	if wrong != nil {
		return nil, wrong
	}
	s.plan, s.byHand = plan, by
	if missing := s.missing(cuts); missing > 0 {
		return nil, &RoomError{missing, sites}
	}
	return s.layout(cuts, plan), nil
}

// A Team is what sites have of a model whose tokens they compute together.
type Team struct {
	Memory    []int64     // bytes that a rank takes, all in all
	Read      [][]float64 // bytes that a rank reads for a token: of each block, and behind them of the head
	Exchanges int         // how often a token's numbers are added up, or put together
	Exchange  float64     // seconds of one
}

// Together is the layout of sites that compute each token together, each with a part of
// every block. Where parts differ all wait for the largest. Where a site has no room the error
// is a [RoomError].
//
//	time = most over sites of (sum over blocks of the largest part / Read + blocks * Block) + exchanges
func Together(p *Pieces, sites []Site, t *Team) (*Layout, error) {
	l := &Layout{Split: Tensors}
	blocks := p.Blocks[len(p.Blocks)-1].Hi
	missing, largest := int64(0), p.Embed.Read
	for i := range t.Read[0] {
		most := 0.0
		for _, r := range t.Read {
			most = max(most, r[i])
		}
		largest += most
	}
	for i, s := range sites {
		r := Range{Device: s.Device, Name: s.Name, Hi: blocks, Memory: t.Memory[i], Limit: s.Memory, Pace: s.Pace, Runs: s.Runs}
		if r.Hand = float64(t.Exchanges) * t.Exchange; s.Pace > 0 {
			r.Hand *= s.Pace
		}
		own := p.Embed.Read
		for _, n := range t.Read[i] {
			own += n
		}
		r.Hand += (largest - own) / s.Speed.Read // waiting
		r.Read, r.Seconds = int64(own), own/s.Speed.Read+float64(blocks)*s.Speed.Block+r.Hand
		missing += max(t.Memory[i]-s.Memory, 0)
		l.Ranges, l.Seconds = append(l.Ranges, r), max(l.Seconds, r.Seconds)
	}
	if missing > 0 {
		return nil, &RoomError{missing, sites}
	}
	return l, nil
}

// A splitter has the sums that ranges are measured by.
type splitter struct {
	*Pieces
	sites  []Site
	read   []float64 // of the pieces before
	bytes  [][]int64 // by site, of the pieces before
	host   int       // site that experts may be left to, below 0: none
	plan   func(site, lo, hi int) routed
	byHand map[int]Range // by site, nil: nothing was chosen so
	order  [][]int       // by site, the pieces that may leave experts, those first that cost least for what they free
}

func newSplitter(p *Pieces, sites []Site) *splitter {
	s := &splitter{Pieces: p, sites: sites, read: make([]float64, len(p.Blocks)+1), bytes: make([][]int64, len(sites))}
	s.host = slices.IndexFunc(sites, func(s Site) bool { return s.Device.Kind == CPU })
	s.plan = s.routed
	for i, b := range p.Blocks {
		s.read[i+1] = s.read[i] + b.Read
	}
	for k := range sites {
		s.bytes[k] = make([]int64, len(p.Blocks)+1)
		for i, b := range p.Blocks {
			s.bytes[k][i+1] = s.bytes[k][i] + b.Memory[k]
		}
	}
	if s.host < 0 {
		return s
	}
	s.order = make([][]int, len(sites))
	for k := range sites {
		for i := range p.Blocks {
			if x := p.Blocks[i].Routed; x != nil && x.Freed[k] > 0 && s.hosts(k) {
				s.order[k] = append(s.order[k], i)
			}
		}
		slices.SortStableFunc(s.order[k], func(a, b int) int {
			of := func(i int) float64 { return s.leaves(k, i) / float64(p.Blocks[i].Routed.Freed[k]) }
			return cmp.Compare(of(a), of(b))
		})
	}
	return s
}

// memory returns the bytes of pieces lo to hi on a site.
func (s *splitter) memory(site, lo, hi int) int64 {
	n := s.sites[site].Work + s.Common[site] + s.bytes[site][hi] - s.bytes[site][lo]
	if lo == 0 {
		n += s.Embed.Memory[site]
	}
	if hi == len(s.Blocks) {
		n += s.Head.Memory[site]
		if lo == 0 {
			n -= s.Tied[site]
		}
	}
	return n
}

// reads returns the bytes of a token.
func (s *splitter) reads(lo, hi int) float64 {
	n := s.read[hi] - s.read[lo]
	if lo == 0 {
		n += s.Embed.Read
	}
	if hi == len(s.Blocks) {
		n += s.Head.Read
	}
	return n
}

// seconds returns the time of a token.
func (s *splitter) seconds(site, lo, hi int) float64 {
	v := &s.sites[site].Speed
	return s.reads(lo, hi)/v.Read + float64(s.Blocks[hi-1].Hi-s.Blocks[lo].Lo)*v.Block + s.hand(site, lo, hi)
}

// hand returns the time of taking hidden states from the host and giving them back, or the
// token that is chosen: where one device has all, it goes on with that by itself.
func (s *splitter) hand(site, lo, hi int) (t float64) {
	v := &s.sites[site].Speed
	switch last := hi == len(s.Blocks); {
	case lo == 0 && last:
		return 0
	case lo > 0 && last:
		return v.copies(s.Row) + v.copies(4)
	case lo > 0:
		return 2 * v.copies(s.Row)
	}
	return v.copies(s.Row) + v.copies(4)
}

// search returns the pieces of each site, of which the sum of costs is the least; nil
// where that is infinite. It compares all ways to cut:
//
//	best[k][i] = min(best[k-1][i], min over j < i of best[k-1][j] + cost(k-1, j, i))
func (s *splitter) search(cost func(site, lo, hi int) float64) [][2]int {
	n := len(s.Blocks)
	best, from := make([]float64, n+1), make([][]int, len(s.sites))
	for i := 1; i <= n; i++ {
		best[i] = math.Inf(1)
	}
	for k := range s.sites {
		next := slices.Clone(best)
		from[k] = make([]int, n+1)
		for i := range from[k] {
			from[k][i] = i
			for j := range i {
				if math.IsInf(best[j], 1) {
					continue
				}
				if t := best[j] + cost(k, j, i); t < next[i] {
					next[i], from[k][i] = t, j
				}
			}
		}
		best = next
	}
	if math.IsInf(best[n], 1) {
		return nil
	}
	cuts := make([][2]int, len(s.sites))
	for k, i := len(s.sites)-1, n; k >= 0; k-- {
		cuts[k] = [2]int{from[k][i], i}
		i = from[k][i]
	}
	return cuts
}

// lack returns the bytes that a range lacks on its site.
func (s *splitter) lack(site, lo, hi int) int64 {
	return max(s.memory(site, lo, hi)-s.plan(site, lo, hi).freed-s.sites[site].Memory, 0)
}

// missing returns the bytes that all ranges lack, the experts in the processor's memory among
// them.
func (s *splitter) missing(cuts [][2]int) (n int64) {
	var home, free int64
	for site, c := range cuts {
		if site == s.host {
			free = s.sites[site].Memory
		}
		if c[0] == c[1] {
			continue
		}
		n += s.lack(site, c[0], c[1])
		if left := s.plan(site, c[0], c[1]).memory; left > 0 {
			home += left + s.sites[site].Handed
		}
		if site == s.host {
			free -= s.memory(site, c[0], c[1])
		}
	}
	if home > 0 {
		n += max(home+s.sites[s.host].Handed-max(free, 0), 0)
	}
	return n
}

// layout describes the pieces of each site, and what they leave to the processor.
func (s *splitter) layout(cuts [][2]int, plan func(site, lo, hi int) routed) *Layout {
	l, homes := &Layout{}, false
	var out []Request
	for site, c := range cuts {
		d := &s.sites[site]
		if c[0] == c[1] {
			out = append(out, d.Device)
			continue
		}
		h := plan(site, c[0], c[1])
		r := Range{Device: d.Device, Name: d.Name, Lo: s.Blocks[c[0]].Lo, Hi: s.Blocks[c[1]-1].Hi, Memory: s.memory(site, c[0], c[1]) - h.freed, Limit: d.Memory,
			Read: int64(s.reads(c[0], c[1]) - h.moved), Seconds: s.seconds(site, c[0], c[1]) + h.seconds, Hand: s.hand(site, c[0], c[1]),
			HostExperts: h.blocks, Pinned: h.pinned, HostMemory: h.memory, HostRead: int64(h.moved), HostSeconds: h.home, Streams: s.byHand[site].Streams}
		if h.pinned != nil {
			r.PinnedUse = h.here / (h.here + h.moved)
		}
		r.Pace, r.Runs = d.Pace, d.Runs
		if h.memory > 0 {
			r.HostPace, r.HostRuns = s.sites[s.host].Pace, s.sites[s.host].Runs
			if r.HostMemory += d.Handed; !homes {
				r.HostMemory += s.sites[s.host].Handed
			}
			homes = true
		}
		l.Ranges = append(l.Ranges, r)
		l.Seconds += r.Seconds
	}
	needed := Devices(l.Ranges)
	for _, d := range out {
		if !slices.Contains(needed, d) {
			l.LeftOut = append(l.LeftOut, d)
		}
	}
	return l
}

// Fit reports whether every GPU of the sites has room for all pieces: none leaves experts to the processor then.
func (p *Pieces) Fit(sites []Site) bool {
	s := newSplitter(p, sites)
	for i := range sites {
		if sites[i].Device.GPU() && s.memory(i, 0, len(p.Blocks)) > sites[i].Memory {
			return false
		}
	}
	return true
}
