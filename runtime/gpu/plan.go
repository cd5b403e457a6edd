package gpu

import (
	"fmt"
	"math"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/kernels/hip"
)

// A Plan is the memory that a model takes on a device, known before anything
// is copied.
type Plan struct {
	Device  string
	Weights int64 // bytes of the weights
	Cache   int64 // of the keys and values of all sequences
	States  int64 // of what they remember beside
	Scratch int64 // of the work space of a pass of Rows tokens
	Context int64 // positions of a sequence
	Pages   int64 // that all sequences share
	Model   int64 // positions that the model was made for
	Rows    int
	Free    int64 // bytes free before anything was placed, Shared among them
	Total   int64 // bytes of the device, and of the host's that it may map
	Shared  int64 // free bytes of the host's memory that the device maps, where it is integrated
	newest  int64 // pages of the newest positions, beside codes
	// HostPages of the pages lie in HostCache bytes of the host's memory, and what a step reads of them
	// behind Context positions is expected to be LinkBytes, over a link that copies Link bytes a second.
	HostPages, HostCache, LinkBytes int64
	Link                            float64
	hostable, hosts                 bool // pages may lie in the host's memory; it is offered
}

// sum is what the plan takes.
func (p *Plan) sum() int64 { return p.Weights + p.Cache + p.States + p.Scratch }

// String says it in one line.
func (p *Plan) String() string {
	s := fmt.Sprintf("weights %s, KV %s at %d%s, %sscratch %s: fits in %s", formats.Size(p.Weights), formats.Size(p.Cache), p.Context, p.hosted(), p.states(), formats.Size(p.Scratch), formats.Size(p.Total))
	if p.Shared > 0 {
		s += fmt.Sprintf(", %s of them the processor's", formats.Size(p.Shared))
	}
	if p.Context < p.Model {
		s += fmt.Sprintf(" (the model's context is %d)", p.Model)
	}
	return s
}

// states says what recurrent states take, where there are some.
func (p *Plan) states() string {
	if p.States == 0 {
		return ""
	}
	return fmt.Sprintf("states %s, ", formats.Size(p.States))
}

// hosted says what lies in the host's memory, where it was offered.
func (p *Plan) hosted() string {
	if !p.hosts {
		return ""
	}
	return fmt.Sprintf(" (%d positions on the card, %d in %s of the host's memory)", (p.Pages-p.HostPages)*PageSize, p.HostPages*PageSize, formats.Size(p.HostCache))
}

// OverLink says in one line what steps are expected to read of the host's memory, "" where nothing lies there.
func (p *Plan) OverLink() string {
	if p.HostPages == 0 {
		return ""
	}
	return fmt.Sprintf("behind %d positions a step reads about %s of keys and values over the link, or less: %.3g ms at %.3g GB/s", p.Context, formats.Size(p.LinkBytes), 1e3*float64(p.LinkBytes)/p.Link, p.Link/1e9)
}

// A TooLargeError says that a model does not fit a device.
type TooLargeError struct{ Plan Plan }

// Error implements error.
func (e *TooLargeError) Error() string {
	p := &e.Plan
	return fmt.Sprintf("too large for %s: weights %s, KV %s at %d, %sscratch %s make %s, of %s only %s are free", p.Device,
		formats.Size(p.Weights), formats.Size(p.Cache), p.Context, p.states(), formats.Size(p.Scratch), formats.Size(p.sum()), formats.Size(p.Total), formats.Size(p.Free))
}

// Hint says what would help.
func (e *TooLargeError) Hint() string {
	p := &e.Plan
	var help []string
	if p.Weights+p.States+p.Scratch < p.Free {
		help = append(help, "--ctx N shortens the context", "--kv q8 halves the keys and values")
		if p.hostable {
			help = append(help, "--kv-host SIZE, or more of it, keeps some in the host's memory")
		}
	} else {
		help = append(help, "quantize to fewer bits per weight")
	}
	return strings.Join(append(help, "--device cpu needs no GPU"), "; ")
}

