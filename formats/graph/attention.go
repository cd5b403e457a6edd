package graph

import "math"

// An Attention is causal grouped-query attention. Query head h reads
// key-value head h/(Heads/KVHeads).
//
//	score[t][s] = softcap(Scale * q[t]·k[s])  for s <= t and, with a Window w, s > t-w,
//	                                          with a Chunk c, floor(s/c) = floor(t/c)
//	p[t][s]     = exp(score[t][s]) / (sum over s of exp(score[t][s]) + exp(sink))
//	y[t]        = O(sigmoid(Gate x[t]) * sum over s of p[t][s]*v[s])
//
// With a Temperature, q[t] is multiplied by 1 + Beta*ln(1 + floor((t+Offset)/Every)).
// exp(sink) is there with Sinks alone: a score that every query of a head
// sees besides, and whose value is 0. So is the factor with Gate.
type Attention struct {
	Heads   int64   `json:"heads"`             // query heads
	KVHeads int64   `json:"kv_heads"`          // key and value heads
	HeadDim int64   `json:"head_dim"`          // features per head
	Scale   float32 `json:"scale"`             // factor on the scores
	Softcap float32 `json:"softcap,omitempty"` // c: score = c*tanh(score/c), before masking; 0 = none
	Window  int64   `json:"window,omitempty"`  // positions attended, the own included; 0 = all
	Chunk   int64   `json:"chunk,omitempty"`   // positions of a run that see one another; 0 = all. Not beside a Window
	Rope    int     `json:"rope"`              // index into Graph.Ropes, -1 = none
	Sinks   string  `json:"sinks,omitempty"`   // tensor [Heads]
	// KVFrom is the block whose keys and values are read, an earlier one that has
	// its own; nil: the own. K, V and their norms are nil then.
	KVFrom *int `json:"kv_from,omitempty"`
	// Temperature is a factor on queries that grows with their position; nil: none.
	Temperature *Temperature `json:"temperature,omitempty"`
	// JointNorms are QNorm and KNorm over all heads at once, LateNorms behind the
	// rotation; not both. With HeadNorms, QNorm and KNorm have weights for each head:
	// tensors [Heads][HeadDim] and [KVHeads][HeadDim]; not with JointNorms.
	JointNorms bool    `json:"joint_norms,omitempty"`
	LateNorms  bool    `json:"late_norms,omitempty"`
	HeadNorms  bool    `json:"head_norms,omitempty"`
	QNorm      *Norm   `json:"q_norm,omitempty"` // over each head, before rotation
	KNorm      *Norm   `json:"k_norm,omitempty"`
	VNorm      *Norm   `json:"v_norm,omitempty"` // over each head
	Gate       *Linear `json:"gate,omitempty"`   // [Heads*HeadDim][D]
	Q          Linear  `json:"q"`                // [Heads*HeadDim][D]
	K          *Linear `json:"k,omitempty"`      // [KVHeads*HeadDim][D]
	V          *Linear `json:"v,omitempty"`      // [KVHeads*HeadDim][D]; nil: values are what K gives, before KNorm
	O          Linear  `json:"o"`                // [D][Heads*HeadDim]
}

// A Temperature is the factor 1 + Beta*ln(1 + floor((position+Offset)/Every)) on
// queries.
//
// Source: transformers 5.23, get_llama_4_attn_scale of Ministral 3 and Llama 4 (whose
// positions count from 1).
type Temperature struct {
	Beta   float32 `json:"beta"`
	Every  int64   `json:"every"`
	Offset int64   `json:"offset,omitempty"`
}

// At returns the factor at a position.
func (t *Temperature) At(position int64) float32 {
	return float32(1 + float64(t.Beta)*math.Log(1+float64((position+t.Offset)/t.Every)))
}

// Borrows reports whether keys and values are an earlier block's; what is no attention
// borrows none.
func (a *Attention) Borrows() bool { return a != nil && a.KVFrom != nil }

// KeysOf returns the block whose keys and values, or latents, block i reads: i where they
// are its own; false where it reads none.
func (g *Graph) KeysOf(i int) (block int, ok bool) {
	b := &g.Blocks[i]
	if b.Attn.Borrows() {
		return *b.Attn.KVFrom, true
	}
	return i, b.Attn != nil || b.Latent != nil
}

func (a *Attention) parts(l *lister) {
	q, kv := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	l.linear("attn.q", &a.Q, l.width, q)
	l.linear("attn.k", a.K, l.width, kv)
	l.linear("attn.v", a.V, l.width, kv)
	l.linear("attn.gate", a.Gate, l.width, q)
	if !a.JointNorms {
		q, kv = a.HeadDim, a.HeadDim
	}
	if a.HeadNorms {
		l.norms("attn.q_norm", a.QNorm, a.Heads, a.HeadDim)
		l.norms("attn.k_norm", a.KNorm, a.KVHeads, a.HeadDim)
	} else {
		l.norm("attn.q_norm", a.QNorm, q)
		l.norm("attn.k_norm", a.KNorm, kv)
	}
	l.norm("attn.v_norm", a.VNorm, a.HeadDim)
	l.vector("attn.sinks", a.Sinks, a.Heads)
	l.linear("attn.o", &a.O, a.Heads*a.HeadDim, l.width)
}

