package exec

import (
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
	times := map[string]place.Experts{}
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
			e, err := timeExperts(g, b, tensor, o, times)
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

// timed is how many experts are timed at once.
const timed = 4

// timeExperts times what the processor takes for some experts of a block, once for all blocks whose
// experts are alike.
func timeExperts(g *graph.Graph, block int, tensor func(string) formats.Tensor, o *Options, times map[string]place.Experts) (place.Experts, error) {
	m := *g.Blocks[block].MoE
	e := place.Experts{Blocks: 1, Count: int(m.Experts), TopK: int(m.TopK)}
	n, some := min(m.Experts, timed), map[string]formats.Tensor{}
	key := fmt.Sprint(m.Experts, m.TopK, m.Latent(g.Width))
	for _, l := range []*graph.Linear{m.Gate, &m.Up, &m.Down} {
		if l == nil {
			continue
		}
		for _, name := range []string{l.Weight, l.Bias} {
			if name == "" {
				continue
			}
			t := o.mapped(tensor)(name)
			e.Bytes += t.Size() / m.Experts
			key += fmt.Sprint(" ", t.Scheme, t.Form, t.Shape, t.Params)
			some[name] = t
		}
	}
	if kept, ok := times[key]; ok {
		return kept, nil
	}
	for name, t := range some {
		part, err := firstExperts(t, n)
		if err != nil {
			return e, err
		}
		some[name] = part
	}
	cut := *g
	cut.Blocks = []graph.Block{{MoE: &m}}
	m.Experts, m.TopK, m.Groups = n, 1, 0
	x, err := cpu.NewExperts(&cut, device.Blocks{0: true}, func(name string) formats.Tensor { return some[name] }, int(n)*place.TimedMany, o.processor())
	if err != nil {
		return e, err
	}
	defer x.Close()
	for _, t := range []struct {
		rows int
		to   *float64
	}{{place.TimedFew, &e.Few}, {place.TimedMany, &e.Many}} {
		if *t.to, err = timeRows(x, int(n), t.rows, int(m.Latent(g.Width))); err != nil {
			return e, err
		}
	}
	times[key] = e
	return e, nil
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
