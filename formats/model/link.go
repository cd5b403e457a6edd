package model

import (
	"strconv"
	"strings"
)

// A link says where modules of the graph lie in a foreign checkpoint, both
// ways: the foreign module holds the rows of the parts, one after the other,
// in the given order. A module is a tensor's name without ".weight" or
// ".bias"; "#" stands for the block's number, "@" for the expert's.
//
// Several links may name one part: the first whose tensor exists is read.
type link struct {
	foreign string
	parts   []string
	// order maps a row of the foreign tensor to its row in the joined parts,
	// for the block; nil is the identity.
	order func(g *Graph, block int) []int64
	// bare foreign names have no ".weight".
	bare bool
	// transposed weights are stored [K][N].
	transposed bool
}

// one links a module to one of the same rows.
func one(foreign, part string) link { return link{foreign: foreign, parts: []string{part}} }

// suffixes that a module's tensors have.
var suffixes = []string{".weight", ".bias"}

// split takes a tensor's name apart: its module with "#" for the block, the
// block or -1, and the suffix.
func split(name string) (pattern string, block int, suffix string) {
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

// fill puts the block's and the expert's number into a pattern.
func fill(pattern string, block, expert int) string {
	s := strings.Replace(pattern, "#", strconv.Itoa(block), 1)
	return strings.Replace(s, "@", strconv.Itoa(expert), 1)
}

// name returns the foreign tensor's name for a suffix of the graph's.
func (l *link) name(block, expert int, suffix string) string {
	if l.bare {
		suffix = strings.TrimPrefix(suffix, ".weight")
	}
	return fill(l.foreign, block, expert) + suffix
}

// perExpert reports whether the foreign world keeps experts apart.
func (l *link) perExpert() bool { return strings.Contains(l.foreign, "@") }

// partIndex returns the place of a pattern among the parts, or -1.
func (l *link) partIndex(pattern string) int {
	for i, p := range l.parts {
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
func rotaryOrder(heads func(a *Attention) int64) func(*Graph, int) []int64 {
	return func(g *Graph, block int) []int64 {
		a := &g.Blocks[block].Attn
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
func fusedRotaryOrder(g *Graph, block int) []int64 {
	a := &g.Blocks[block].Attn
	order := rotaryOrder(queryHeads)(g, block)
	for _, i := range rotaryOrder(keyHeads)(g, block) {
		order = append(order, a.Q.Out+i)
	}
	for i := range a.V.Out {
		order = append(order, a.Q.Out+a.K.Out+i)
	}
	return order
}

func queryHeads(a *Attention) int64 { return a.Heads }
func keyHeads(a *Attention) int64   { return a.KVHeads }

// perHeadOrder is the order of a fused projection that keeps query, key and
// value of one head together (GPT-NeoX).
func perHeadOrder(g *Graph, block int) []int64 {
	a := &g.Blocks[block].Attn
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
func perExpertOrder(g *Graph, block int) []int64 {
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
