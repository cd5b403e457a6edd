package exec

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/runtime/cpu"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu"
	"github.com/nstf/nstf/runtime/place"
)

// streams reports whether experts of a model may lie in the processor's memory and come to a GPU.
func (s *sites) streams(g *graph.Graph, tensor func(string) formats.Tensor) bool {
	return slices.Contains(s.opened, nil) && len(s.opened) > 1 && slices.ContainsFunc(g.Blocks, func(b graph.Block) bool { return b.MoE != nil && gpu.Streams(b.MoE, tensor) })
}

// prompts says of a layout how experts in the processor's memory are best computed for rows of
// prompts, and has them come to the device where that is faster, unless it was chosen by hand. Blocks
// whose experts cannot come are left out; nothing is said of a range that has no others.
func (s *sites) prompts(g *graph.Graph, tensor func(string) formats.Tensor, o *Options, l *place.Layout) error {
	for i := range l.Ranges {
		r := &l.Ranges[i]
		if len(r.HostExperts) == 0 {
			continue
		}
		var all []place.Experts
		for _, b := range r.HostExperts {
			if !gpu.Streams(g.Blocks[b].MoE, tensor) {
				continue
			}
			e, err := s.timeExperts(g, b, tensor, o)
			if err != nil {
				return err
			}
			all = append(all, e)
		}
		if all == nil {
			r.Prompts, r.Streams = nil, false
			continue
		}
		site := func(of func(place.Site) bool) int { return slices.IndexFunc(s.all, of) }
		own, host := site(func(x place.Site) bool { return x.Device == r.Device }), site(func(x place.Site) bool { return x.Device.Kind == place.CPU })
		if s.all[own].Speed.Stream == 0 {
			var err error
			if s.all[own].Speed.Stream, err = s.opened[own].StreamRate(); err != nil {
				return err
			}
		}
		r.Prompts = place.NewPrompts(all, l.Rows, s.all[host].Speed.Read, s.all[own].Speed.Stream)
		if o.Device.Ranges == nil {
			r.Streams = r.Prompts.Streams()
		}
	}
	return nil
}

// timed is how many experts are timed at once for prompts. For steps they are as many as do not lie in
// caches, of which a token reads others each time; before each the processor waits for attending.
const (
	timed      = 4
	timedBytes = 512 << 20
	attending  = 100 * time.Microsecond
)

// kindOf returns the bytes of one of a block's experts, and what tells them from those of other kinds.
func kindOf(g *graph.Graph, block int, tensor func(string) formats.Tensor) (bytes int64, kind string) {
	m := g.Blocks[block].MoE
	kind = fmt.Sprint(m.Experts, m.TopK, m.Latent(g.Width))
	for _, name := range expertTensors(m) {
		t := tensor(name)
		bytes += t.Size() / m.Experts
		kind += fmt.Sprint(" ", t.Scheme, t.Form, t.Shape, t.Params)
	}
	return bytes, kind
}

// expertTensors names the tensors of routed experts.
func expertTensors(m *graph.MoE) (names []string) {
	for _, l := range []*graph.Linear{m.Gate, &m.Up, &m.Down} {
		if l == nil {
			continue
		}
		if names = append(names, l.Weight); l.Bias != "" {
			names = append(names, l.Bias)
		}
	}
	return names
}

// someExperts opens the first n of a block's experts on the processor, of which a row chooses topK.
func someExperts(g *graph.Graph, block int, tensor func(string) formats.Tensor, o *Options, n, topK int64, rows int) (device.Experts, error) {
	m, some := *g.Blocks[block].MoE, map[string]formats.Tensor{}
	for _, name := range expertTensors(&m) {
		part, err := firstExperts(o.mapped(tensor)(name), n)
		if err != nil {
			return nil, err
		}
		some[name] = part
	}
	cut := *g
	cut.Blocks = []graph.Block{{MoE: &m}}
	m.Experts, m.TopK, m.Groups = n, topK, 0
	return cpu.NewExperts(&cut, device.Blocks{0: true}, func(name string) formats.Tensor { return some[name] }, rows, o.processor())
}

// once returns what is kept of a kind of experts, or else what f makes of it.
func once[T any](kept *map[string]T, kind string, f func() (T, error)) (T, error) {
	if x, ok := (*kept)[kind]; ok {
		return x, nil
	}
	x, err := f()
	if err != nil {
		return x, err
	}
	if *kept == nil {
		*kept = map[string]T{}
	}
	(*kept)[kind] = x
	return x, nil
}

