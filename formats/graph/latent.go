package graph

// A Latent is causal attention over latents (multi-head latent attention): keys and
// values of all heads follow from one vector of Rank numbers a position, and what is
// remembered of a position is that vector and one rotated key of RopeDim numbers. The
// matrices that would make keys and values of it are applied to queries and to what
// attention gives instead:
//
//	u         = QNorm(QA x), or x without a QA
//	(n, r)[h] = Q u, of each head NopeDim numbers and RopeDim that are rotated
//	(c, k)    = KVA x; c = KVNorm(c), k is rotated
//	score     = Scale * ((KB[h] n[t][h])·c[s] + r[t][h]·k[s])     for s <= t
//	y[t]      = O(heads of VB[h] (sum over s of softmax(score)[s] * c[s]))
//
// KB and VB are stacks of one matrix for each head.
//
// Source: DeepSeek-V2, arXiv 2405.04434, section 2.1 and appendix C; transformers 5.23,
// DeepseekV3Attention, whose kv_b_proj holds KB, transposed, and VB of each head.
type Latent struct {
	Heads    int64   `json:"heads"`
	NopeDim  int64   `json:"nope_dim"`  // numbers of a query that are not rotated
	RopeDim  int64   `json:"rope_dim"`  // those that are, and of the shared key
	ValueDim int64   `json:"value_dim"` // numbers of a head's output
	Rank     int64   `json:"rank"`      // of the latent
	Scale    float32 `json:"scale"`     // factor on the scores
	Rope     int     `json:"rope"`      // index into Graph.Ropes, -1 = none
	QNorm    *Norm   `json:"q_norm,omitempty"`
	KVNorm   *Norm   `json:"kv_norm"`
	QA       *Linear `json:"q_a,omitempty"` // [R][D] with R = QA.Out; nil: Q reads the block's input
	Q        Linear  `json:"q"`             // [Heads*(NopeDim+RopeDim)][R or D]
	KVA      Linear  `json:"kv_a"`          // [Rank+RopeDim][D]
	KB       Linear  `json:"k_b"`           // [Rank][NopeDim] of a head
	VB       Linear  `json:"v_b"`           // [ValueDim][Rank] of a head
	O        Linear  `json:"o"`             // [D][Heads*ValueDim]
}

// QueryDim returns the numbers of a head's query.
func (a *Latent) QueryDim() int64 { return a.NopeDim + a.RopeDim }

// KeyDim returns the numbers that are remembered of a position: the latent, then the
// rotated key.
func (a *Latent) KeyDim() int64 { return a.Rank + a.RopeDim }

func (a *Latent) parts(l *lister) {
	in := l.width
	l.linear("latent.kv_a", &a.KVA, l.width, a.KeyDim())
	if a.QA != nil {
		in = a.QA.Out
		l.linear("latent.q_a", a.QA, l.width, in)
		l.norm("latent.q_norm", a.QNorm, in)
	}
	l.linear("latent.q", &a.Q, in, a.Heads*a.QueryDim())
	l.norm("latent.kv_norm", a.KVNorm, a.Rank)
	l.stack("latent.k_b", &a.KB, a.Heads, a.Heads, a.NopeDim, a.Rank)
	l.stack("latent.v_b", &a.VB, a.Heads, a.Heads, a.Rank, a.ValueDim)
	l.linear("latent.o", &a.O, a.Heads*a.ValueDim, l.width)
}

// maxLatentDim bounds what one head or one position has, far above any model.
const maxLatentDim = 1 << 16

func (a *Latent) check(c *checker) {
	for _, f := range []struct {
		name string
		v    int64
	}{{"heads", a.Heads}, {"nope_dim", a.NopeDim}, {"rope_dim", a.RopeDim}, {"value_dim", a.ValueDim}, {"rank", a.Rank}} {
		c.within("latent."+f.name, f.v, maxLatentDim)
	}
	if a.QA != nil {
		c.within("latent.q_a", a.QA.Out, 1<<28)
	}
	if c.err != nil {
		return
	}
	if a.Rope < -1 || a.Rope >= len(c.g.Ropes) {
		c.fail("latent.rope", "%d is not one of %d", a.Rope, len(c.g.Ropes))
	} else if a.Rope >= 0 && c.g.Ropes[a.Rope].Dim != a.RopeDim {
		c.fail("latent.rope", "rotates %d numbers of %d", c.g.Ropes[a.Rope].Dim, a.RopeDim)
	}
	if (a.QA == nil) != (a.QNorm == nil) {
		c.fail("latent.q_norm", "and q_a are there both or not at all")
	}
	if a.KVNorm == nil {
		c.fail("latent.kv_norm", "is missing")
	} else if a.KVNorm.Kind != RMSNorm {
		c.unsupported("latent.kv_norm", "norm", string(a.KVNorm.Kind))
	}
	c.finite("latent.scale", a.Scale)
}

// Remembered returns the numbers of keys and values that a block's mixer keeps of a
// position, those that it shares with others included.
func (b *Block) Remembered() int64 {
	switch a, l := b.Attn, b.Latent; {
	case a != nil:
		return 2 * a.KVHeads * a.HeadDim
	case l != nil:
		return l.KeyDim()
	}
	return 0
}
