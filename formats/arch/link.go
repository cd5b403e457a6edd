package arch

import (
	"slices"
	"strconv"
	"strings"

	"github.com/nstf/nstf/formats/graph"
)

// A Link says where modules of the graph lie in a foreign checkpoint, both
// ways: the foreign module holds the rows of the parts, one after the other,
// in the given order. A module is a tensor's name without ".weight" or
// ".bias"; "#" stands for the block's number, "@" for the expert's, or for the head's of norms with weights for each.
//
// Several links may name one part: the first whose tensor exists is read.
type Link struct {
	Foreign string
	Parts   []string
	// Order maps a row of the foreign tensor to its row in the joined parts,
	// for the block; nil, of the function too, is the identity.
	Order func(g *graph.Graph, block int) []int64
	// Columns is the same of a weight's columns.
	Columns func(g *graph.Graph, block int) []int64
	// Written turns a number into what the foreign tensor has for it, where the
	// graph's is another; nil, of the function too: they are the same.
	Written func(g *graph.Graph, block int) func(float32) float32
	// Alternating parts, of one size, take turns row by row, within each expert of
	// a stack.
	Alternating bool
	// Bare foreign names have no ".weight", and "_bias" for ".bias".
	Bare bool
	// Transposed weights are stored [K][N]; of stacks every expert's, where they
	// are in no codes.
	Transposed bool
	// Either: stacks are Transposed or not, as their shape tells. Those of which it does
	// not are not.
	Either bool
	// Behind: the foreign number of a block counts from behind the graph's blocks.
	Behind bool
	behind int  // how many those are
	module bool // of the block of a module of multi-token prediction
	// When says for which graphs the link holds; nil: for all.
	When func(g *graph.Graph) bool
	// Middle weights are stored [N][1][K].
	Middle bool
	// Among: rows of the part are shared out to as many foreign modules, one behind the
	// other, and "@" stands for one of these in their names.
	Among []string
	// Shape is the foreign tensor's, where it is not that of its parts; nil: it is.
	Shape func(g *graph.Graph, block int) []int64
	// Latent: the parts are KB and VB of latent attention, which the foreign matrix
	// has head by head, KB turned round.
	Latent bool
}

// LatentOf returns the latent attention of a link's block.
func (l *Link) LatentOf(g *graph.Graph, block int) *graph.Latent {
	if l.module {
		return g.MTP[block].Block.Latent
	}
	return g.Blocks[block].Latent
}

// one links a module to one of the same rows.
func one(foreign, part string) Link { return Link{Foreign: foreign, Parts: []string{part}} }

// ggufSelectBias is what a router adds to choose experts, and does not weigh them by.
var ggufSelectBias = one("blk.#.exp_probs_b.bias", "blocks.#.moe.select_bias")

// where limits a link to some graphs.
func (l Link) where(when func(g *graph.Graph) bool) Link {
	l.When = when
	return l
}

// Holds reports whether the link is one of a graph's.
func (l *Link) Holds(g *graph.Graph) bool { return l.When == nil || l.When(g) }

// suffixes that a module's tensors have.
var suffixes = []string{".weight", ".bias"}

// Split takes a tensor's name apart: its module with "#" for the block, the
// block or -1, and the suffix.
func Split(name string) (pattern string, block int, suffix string) {
	block = -1
	for _, s := range suffixes {
		if m, ok := strings.CutSuffix(name, s); ok {
			name, suffix = m, s
			break
		}
	}
	f := strings.Split(name, ".")
	for i, s := range f {
		if n, err := strconv.Atoi(s); err == nil && i > 0 {
			f[i], block = "#", n
			break
		}
	}
	return strings.Join(f, "."), block, suffix
}

// Fill puts the block's and the expert's number into a pattern.
func Fill(pattern string, block, expert int) string {
	s := strings.Replace(pattern, "#", strconv.Itoa(block), 1)
	return strings.Replace(s, "@", strconv.Itoa(expert), 1)
}

// Name returns the foreign tensor's name for a suffix of the graph's; expert is its
// number among those of a link that has several.
func (l *Link) Name(block, expert int, suffix string) string {
	if l.Bare {
		suffix = strings.Replace(strings.TrimPrefix(suffix, ".weight"), ".", "_", 1)
	}
	if l.Among != nil {
		return Fill(strings.Replace(l.Foreign, "@", l.Among[expert], 1), block+l.behind, 0) + suffix
	}
	return Fill(l.Foreign, block+l.behind, expert) + suffix
}

// Placed returns links with the numbers that blocks have in one graph's checkpoints.
func Placed(links []Link, g *graph.Graph) []Link {
	out := slices.Clone(links)
	for i := range out {
		if out[i].Behind {
			out[i].behind = len(g.Blocks)
		}
	}
	return out
}

