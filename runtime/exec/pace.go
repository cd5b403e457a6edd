package exec

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
	"github.com/nstf/nstf/formats/stats"
	cpukernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/place"
)

// learned is what runs before took on this machine, and what is asked of it now.
type learned struct {
	machine place.Machine
	paces   *place.Paces
	work    place.Work // of a model; of which device, it does not say
	cost    *place.Cost
	model   string // that uses are kept of; "": it has no mixtures
	uses    *place.Uses
}

// use returns the share of choices that each of a block's experts got in runs before and, as many as a prior counts for,
// in the text that the package was calibrated on; nil where neither is known.
func (n *learned) use(block int, prior []int64, experts int) []float64 {
	uses := &place.Uses{}
	if n != nil && n.uses != nil {
		uses = n.uses
	}
	return uses.Shares(block, prior, experts)
}

// findUses reads what a model's package says of its experts, for blocks to be laid out by.
func (o *Options) findUses(m *model.Model) (err error) {
	if i := slices.IndexFunc(m.Files, func(f model.File) bool { return f.Name == nstf.ExpertsFile }); i >= 0 {
		o.uses, err = stats.ParseUses(m.Path+": "+nstf.ExpertsFile, m.Files[i].Data)
	}
	return err
}

// routers tells models apart by what their routers weigh, "" for one without.
func routers(g *graph.Graph, tensor func(string) formats.Tensor) string {
	h := sha256.New()
	some := false
	for i := range g.Blocks {
		m := g.Blocks[i].MoE
		if m == nil {
			continue
		}
		t := tensor(m.Router.Weight)
		fmt.Fprintln(h, i, m.Experts, m.TopK, t.Scheme, t.Shape)
		for _, p := range t.Parts {
			if some { // of the first, and of others its size
				continue
			}
			b := make([]byte, min(p.Data.Len(), 1<<20))
			if _, err := p.Data.Unchecked().ReadAt(b, 0); err != nil && err != io.EOF {
				return ""
			}
			h.Write(b)
		}
		some = true
	}
	if !some {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// remember loads what runs before took, where a folder keeps that.
func (s *sites) remember(g *graph.Graph, tensor func(string) formats.Tensor, o *Options) (err error) {
	if o.Device.Measured == "" {
		return nil
	}
	n := &learned{machine: place.Discover(cpukernels.Best())}
	if n.cost, err = o.cost(g, tensor); err != nil {
		return err
	}
	n.paces, _ = place.LoadPaces(o.Device.Measured, &n.machine) // a damaged file is made anew
	n.work = place.Work{Weights: mostly(g, tensor), Exact: o.Exact}
	for i := range g.Blocks {
		weights, _ := n.cost.Block(i, usualDepth)
		n.work.Block += weights / float64(len(g.Blocks))
	}
	if n.model = routers(g, tensor); n.model != "" && len(s.opened) > 1 {
		n.uses, _ = place.LoadUses(o.Device.Measured, n.model)
	}
	s.learned = n
	return nil
}

// mostly returns the scheme, or the form, that most bytes of a graph's blocks are in.
func mostly(g *graph.Graph, tensor func(string) formats.Tensor) (name string) {
	bytes := map[string]int64{}
	for i := range g.Blocks {
		for _, p := range g.Blocks[i].Parts(g.Width) {
			if p.Linear == nil {
				continue
			}
			t := tensor(p.Linear.Weight)
			key := t.Scheme
			if t.Form != "" {
				key = t.Form
			}
			if bytes[key] += t.Size(); bytes[key] > bytes[name] || bytes[key] == bytes[name] && key < name {
				name = key
			}
		}
	}
	return name
}

// works returns the work of a site.
func (n *learned) works(site *place.Site, split place.Sharing) place.Work {
	w := n.work
	w.Device, w.Name, w.Split = site.Device, site.Name, split
	return w
}

// paced returns the sites as fast as runs before were.
func (s *sites) paced(split place.Sharing) []place.Site {
	if s.learned == nil {
		return s.all
	}
	all, now := slices.Clone(s.all), time.Now()
	for i := range all {
		if factor, runs := s.learned.paces.Of(s.learned.works(&all[i], split), now); runs > 0 {
			all[i] = all[i].Paced(factor, runs)
		}
	}
	return all
}

// joined gives an executor its devices and its layout.
func (s *sites) joined(e *Executor, l *place.Layout, o *Options) *Executor {
	e.sites, e.layout = s, l
	e.follow(o.Policy)
	if s.learned != nil && l.Seconds > 0 {
		e.pacer = &pacer{s: s, l: l, dir: o.Device.Measured}
	}
	return e
}

// timedExperts adds up how long the processor computes experts, and how often rows choose each.
type timedExperts struct {
	device.Experts
	spent  time.Duration
	chosen map[int]map[int32]int64 // by block
}

// Sum implements device.Experts.
func (x *timedExperts) Sum(block int, r *device.Routed) error {
	start := time.Now()
	err := x.Experts.Sum(block, r)
	x.spent += time.Since(start)
	if x.chosen == nil {
		x.chosen = map[int]map[int32]int64{}
	}
	if x.chosen[block] == nil {
		x.chosen[block] = map[int32]int64{}
	}
	for _, e := range r.Chosen {
		x.chosen[block][e]++
	}
	return err
}

// A pacer notes how long steps of one sequence take, from the beginning of one to that of the next: what who reads
// them waits for. The newest count.
type pacer struct {
	s   *sites
	l   *place.Layout
	dir string // that keeps what is learned

	last  *Sequence // of the step that was begun; nil: something else was
	at    int64     // its position
	began time.Time
	steps []step
}

// A step is one that another of the same sequence followed.
type step struct {
	seconds, experts float64 // experts: of them, the processor's for a GPU
	at               int64
}

const (
	mostSteps  = 512
	leastSteps = 24 // that something is learned from
)

// begin notes that a pass begins.
func (p *pacer) begin(b *device.Batch, seqs []*Sequence) {
	if p == nil {
		return
	}
	now := time.Now()
	one := len(seqs) == 1 && !b.Prompt && b.Rows() == 1
	if one && p.last == seqs[0] && seqs[0].states[0].Len() == p.at+1 {
		n := step{seconds: now.Sub(p.began).Seconds(), at: p.at}
		if x := p.s.experts; x != nil {
			n.experts = x.spent.Seconds()
		}
		if p.steps = append(p.steps, n); len(p.steps) >= 2*mostSteps {
			p.steps = append(p.steps[:0], p.steps[mostSteps:]...)
		}
	}
	if p.last = nil; one {
		p.last, p.at, p.began = seqs[0], seqs[0].states[0].Len(), now
	}
	if x := p.s.experts; x != nil {
		x.spent = 0
	}
}

// median returns that of what steps have.
func median(steps []step, of func(step) float64) float64 {
	var all []float64
	for _, n := range steps {
		all = append(all, of(n))
	}
	return place.NewRate(all).Median
}

// learn holds what steps took to what was predicted, and keeps that for layouts to come. Where there were few, or
// where the folder takes nothing, nothing is learned.
func (p *pacer) learn() {
	if p != nil && (p.counted() != nil || len(p.steps) >= leastSteps) {
		place.Learning(p.dir, p.add)
	}
}

// counted returns the experts whose choices were counted, nil where none were.
func (p *pacer) counted() *timedExperts {
	if x := p.s.experts; x != nil && x.chosen != nil && p.s.learned.model != "" {
		return x
	}
	return nil
}

// add adds to what is kept, which no other process changes meanwhile.
func (p *pacer) add() {
	if x := p.counted(); x != nil {
		uses, _ := place.LoadUses(p.dir, p.s.learned.model)
		uses.Add(x.chosen)
		_ = uses.Save(p.dir)
		x.chosen = nil
	}
	if len(p.steps) < leastSteps {
		return
	}
	steps := p.steps[max(0, len(p.steps)-mostSteps):]
	p.steps = nil
	took, home := median(steps, func(n step) float64 { return n.seconds }), median(steps, func(n step) float64 { return n.experts })
	at := int64(median(steps, func(n step) float64 { return float64(n.at) }))
	// Another process may have learned since this one began.
	n, now := p.s.learned, time.Now().UTC().Truncate(time.Second)
	n.paces, _ = place.LoadPaces(p.dir, &n.machine)
	var parts []place.Part
	var processor place.Part
	for i := range p.l.Ranges {
		r := &p.l.Ranges[i]
		site := &p.s.all[slices.IndexFunc(p.s.all, func(x place.Site) bool { return x.Device == r.Device })]
		own := place.Part{Work: n.works(site, p.l.Split), Seconds: (r.Seconds - r.HostSeconds) / unpaced(r.Pace)}
		share := 1.0
		if p.l.Split == place.Tensors {
			share = float64(len(p.l.Ranges))
		}
		for k := r.Lo; k < r.Hi; k++ { // attention at the depth that steps had
			_, usual := n.cost.Block(k, usualDepth)
			_, cache := n.cost.Block(k, at+1)
			own.Seconds += (cache - usual) / share / site.Speed.Read
		}
		parts = append(parts, own)
		if r.HostSeconds > 0 {
			host := &p.s.all[slices.IndexFunc(p.s.all, func(x place.Site) bool { return x.Device.Kind == place.CPU })]
			processor.Work = n.works(host, "")
			processor.Seconds += r.HostSeconds / unpaced(r.HostPace)
		}
	}
	switch {
	case p.l.Split == place.Tensors: // all at once: the slowest is what a token takes
		most := slices.MaxFunc(parts, func(a, b place.Part) int { return cmp.Compare(a.Seconds, b.Seconds) }).Seconds
		for _, x := range parts {
			n.paces.Learn([]place.Part{x}, took*x.Seconds/most, now)
		}
	case processor.Seconds > 0:
		n.paces.Learn([]place.Part{processor}, home, now)
		n.paces.Learn(parts, took-home, now)
	default:
		n.paces.Learn(parts, took, now)
	}
	_ = n.paces.Save(p.dir, &n.machine)
}

// unpaced is what a layout's seconds are divided by, 0 meaning that nothing was learned.
func unpaced(pace float64) float64 {
	if pace == 0 {
		return 1
	}
	return pace
}
