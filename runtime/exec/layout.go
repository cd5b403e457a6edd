package exec

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	cpukernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/cpu"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu"
	"github.com/nstf/nstf/runtime/place"
)

// laid reports whether blocks are laid out: on several devices, by hand, or within limits. A whole model
// with keys and values in the host's memory is not.
func (d *Device) laid() bool {
	return len(d.Behind)+len(d.Ranges) > 0 || len(d.Memory) > 0 && d.KVHost == 0 || d.Split == place.Tensors
}

// GPU reports whether the model may run on a GPU, in whole or in part.
func (d *Device) GPU() bool { return slices.ContainsFunc(d.requests(), place.Request.GPU) }

// requests are the devices asked for, in order.
func (d *Device) requests() []place.Request {
	if len(d.Ranges) == 0 {
		return append([]place.Request{d.Request}, d.Behind...)
	}
	return place.Devices(d.Ranges)
}

// Layout returns how [New] would lay a model out, and the time that a token would take:
// devices are opened and measured, and nothing is placed. With place.Auto all GPUs that
// are worth it are tried, and the processor behind them.
func Layout(m *model.Model, o Options) (*place.Layout, error) {
	if err := m.Graph.Check(); err != nil {
		return nil, formats.In(m.Path, err)
	}
	if err := o.findUses(m); err != nil {
		return nil, err
	}
	s, err := openSites(&o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	l, err := s.layout(m.Graph, m.Tensor, &o)
	return l, formats.In(m.Path, err)
}

// newLaid opens a model on the devices that its blocks are laid out on.
func newLaid(g *graph.Graph, tensor func(string) formats.Tensor, o Options) (_ *Executor, err error) {
	s, err := openSites(&o)
	if err != nil {
		return nil, err
	}
	var stages []device.Stage
	defer func() {
		if err != nil {
			for _, stage := range stages {
				stage.Close()
			}
			s.close()
		}
	}()
	l, err := s.layout(g, tensor, &o)
	if err != nil {
		return nil, err
	}
	for _, line := range lines(l, len(g.Blocks)) {
		o.Device.notice("%s", line)
	}
	o.Context, o.Device.Rows = l.Context, l.Rows
	if l.Split == place.Tensors {
		team, err := s.team(g, tensor, &o)
		if err != nil {
			return nil, err
		}
		return s.joined(join(g, l.Context, team), l, &o), nil
	}
	if err := s.openExperts(g, l, tensor, &o); err != nil {
		return nil, err
	}
	for i, r := range l.Ranges {
		span := device.Span{Lo: r.Lo, Hi: r.Hi, Embed: i == 0, Head: i == len(l.Ranges)-1}
		stage, err := s.stage(g, span, tensor, o, &r)
		if err != nil {
			return nil, err
		}
		stages = append(stages, stage)
	}
	if err := s.leave(l); err != nil {
		return nil, err
	}
	e := join(g, l.Context, stages...)
	e.abreast = s.abreast(l)
	return s.joined(e, l, &o), nil
}

// abreast reports whether the ranges of a layout can be busy at once: each has a device of its own, and
// none waits for experts that the processor computes for all, or that come to it as a whole for each pass.
func (s *sites) abreast(l *place.Layout) bool {
	if s.experts != nil || len(l.Ranges) < 2 {
		return false
	}
	seen := map[place.Request]bool{}
	for _, r := range l.Ranges {
		if seen[r.Device] {
			return false
		}
		seen[r.Device] = true
	}
	return true
}

// lines say what lies where, and what is expected.
func lines(l *place.Layout, blocks int) (all []string) {
	for i, r := range l.Ranges {
		if l.Split == place.Tensors {
			all = append(all, fmt.Sprintf("device: %v, %s; part %d of %d of every block, %s of %s", r.Device, r.Name, i+1, len(l.Ranges), formats.Size(r.Memory), formats.Size(r.Limit)))
			continue
		}
		all = append(all, fmt.Sprintf("device: %v, %s; blocks %d to %d of %d, %s of %s, %.3g ms a token", r.Device, r.Name, r.Lo, r.Hi-1, blocks,
			formats.Size(r.Memory), formats.Size(r.Limit), 1e3*r.Seconds))
		if n := len(r.HostExperts); n > 0 {
			all = append(all, fmt.Sprintf("device: experts of %d of those blocks on the processor, %s of its memory, %.3g ms of a token", n, formats.Size(r.HostMemory), 1e3*r.HostSeconds))
			if pins := r.Pins(); pins != "" {
				all = append(all, "device: "+pins)
			}
			all = append(all, "device: "+r.PromptWay())
		}
	}
	last := fmt.Sprintf("device: %.3g tokens/s expected of one sequence, of a context of %d", 1/l.Seconds, l.Context)
	if learned := l.Learned(); learned != "" {
		all = append(all, "device: "+learned)
	}
	if l.Apart != "" {
		all = append(all, "device: shared by layers: "+l.Apart)
	}
	if idle := l.Idle(); idle != "" {
		last += fmt.Sprintf("; %s left out: a token is as fast, or faster, without", idle)
	}
	return append(all, last)
}

// sites are devices that are opened to be laid out on.
type sites struct {
	all     []place.Site
	opened  []*gpu.Device // of each, nil for the processor
	experts *timedExperts // that lie in the processor's memory; nil: none do
	// Why the devices do not compute tokens together; nil: they may, and adding up a row
	// takes so long.
	apart    error
	exchange float64
	learned  *learned
	prompted map[string]place.Experts // what the processor takes for experts with many rows, by their kind
	stepped  map[string]float64       // and for those of a token
}

// close closes the devices that are open.
func (s *sites) close() error {
	if s == nil {
		return nil
	}
	var errs []error
	if s.experts != nil {
		errs = append(errs, s.experts.Close())
		s.experts = nil
	}
	for i, d := range s.opened {
		if d != nil {
			errs = append(errs, d.Close())
			s.opened[i] = nil
		}
	}
	return errors.Join(errs...)
}

// leave closes the devices that have no blocks.
func (s *sites) leave(l *place.Layout) error {
	var errs []error
	for i, d := range s.opened {
		if d != nil && slices.Contains(l.LeftOut, s.all[i].Device) {
			errs = append(errs, d.Close())
			s.opened[i] = nil
		}
	}
	return errors.Join(errs...)
}

// openSites opens the devices asked for and measures them.
func openSites(o *Options) (*sites, error) {
	s := &sites{}
	err := s.open(o)
	if err != nil {
		s.close()
		return nil, err
	}
	for i := range s.all {
		at := &s.all[i]
		if most, ok := o.Device.Memory[at.Device]; ok {
			at.Memory = min(at.Memory, most)
		}
	}
	return s, nil
}

func (s *sites) open(o *Options) error {
	for _, r := range o.Device.requests() {
		var err error
		switch r.Kind {
		case place.HIP, place.CUDA:
			err = s.openGPU(&o.Device, r, false)
		case place.Auto:
			for _, api := range apis {
				n, err := gpu.Count(o.Device.gpu(api))
				for i := 0; i < n && err == nil; i++ {
					err = s.openGPU(&o.Device, place.Request{Kind: place.Kind(api), Ordinal: i}, true)
				}
				if err != nil {
					return err
				}
			}
			if o.Device.Split != place.Tensors {
				s.openProcessor(o)
			}
		default:
			s.openProcessor(o)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openGPU adds a GPU, or only one that is worth it.
func (s *sites) openGPU(of *Device, r place.Request, worthwhile bool) error {
	d := *of
	d.Request = r
	g, err := gpu.Open(d.gpu(hip.API(r.Kind)))
	if err != nil {
		return err
	}
	if worthwhile && !g.Worthwhile() {
		return g.Close()
	}
	s.opened = append(s.opened, g)
	site := place.Site{Device: r, Name: g.Name()}
	if site.Speed, err = g.Speed(); err != nil {
		return err
	}
	if site.Memory, err = g.Memory(); err != nil {
		return err
	}
	s.all = append(s.all, site)
	return nil
}

// processorShare is what products with coded weights reach of the bandwidth of reading
// (docs/perf/cpu.md: 77 to 85 %).
const processorShare = 0.8

// openProcessor adds the processor: what is free is what the system may give without
// swapping, or any number where it does not say.
func (s *sites) openProcessor(o *Options) {
	set, threads := cpukernels.Best(), o.Threads
	if threads <= 0 {
		threads = goruntime.GOMAXPROCS(0)
	}
	site := place.Site{Device: place.Request{Kind: place.CPU}, Name: place.Discover(set).CPU, Memory: place.Available()}
	if site.Memory == 0 {
		site.Memory = 1 << 50
	}
	site.Speed.Read = processorShare * place.Bandwidth(o.Device.Measured, set, threads)
	s.opened, s.all = append(s.opened, nil), append(s.all, site)
}

// layout lays a model out: with the context asked for, or the longest of half the model's,
// a quarter and so on that fits where nobody asks; and of so many rows a pass that
// a token is as fast as with the fewest.
func (s *sites) layout(g *graph.Graph, tensor func(string) formats.Tensor, o *Options) (*place.Layout, error) {
	const least = 1024 // positions that are worth running with
	tried := *o
	if tried.Context == 0 {
		tried.Context = g.Context
	}
	if err := s.meet(g, tensor, o); err != nil {
		return nil, err
	}
	if err := s.remember(g, tensor, o); err != nil {
		return nil, err
	}
	for {
		l, err := s.layoutOf(g, tensor, &tried)
		var room *place.RoomError
		switch {
		case err == nil:
			l.Context = tried.Context
			return l, nil
		case !errors.As(err, &room):
			return nil, err
		case tried.Positions > tried.Context:
			tried.Positions = max(tried.Positions/2, tried.Context)
		case o.Context == 0 && tried.Context/2 >= least:
			tried.Context /= 2
		default:
			e := formats.Unsupportedf("", "", "a model that these devices have no room for with a context of %d: %v", tried.Context, room)
			e.Hint = "name more devices, or cpu (--device); raise --memory; --ctx N shortens the context, --kv q8 halves keys and values; or quantize to fewer bits"
			return nil, e
		}
		o.Positions = tried.Positions
	}
}

const (
	leastRows, mostRows = 64, 2048 // of a pass; the processor takes processorRows
	processorRows       = 512
)

// layoutOf lays out for one context.
func (s *sites) layoutOf(g *graph.Graph, tensor func(string) formats.Tensor, o *Options) (best *place.Layout, err error) {
	p, err := s.pieces(g, tensor, o)
	if err != nil {
		return nil, err
	}
	rows, streams := mostRows, s.streams(g, tensor)
	if slices.Contains(s.opened, nil) && !streams {
		rows = processorRows
	}
	if o.Device.Rows > 0 {
		rows = o.Device.Rows
	}
	var last error
	for ; rows >= min(leastRows, rows); rows /= 2 {
		most, err := s.measureWork(g, tensor, o, rows, streams)
		if err != nil {
			return nil, err
		}
		if err := s.timeHome(g, tensor, o, p); err != nil {
			return nil, err
		}
		var l *place.Layout
		if o.Device.Ranges != nil {
			l, last = place.Lay(p, s.paced(""), o.Device.Ranges)
		} else {
			l, last = place.Split(p, s.paced(""))
		}
		if last == nil {
			l.Rows = most
			if err := s.prompts(g, tensor, o, l); err != nil {
				return nil, err
			}
		}
		const gain = 0.98 // of the time, for which passes may be shorter
		blocks := last == nil && slices.ContainsFunc(l.Ranges, func(r place.Range) bool { return r.Device.Kind == place.CPU })
		if last == nil && !(blocks && rows > processorRows && o.Device.Rows == 0) && (best == nil || l.Exchange() < gain*best.Exchange()) {
			best = l
		}
		if o.Device.Rows > 0 || rows <= leastRows {
			break
		}
	}
	if s.apart == nil {
		if r, n := o.Device.Ranges, len(g.Blocks); len(r) > 0 && slices.ContainsFunc(r, func(r place.Range) bool { return r.Lo != 0 || r.Hi != n }) {
			return nil, formats.Errorf("", "ranges", "each device has a part of every block, 0 to %d", n)
		}
		team, err := s.together(g, tensor, o, p)
		switch {
		case err == nil && (best == nil || o.Device.Split == place.Tensors || team.Seconds < best.Seconds):
			return team, nil
		case o.Device.Split == place.Tensors:
			return nil, err
		}
	}
	if best == nil {
		return nil, last
	}
	if s.apart != nil && s.apart != errLayers {
		best.Apart = s.apart.Error()
	}
	return best, nil
}

// measureWork counts the work space of passes of so many rows, where experts may stream or not, and
// returns how many they have at most.
func (s *sites) measureWork(g *graph.Graph, tensor func(string) formats.Tensor, o *Options, rows int, streams bool) (most int, err error) {
	mixtures := device.Blocks{}
	for i := range g.Blocks {
		mixtures[i] = g.Blocks[i].MoE != nil
	}
	for i, d := range s.opened {
		if d == nil {
			continue
		}
		options := o.gpu()
		options.Rows, options.Streams = rows, streams
		p, err := d.Plan(g, device.Whole(g), tensor, options)
		if err != nil {
			return 0, err
		}
		s.all[i].Work, s.all[i].Handed = p.Scratch+gpu.LoadingBytes, gpu.HandedBytes(g, mixtures, p.Rows)
		most = max(most, p.Rows)
	}
	if most == 0 {
		most = rows
	}
	if host := slices.Index(s.opened, nil); host >= 0 {
		s.all[host].Handed = cpu.ExpertRoom(g, mixtures, most)
	}
	return most, nil
}

// openExperts opens the experts that the processor computes for GPUs.
func (s *sites) openExperts(g *graph.Graph, l *place.Layout, tensor func(string) formats.Tensor, o *Options) (err error) {
	of := device.Blocks{}
	for _, r := range l.Ranges {
		for _, i := range r.HostExperts {
			of[i] = true
		}
	}
	if len(of) > 0 {
		var x device.Experts
		if x, err = cpu.NewExperts(g, of, o.mapped(tensor), l.Rows, o.processor()); err == nil {
			s.experts = &timedExperts{Experts: x}
		}
	}
	return err
}

// stage opens a range on its site; which of all it is says span.
func (s *sites) stage(g *graph.Graph, span device.Span, tensor func(string) formats.Tensor, o Options, r *place.Range) (device.Stage, error) {
	i := slices.IndexFunc(s.all, func(x place.Site) bool { return x.Device == r.Device })
	d := s.opened[i]
	if d == nil {
		if slices.ContainsFunc(s.opened, func(d *gpu.Device) bool { return d != nil }) {
			o.Activations = "" // means nothing on a GPU, and one model has one way
		}
		stage, _, err := newCPU(g, span, tensor, &o)
		return stage, err
	}
	options := o.gpu()
	options.Warm, options.Progress, options.Most = o.Device.Warm, o.Device.Progress, s.all[i].Memory
	if len(r.HostExperts) > 0 {
		options.Experts, options.Apart, options.Pinned, options.Streams = s.experts, device.Blocks{}, r.Pinned, r.Streams
		for _, b := range r.HostExperts {
			options.Apart[b] = true
		}
	}
	return d.New(g, span, tensor, options)
}
