package gpu

import (
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/gpu/driver"
)

// leastCard is the fewest pages that lie on the card where others do not.
const leastCard = 4

// hostable reports whether keys and values of a model may lie in the host's memory: one GPU has all of it.
func hostable(g *graph.Graph, span device.Span, team *member) bool {
	return team == nil && span == device.Whole(g)
}

// checkHosted refuses the host's memory for keys and values where it is of no use.
func checkHosted(g *graph.Graph, span device.Span, o *Options) error {
	switch {
	case o.KVHost == 0:
	case !hostable(g, span, o.team):
		return UnsupportedHosted("of a model that several devices share")
	case o.Policy == nil:
		return UnsupportedHosted("where steps read all of them")
	}
	return nil
}

// checkDevice refuses it on a device whose memory is the host's: there is no more of it than was counted.
func (e *Engine) checkDevice(p driver.Properties) error {
	if e.kvHost > 0 && p.Integrated {
		return UnsupportedHosted("on a device that shares the processor's memory")
	}
	return nil
}

// UnsupportedHosted is the error that keys and values do not lie in the host's memory: of what, or where.
func UnsupportedHosted(what string) error {
	e := formats.Unsupportedf("", "", "keys and values in the host's memory %s", what)
	e.Hint = "leave --kv-host out; it is for one GPU, and --attention policy"
	return e
}

// fitHosted returns how many pages have room in so much of the card and of the host's memory: leastCard of
// them, and the summaries of all, lie on the card.
func fitHosted(layers []hip.KV, room, host int64) int64 {
	planes, all := max(planeBytes(layers), 1), max(pageBytes(layers), 1)
	fit := (room + host/planes*planes) / all
	if all > planes {
		fit = min(fit, (room-leastCard*planes)/(all-planes))
	}
	return max(fit, room/all)
}

// hostSome leaves the pages that the card has no room for to the host's memory.
func (e *Engine) hostSome(room int64) error {
	p, layers := &e.plan, e.pool.layers
	planes := max(planeBytes(layers), 1)
	card := (room - p.Pages*(pageBytes(layers)-planes)) / planes
	p.HostPages = max(p.Pages-card, 0)
	p.HostCache = p.HostPages * planes
	p.Cache -= p.HostCache
	if free := e.m.device.HostFree(); free > 0 && p.HostCache > free/8*7 {
		err := formats.Unsupportedf("", "", "%s of keys and values in the host's memory, of which %s are available", formats.Size(p.HostCache), formats.Size(free))
		err.Hint = "give a shorter context (--ctx), or fewer bits (--kv)"
		return err
	}
	return nil
}

// measureLink says what steps are expected to read of the host's memory, and how fast that comes.
func (e *Engine) measureLink() error {
	p, f := &e.plan, &e.follow
	e.newestRead = newestKept
	for i, first := range f.first {
		if a := e.g.Blocks[e.span.Lo+i].Attn; a != nil && first < 0 && (a.Window > 0 || a.Chunk > 0) {
			e.newestRead = max(e.newestRead, pagesOf(min(max(a.Window, a.Chunk), e.context))+1)
		}
	}
	if p.HostPages == 0 {
		return nil
	}
	var read float64 // of all pages, by the share of each head
	for i, first := range f.first {
		if first < 0 {
			continue
		}
		from, _ := e.g.KeysOf(e.span.Lo + i)
		kv, _ := kvOf(&e.g.Blocks[from], f.kept.Of(from))
		for h := range kv.Heads {
			read += min(f.policy.Share(e.span.Lo+i, h), 1) * float64(kv.PlaneBytes()) / float64(kv.Heads)
		}
	}
	p.LinkBytes = int64(read * float64(pagesOf(p.Context)) * float64(p.HostPages) / float64(p.Pages))
	b, err := e.m.alloc(linkBytes)
	if err != nil {
		return err
	}
	defer e.m.free(b)
	if _, err := e.m.fetch(b); err != nil { // the first takes pinned memory
		return err
	}
	start := time.Now()
	if _, err := e.m.fetch(b); err != nil {
		return err
	}
	p.Link = linkBytes / max(time.Since(start).Seconds(), 1e-9)
	return nil
}
