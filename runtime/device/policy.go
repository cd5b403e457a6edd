package device

import (
	"fmt"
	"math"
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
)

// A Policy has steps of attention read some pages of keys and values instead of all: what
// docs/attention.md describes. It is for blocks that attend to all positions; those with a
// window attend as without it, and so do prompts unless Prompts is set. Results differ from those without, and do
// not depend on threads or company.
type Policy struct {
	// Pages is how many pages a key-value head reads in a step at most, as a share of those
	// that its sequence has, in the mean over Refresh steps: above 0, at most 1.
	Pages float64
	// Heads are the same of each key-value head of each block of the model, in place of
	// Pages; nil: Pages is for all.
	Heads [][]float64
	// Prompts are the shares of pages that blocks of a prompt's queries read, of each key-value
	// head of each block of the model: from 0 to 1, which is dense; nil: prompts are dense.
	// On a GPU blocks whose keys and values have scales leave prompts dense.
	Prompts [][]float64
	// Mass ends a step's choice where the pages have this share of the estimated weight:
	// above 0; 1: never before there are as many as Pages says.
	Mass float64
	// Least is how many positions are read in any case, [PolicyPage] at least; 0: as many as
	// the device reads faster than it chooses, see LeastOr. A sequence of up to so many is
	// computed as without a policy, to the bit.
	Least int64
	// Refresh is how many steps there are from one that reads all to the next, at least 2.
	Refresh int64
	// Rank replaces the choice by another's, to measure it: nothing stands for pages that
	// are not read then. nil: the policy's own.
	Rank func(*Ranking)
}

// A Ranking is the pages of one key-value head before a step, to be weighed by another
// method than the policy's.
type Ranking struct {
	Block, Head int       // of the stage
	Position    int64     // of the step
	Queries     []float32 // [R][D], those of the head
	Scale       float32
	// Keys returns those of a page as they are stored, [D][PolicyPage].
	Keys func(page int) []float32
	// Mass returns the weight that a page really has, the mean over the head's queries.
	Mass func(page int) float64
	// Weights has a place for each page, to be filled: those with the most are read, and
	// the first and the last two in any case.
	Weights []float64
}

// Share returns the most pages that a head of a block of the model reads.
func (p *Policy) Share(block, head int) float64 {
	if p.Heads == nil {
		return p.Pages
	}
	return p.Heads[block][head]
}

// ForPrompts reports whether prompts attend by the policy, which may be nil.
func (p *Policy) ForPrompts() bool { return p != nil && p.Prompts != nil }

// PromptShare returns the most pages that a block of queries reads of a head.
func (p *Policy) PromptShare(block, head int) float64 { return p.Prompts[block][head] }

// LeastPromptPages are read by a block of a prompt's queries at least: a share of few pages
// loses what near ones say, and saves nothing. Measured: docs/perf/attention.md.
const LeastPromptPages = 16

// PromptPages returns how many of so many pages a block of queries reads of a head by a share.
func PromptPages(share float64, pages int) int {
	return min(max(int(math.Ceil(share*float64(pages))), LeastPromptPages), pages)
}

// leastPages are read of a head whatever Pages comes to, where nobody has measured what heads
// need.
const leastPages = 8

// LeastPages returns how many pages a head reads at least.
func (p *Policy) LeastPages() int64 {
	if p.Heads != nil {
		return 0
	}
	return min(leastPages, p.Least/PolicyPage)
}

// PolicyPage is the positions of a page.
const PolicyPage = 64

// PolicyLeast is the least positions of a policy on a processor.
const PolicyLeast = 1024

// DefaultPolicy reads a tenth of the pages.
func DefaultPolicy() Policy {
	return Policy{Pages: 0.1, Mass: 1, Least: PolicyLeast, Refresh: 128}
}

// LeastOr returns a policy whose least positions are said: those of a device, unless the policy
// has its own; nil of nil.
func (p *Policy) LeastOr(n int64) *Policy {
	if p == nil || p.Least != 0 {
		return p
	}
	own := *p
	own.Least = n
	return &own
}

// Check says whether a graph can be executed by the policy. Errors are of package formats.
func (p *Policy) Check(g *graph.Graph) error {
	switch {
	case !(p.Pages > 0 && p.Pages <= 1):
		return fmt.Errorf("an attention policy that reads %g of the pages makes no sense", p.Pages)
	case !(p.Mass > 0 && p.Mass <= 1):
		return fmt.Errorf("an attention policy that reads %g of the weight makes no sense", p.Mass)
	case p.Least != 0 && p.Least < PolicyPage || p.Refresh < 2:
		return fmt.Errorf("an attention policy that reads %d positions in any case, and all every %d steps, makes no sense", p.Least, p.Refresh)
	}
	shares := [][][]float64{p.Heads, p.Prompts}
	for _, of := range shares {
		if of != nil && len(of) != len(g.Blocks) {
			return fmt.Errorf("an attention policy for %d blocks makes no sense for a model of %d", len(of), len(g.Blocks))
		}
	}
	some := false
	for i := range g.Blocks {
		b := &g.Blocks[i]
		if b.Latent != nil {
			return p.unsupported("attention over latents by a policy")
		}
		if !Followed(b) {
			continue
		}
		some = true
		for _, of := range shares {
			if of != nil && (len(of[i]) != int(b.Attn.KVHeads) || slices.ContainsFunc(of[i], func(x float64) bool { return !(x >= 0 && x <= 1) })) {
				return fmt.Errorf("an attention policy of %v for %d key-value heads of block %d makes no sense", of[i], b.Attn.KVHeads, i)
			}
		}
	}
	if !some {
		return p.unsupported("attention by a policy in a model that attends to all positions nowhere")
	}
	return nil
}

func (p *Policy) unsupported(what string) error {
	err := formats.Unsupportedf("", "graph.blocks", "%s", what)
	err.Hint = "leave it dense (--attention dense)"
	return err
}

// Followed reports whether a policy is for a block: one that attends to all before it.
func Followed(b *graph.Block) bool { return b.Attn != nil && b.Attn.Window == 0 && b.Attn.Chunk == 0 }