// behindLinks are those of the blocks of multi-token prediction, which a checkpoint
// keeps as layers behind the last, and of what else their modules have, which own
// lists.
func behindLinks(own, block []Link) []Link {
	out := slices.Clone(own)
	for _, l := range block {
		if strings.HasPrefix(l.Parts[0], "blocks.#.") {
			out = append(out, l.ofModule())
		}
	}
	for i := range out {
		out[i].Behind = true
	}
	return out
}

// besideLinks are those of blocks of multi-token prediction that a checkpoint keeps
// under a name of their own: to in place of from.
func besideLinks(own, block []Link, from, to string) []Link {
	out := slices.Clone(own)
	for _, l := range block {
		if rest, ok := strings.CutPrefix(l.Foreign, from); ok {
			l = l.ofModule()
			l.Foreign = to + rest
			out = append(out, l)
		}
	}
	return out
}

// ofModule returns a block's link for the block of a module of multi-token
// prediction.
func (l Link) ofModule() Link {
	l.Parts = slices.Clone(l.Parts)
	for i, p := range l.Parts {
		l.Parts[i] = "mtp.#.block." + strings.TrimPrefix(p, "blocks.#.")
	}
	l.module = true
	l.Order, l.Columns, l.Written, l.Shape = inModule(l.Order), inModule(l.Columns), inModule(l.Written), inModule(l.Shape)
	return l
}

// inModule asks of the block of a module what f says of one of the graph's.
func inModule[T any](f func(g *graph.Graph, block int) T) func(g *graph.Graph, block int) T {
	if f == nil {
		return nil
	}
	return func(g *graph.Graph, i int) T {
		return f(&graph.Graph{Width: g.Width, Blocks: []graph.Block{g.MTP[i].Block}}, 0)
	}
}

// PerExpert reports whether the foreign world keeps experts apart.
func (l *Link) PerExpert() bool { return l.Among == nil && strings.Contains(l.Foreign, "@") }

// Index returns the place of a pattern among the parts, or -1.
func (l *Link) Index(pattern string) int {
	for i, p := range l.Parts {
		if p == pattern {
			return i
		}
	}
	return -1
}

// rotaryOrder is the order of rows that llama.cpp gives to the query (or key)
// matrices of architectures whose rotary pairs it interleaves: foreign row
// 2i+s of a head is row i+s*half of the same head.
// Source: the permute function of llama.cpp's convert_hf_to_gguf.py.
func rotaryOrder(heads func(a *graph.Attention) int64) func(*graph.Graph, int) []int64 {
	return func(g *graph.Graph, block int) []int64 {
		a := g.Blocks[block].Attn
		n, dim := heads(a), a.HeadDim
		order := make([]int64, n*dim)
		for h := range n {
			for i := range dim / 2 {
				for s := range int64(2) {
					order[h*dim+2*i+s] = h*dim + s*(dim/2) + i
				}
			}
		}
		return order
	}
}

// fusedRotaryOrder is the order of query, key and value in one matrix, query
// and key interleaved.
func fusedRotaryOrder(g *graph.Graph, block int) []int64 {
	a := g.Blocks[block].Attn
	order := rotaryOrder(queryHeads)(g, block)
	for _, i := range rotaryOrder(keyHeads)(g, block) {
		order = append(order, a.Q.Out+i)
	}
	for i := range a.V.Out {
		order = append(order, a.Q.Out+a.K.Out+i)
	}
	return order
}

func queryHeads(a *graph.Attention) int64 { return a.Heads }
func keyHeads(a *graph.Attention) int64   { return a.KVHeads }

// perHeadOrder is the order of a fused projection that keeps query, key and
// value of one head together (GPT-NeoX).
func perHeadOrder(g *graph.Graph, block int) []int64 {
	a := g.Blocks[block].Attn
	order := make([]int64, 0, 3*a.Heads*a.HeadDim)
	for h := range a.Heads {
		for j := range int64(3) {
			for d := range a.HeadDim {
				order = append(order, (j*a.Heads+h)*a.HeadDim+d)
			}
		}
	}
	return order
}

// perExpertOrder is the order of stacked experts whose gate and up rows lie
// together, expert by expert.
func perExpertOrder(g *graph.Graph, block int) []int64 {
	m := g.Blocks[block].MoE
	f := m.Gate.Out
	order := make([]int64, 0, 2*m.Experts*f)
	for e := range m.Experts {
		for j := range int64(2) {
			for i := range f {
				order = append(order, (j*m.Experts+e)*f+i)
			}
		}
	}
	return order
}