// makePlan decides how long the context and how large a pass is, given the
// bytes of the weights.
func (e *Engine) makePlan(o *Options, weights int64) error {
	layers := e.pool.layers
	free, total, err := e.m.device.Memory()
	if err != nil {
		return err
	}
	shared, mapped := e.m.device.Shared()
	free, total = free+shared, total+mapped
	left := free
	if o.Most > 0 {
		left = min(free, max(o.Most-e.m.used.Load(), 0))
		free = min(free, left+spare)
	}
	p := &e.plan
	card := e.m.device.Properties()
	*p = Plan{hostable: e.follow.policy != nil && hostable(e.g, e.span, e.team) && !card.Integrated, hosts: e.kvHost > 0, Shared: shared, Device: card.Name, Weights: weights, Context: o.Context, Model: e.g.Context, Free: left, Total: total}
	if p.Context == 0 {
		p.Context = p.Model
	}
	if err := e.kept.check(); err != nil {
		return err
	}
	p.States = e.kept.all()
	if p.Context < 1 {
		return fmt.Errorf("a context of %d positions makes no sense", p.Context)
	}
	e.context = p.Context
	sequences := int64(max(o.Sequences, 1))
	if err := p.share(layers, o.Positions, sequences); err != nil {
		return err
	}
	// The work space gets at most an eighth of what the weights leave. Of pages in the host's memory each pass of a
	// prompt brings all: they count there, as fewer passes spare the link.
	most := (free - weights) / 8
	if e.kvHost > 0 {
		most = min((free-weights+e.kvHost)/8, (free-weights)/2)
	}
	for p.Rows = maxRows; p.Rows > minRows; p.Rows /= 2 {
		if p.Scratch = e.scratchBytes(p.Rows); p.Scratch <= most {
			break
		}
	}
	if o.Rows > 0 {
		p.Rows = o.Rows
	}
	p.Rows = int(min(int64(p.Rows), max(p.Context*sequences, o.Positions, fewRows), int64(max(e.shape.mostRows(), fewRows))))
	p.Scratch = e.scratchBytes(p.Rows)
	if p.sum()+spare <= free {
		return nil
	}
	room := free - spare - p.Weights - p.States - p.Scratch - p.newest*newestBytes(layers)
	fit := room / max(pageBytes(layers), 1)
	if e.kvHost > 0 {
		fit = fitHosted(layers, room, e.kvHost)
	}
	switch pages := fit / sequences; {
	case e.kvHost > 0 && p.Pages <= fit:
	case o.Positions > 0 && fit >= pagesOf(p.Context):
		err = p.share(layers, fit*PageSize, sequences)
	// Where nobody asked for a context, as much as fits will do.
	case o.Context == 0 && o.Positions == 0 && pages*PageSize >= minContext:
		p.Context = pages * PageSize / minContext * minContext
		e.context = p.Context
		err = p.share(layers, 0, sequences)
	default:
		return &TooLargeError{*p}
	}
	if err != nil || e.kvHost == 0 {
		return err
	}
	return e.hostSome(room)
}

// share plans the pages of so many positions, a sequence's at least, or of so many
// sequences.
func (p *Plan) share(layers []hip.KV, positions, sequences int64) (err error) {
	pages := pagesOf(p.Context)
	if positions == 0 && pages > math.MaxInt32/sequences {
		return fmt.Errorf("%d sequences of %d positions are more than 2^31 pages", sequences, p.Context)
	}
	if p.Pages = pages * sequences; positions > 0 {
		p.Pages = max(min(pagesOf(min(positions, 1<<40)), math.MaxInt32), pages)
	}
	p.Cache, err = cacheBytes(layers, p.Pages*PageSize)
	p.newest = newestPages(layers, p.Pages, max(sequences, 1), maxRows)
	p.Cache += p.newest * newestBytes(layers)
	return err
}

const (
	minRows, maxRows = 64, 2048 // of a pass
	spare            = 64 << 20 // bytes left for the runtime's own needs
	minContext       = 1024     // positions that are worth running with, and the step of a shortened context
)

// scratchBytes returns the work space of a pass of so many rows.
func (e *Engine) scratchBytes(rows int) int64 {
	var a arena
	e.placeScratch(&a, rows)
	return a.used
}