// timeExperts times what the processor takes for some experts of a block with many rows, once for all
// blocks whose experts are alike.
func (s *sites) timeExperts(g *graph.Graph, block int, tensor func(string) formats.Tensor, o *Options) (place.Experts, error) {
	m := g.Blocks[block].MoE
	bytes, kind := kindOf(g, block, tensor)
	return once(&s.prompted, kind, func() (place.Experts, error) {
		e, n := place.Experts{Blocks: 1, Count: int(m.Experts), TopK: int(m.TopK), Bytes: bytes}, min(m.Experts, timed)
		x, err := someExperts(g, block, tensor, o, n, 1, int(n)*place.TimedMany)
		if err != nil {
			return e, err
		}
		defer x.Close()
		if e.Few, err = timeRows(x, int(n), place.TimedFew, int(m.Latent(g.Width))); err == nil {
			e.Many, err = timeRows(x, int(n), place.TimedMany, int(m.Latent(g.Width)))
		}
		return e, err
	})
}

// timeStep times what the processor takes for a token's experts of a block, once for all blocks whose
// experts are alike; 0 where some of them cannot be opened alone.
func (s *sites) timeStep(g *graph.Graph, block int, tensor func(string) formats.Tensor, o *Options) (float64, error) {
	m := g.Blocks[block].MoE
	bytes, kind := kindOf(g, block, tensor)
	return once(&s.stepped, kind, func() (float64, error) {
		n := min(max(timedBytes/max(bytes, 1), 4*m.TopK), m.Experts)
		x, err := someExperts(g, block, tensor, o, n, m.TopK, 1)
		var unable *formats.UnsupportedError
		if errors.As(err, &unable) {
			return 0, nil
		} else if err != nil {
			return 0, err
		}
		defer x.Close()
		return timeTokens(x, int(n), int(m.TopK), int(m.Latent(g.Width)))
	})
}

// timeTokens returns the median seconds of tokens that choose topK of n experts, each others than the one before.
func timeTokens(x device.Experts, n, topK, width int) (float64, error) {
	r := &device.Routed{X: make([]float32, width), Sum: make([]float32, width), Chosen: make([]int32, topK), Share: make([]float32, topK)}
	for i := range r.X {
		r.X[i] = float32(i%17) - 8
	}
	for i := range r.Share {
		r.Share[i] = 1
	}
	var times []float64
	for round := range 2 { // the first brings weights to memory
		for at := 0; at+topK <= n; at += topK {
			for i := range r.Chosen {
				r.Chosen[i] = int32(at + i)
			}
			time.Sleep(attending)
			start := time.Now()
			if err := x.Sum(0, r); err != nil {
				return 0, err
			}
			if round > 0 {
				times = append(times, time.Since(start).Seconds())
			}
		}
	}
	return place.NewRate(times).Median, nil
}

// firstExperts are the first of a stack, or of its biases.
func firstExperts(t formats.Tensor, n int64) (formats.Tensor, error) {
	if t.Form != "" || len(t.Shape) < 2 {
		return t, formats.Unsupportedf("", t.Name, "some of the experts of form %q", t.Form)
	}
	rows, _ := t.Rows()
	part, err := scheme.Slice(t, 0, rows/t.Shape[0]*n)
	if err != nil {
		return t, err
	}
	s, _ := scheme.ByName(part.Scheme)
	part.Shape = append([]int64{n}, t.Shape[1:]...)
	specs, err := s.Parts(part.Shape, part.Params)
	for i := range specs {
		part.Parts[i].Shape = specs[i].Shape
	}
	return part, err
}

// timeRows returns the seconds of one of n experts with so many rows each.
func timeRows(x device.Experts, n, rows, width int) (float64, error) {
	r := &device.Routed{Prompt: true, X: make([]float32, n*rows*width), Sum: make([]float32, n*rows*width), Chosen: make([]int32, n*rows), Share: make([]float32, n*rows)}
	for i := range r.X {
		r.X[i] = float32(i%17) - 8
	}
	for i := range r.Chosen {
		r.Chosen[i], r.Share[i] = int32(i%n), 1
	}
	var times []float64
	for range 4 { // the first brings weights to memory
		start := time.Now()
		if err := x.Sum(0, r); err != nil {
			return 0, err
		}
		times = append(times, time.Since(start).Seconds()/float64(n))
	}
	return place.NewRate(times[1:]).Median, nil
}
