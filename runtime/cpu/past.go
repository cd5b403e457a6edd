package cpu

import (
	"slices"

	kernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/cache"
)

// A past is what a sequence remembers for a policy of attention: summaries of its pages,
// which follow from what they hold, and the history of each head, which follows from the
// steps since the last prompt. A sequence that goes back, or is given another prompt, has
// no history, and its next step reads all.
type past struct {
	shapes []cache.Layer
	layers [][]summary // [layer of the cache][key-value head]
	heads  [][]history // [block][key-value head], without heads where no policy is for it
}

// A summary is of the first pages of one head, [kernels.KVPositions] to a block.
type summary struct {
	pages []kernels.KVPages
	odd   []bool // of each page: it holds what is not finite, and is read in any case
}

// A history is what steps have shown of one head.
type history struct {
	steps int64 // since one has read all, that one included; 0: none has
	// ratio is by page the logarithm of the weight that was seen over the one that was
	// foretold, smoothed over the steps that have read the page.
	ratio []float32
	// without and with are squared errors of what the steps that read all would have given
	// otherwise, without the pages that are not chosen and with their means, smoothed.
	without, with float64
	left          float64 // share of the weight that is estimated to be left out, smoothed
}

// newPast returns that of an empty sequence; nil where there is no policy.
func (e *Engine) newPast() *past {
	if e.policy == nil {
		return nil
	}
	p := &past{shapes: e.layers, layers: make([][]summary, len(e.layers)), heads: make([][]history, len(e.blocks))}
	for i, l := range e.layers {
		p.layers[i] = make([]summary, l.KVHeads)
	}
	for i := range e.blocks {
		if e.blocks[i].followed {
			p.heads[i] = make([]history, e.blocks[i].attends.kvHeads)
		}
	}
	return p
}

// forget drops the history.
func (p *past) forget() {
	if p == nil {
		return
	}
	for _, heads := range p.heads {
		for h := range heads {
			heads[h] = history{ratio: heads[h].ratio[:0]}
		}
	}
}

// cut forgets all but the first positions, and the history.
func (p *past) cut(positions int64) {
	if p == nil {
		return
	}
	p.forget()
	for _, heads := range p.layers {
		for h := range heads {
			s := &heads[h]
			s.odd = s.odd[:min(len(s.odd), int(positions/cache.PageSize))]
		}
	}
}

// clone returns a copy.
func (p *past) clone() *past {
	if p == nil {
		return nil
	}
	c := &past{shapes: p.shapes, layers: make([][]summary, len(p.layers)), heads: make([][]history, len(p.heads))}
	for i, heads := range p.layers {
		c.layers[i] = make([]summary, len(heads))
		for h := range heads {
			from, to := &heads[h], &c.layers[i][h]
			to.odd = slices.Clone(from.odd)
			for j := range (len(from.odd) + kernels.KVPositions - 1) / kernels.KVPositions {
				to.pages = append(to.pages, from.pages[j].Clone())
			}
		}
	}
	for i, heads := range p.heads {
		c.heads[i] = slices.Clone(heads)
		for h := range heads {
			c.heads[i][h].ratio = slices.Clone(heads[h].ratio)
		}
	}
	return c
}

// bytes returns what summaries and history of so many positions take.
func (p *past) bytes(positions int64) int64 {
	if p == nil || positions == 0 {
		return 0
	}
	return policyBytes(p.shapes, positions)
}

// pastBytes returns what a sequence of so many positions takes beside keys and values.
func (e *Engine) pastBytes(positions int64) int64 {
	if e.policy == nil {
		return 0
	}
	return policyBytes(e.layers, positions)
}

func policyBytes(layers []cache.Layer, positions int64) (n int64) {
	pages := (positions-1)/cache.PageSize + 1
	blocks := (pages-1)/kernels.KVPositions + 1
	for _, l := range layers {
		n += int64(l.KVHeads) * (blocks*kernels.KVPagesBytes(l.HeadDim, l.ValueDim) + 5*pages)
	}
	return n
}

// extend brings the summaries of a head up to the first n pages, which are whole.
func (s *summary) extend(set *kernels.Set, a *kernels.Attention, d, v int, blocks []kernels.KVBlock, n int, sc *kernels.AttendScratch) {
	for at := len(s.odd); at < n; at++ {
		if at/kernels.KVPositions == len(s.pages) {
			s.pages = append(s.pages, kernels.NewKVPages(d, v))
		}
		s.odd = append(s.odd, !set.Summarize(&s.pages[at/kernels.KVPositions], at%kernels.KVPositions, a, &blocks[at], sc))
	}
}

// blocks returns those that the first n pages are in.
func (s *summary) blocks(n int) []kernels.KVPages {
	return s.pages[:(n+kernels.KVPositions-1)/kernels.KVPositions]
}

// mostRatio bounds what history says of a page, in nats.
const mostRatio = 4

// saw takes over what a step that has read a page saw of it, in nats above what was
// foretold; keep is how much of what was known stays.
func (h *history) saw(page int, ratio, keep float32) {
	switch {
	case ratio != ratio:
		return
	case ratio > mostRatio:
		ratio = mostRatio
	case ratio < -mostRatio:
		ratio = -mostRatio
	}
	h.ratio[page] = keep*h.ratio[page] + (1-keep)*ratio
}

// PagesRead returns the pages that steps by a policy have read, and rows of prompts where those go by it, and how
// many there were, both summed over steps or rows, blocks and key-value heads.
func (e *Engine) PagesRead() (read, held int64) { return e.pagesRead.Load(), e.pagesHeld.Load() }