func (a *Attention) check(c *checker) {
	c.within("attn.heads", a.Heads, 1<<16)
	c.within("attn.kv_heads", a.KVHeads, 1<<16)
	c.within("attn.head_dim", a.HeadDim, 1<<16)
	if c.err != nil {
		return
	}
	if a.Heads%a.KVHeads != 0 {
		c.fail("attn.heads", "%d is not a multiple of %d key-value heads", a.Heads, a.KVHeads)
	}
	if a.Rope < -1 || a.Rope >= len(c.g.Ropes) {
		c.fail("attn.rope", "%d is not one of %d", a.Rope, len(c.g.Ropes))
	} else if a.Rope >= 0 && c.g.Ropes[a.Rope].Dim > a.HeadDim {
		c.fail("attn.rope", "rotates %d numbers of a head of %d", c.g.Ropes[a.Rope].Dim, a.HeadDim)
	}
	if a.Window < 0 || !(a.Softcap >= 0) {
		c.fail("attn", "window %d and softcap %v must not be negative", a.Window, a.Softcap)
	}
	if a.Chunk < 0 || a.Chunk > 0 && a.Window > 0 {
		c.fail("attn.chunk", "%d is negative, or stands beside a window", a.Chunk)
	}
	if a.JointNorms && a.LateNorms {
		c.fail("attn.late_norms", "norms of all heads at once stand before the rotation")
	}
	if a.JointNorms && a.HeadNorms {
		c.fail("attn.head_norms", "norms of all heads at once have one vector of weights")
	}
	if t := a.Temperature; t != nil {
		c.finite("attn.temperature.beta", t.Beta)
		c.within("attn.temperature.every", t.Every, 1<<40)
		if t.Offset < 0 || t.Offset > 1<<40 {
			c.fail("attn.temperature.offset", "%d is not between 0 and 2^40", t.Offset)
		}
	}
	if a.KVFrom != nil {
		a.checkShared(c)
	} else if a.K == nil {
		c.fail("attn.k", "is missing")
	}
	c.finite("attn.scale", a.Scale)
	c.finite("attn.softcap", a.Softcap)
}

// checkShared holds keys and values of another block to those that are read.
func (a *Attention) checkShared(c *checker) {
	from := *a.KVFrom
	if from < 0 || from >= c.block || c.mtp {
		c.fail("attn.kv_from", "%d is no block before this one", from)
		return
	}
	switch o := c.g.Blocks[from].Attn; {
	case a.K != nil || a.V != nil || a.KNorm != nil || a.VNorm != nil:
		c.fail("attn.kv_from", "keys and values are block %d's and the block's own", from)
	case o == nil || o.Borrows():
		c.fail("attn.kv_from", "block %d has no keys and values of its own", from)
	case o.KVHeads != a.KVHeads || o.HeadDim != a.HeadDim:
		c.fail("attn.kv_from", "block %d has %d key-value heads of %d, not %d of %d", from, o.KVHeads, o.HeadDim, a.KVHeads, a.HeadDim)
	}
}

// Settled returns the last of blocks lo to hi that adds to what a sequence remembers, lo
// where none does. Of a row whose logits nobody wants, nothing behind it has to be
// computed.
func (g *Graph) Settled(lo, hi int) int {
	for i := hi - 1; i > lo; i-- {
		if b := &g.Blocks[i]; b.Mixes() && !b.Attn.Borrows() {
			return i
		}
	}
	return lo
}

// Carried lists the blocks before block i whose keys and values it or later ones
// read, in order.
func (g *Graph) Carried(i int) (out []int) {
	for from := range i {
		for _, b := range g.Blocks[i:] {
			if a := b.Attn; a.Borrows() && *a.KVFrom == from {
				out = append(out, from)
				break
			}
		}
	}
	return out
}

// WidestRow returns the most numbers of a row that any block gets: see [Graph.RowWidth].
func (g *Graph) WidestRow() int64 {
	n := g.Width
	for i := range g.Blocks {
		n = max(n, g.RowWidth(i))
	}
	return n
}

// RowWidth returns the numbers of a row that block i gets of the blocks before it,
// where those run elsewhere: the hidden state, and behind it the keys and the values
// of each block in [Graph.Carried], as they are stored.
func (g *Graph) RowWidth(i int) int64 {
	n := g.Width
	for _, from := range g.Carried(i) {
		a := g.Blocks[from].Attn
		n += 2 * a.KVHeads * a.HeadDim
	}
	return n
}
