package cpu

// perLayer is the tables of per-layer embeddings, without matrices where no block of
// the span reads them.
type perLayer struct {
	table, projection *matrix
	norm              *norm
}

// perLayerInputs computes e.s.inputs[T][blocks*Width], what all blocks read of each
// row beside its hidden state, by the formula of [graph.PerLayer]. It is called
// before the first block, and uses e.s.h where the span does not embed.
func (e *Engine) perLayerInputs() {
	p := &e.pass
	if e.perLayer.table == nil {
		return
	}
	x, d := e.s.x, int(e.g.Width)
	if !e.span.Embed {
		x = e.s.h
		e.embed(x)
	}
	e.multiplied(p.rows, x[:p.rows*d], []target{{e.perLayer.projection, e.s.inputs[:p.rows*e.perLayer.table.k]}})
	e.eachRow(p.rows, e.part.perLayer)
}

func (e *Engine) perLayerRow(row int) {
	of, w := e.g.PerLayer, e.perLayer.table.k
	c, t := e.s.inputs[row*w:(row+1)*w], e.s.looked[row*w:(row+1)*w]
	e.perLayer.table.rows(t, int(e.pass.tokens[row]))
	e.set.Scale(c, of.ProjectionScale)
	for at, n := 0, int(of.Width); at < w; at += n {
		e.normalize(c[at:at+n], c[at:at+n], e.perLayer.norm)
	}
	e.set.Axpy(c, of.Scale, t)
	e.set.Scale(c, of.Factor)
}

// injectRow multiplies what a block's gate gave with the row's own input.
func (e *Engine) injectRow(row int) {
	w, of := &e.pass.rowWork, int(e.g.PerLayer.Width)
	at := (w.base+row)*e.perLayer.table.k + w.width
	g := w.dst[row*of : (row+1)*of]
	e.set.ActivateMul(w.act, g, g, e.s.inputs[at:at+of])
}

// inject computes e.s.f[n][D], what block i adds for its own inputs of rows from lo
// on, whose hidden states are x[n][D].
func (e *Engine) inject(i, lo int, x []float32) {
	b, d := &e.blocks[i], int(e.g.Width)
	n, w := len(x)/d, &b.perLayer
	gate := e.s.gate[:n*w.gate.n]
	e.linear(n, x, noExpert, target{w.gate, gate})
	e.pass.rowWork = rowWork{dst: gate, width: (e.span.Lo + i) * w.gate.n, act: w.act, base: lo}
	e.eachRow(n, e.part.inject)
	e.linear(n, gate, noExpert, target{w.down, e.s.f[:n*d]})
}
