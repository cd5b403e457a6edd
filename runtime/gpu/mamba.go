package gpu

import (
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/runtime/load"
)

// mamba takes all rows through a state space up to its output matrix, which reads s.z
// then.
func (w *walk) mamba(b *block, in source) {
	e, s, m, n := w.e, w.s, &b.mamba, b.Mamba
	w.linear(w.t, in, target{w: m.z, y: s.z}, target{w: m.xbc, y: s.mixed}, target{w: m.dt, y: s.alpha})
	op := &hip.Mamba{Rows: w.rows(0), Sequences: w.sequences(), Heads: int(n.Heads), Groups: int(n.Groups), Dim: int(n.HeadDim), State: int(n.State),
		Kernel: int(n.Kernel), DecayLog: n.DecayLog, Least: n.MinStep, Most: n.Longest(), Conv: m.conv, Bias: m.bias, Decay: m.decay, DTBias: m.dtBias, Skip: m.skip,
		Norm: m.norm, Mixed: s.mixed, DT: s.alpha, Z: s.z, Turned: s.convolved, Gate: s.gates,
		Places: e.kept.table, Memory: e.remembered(b), Apart: e.kept.floats}
	if e.team == nil || squares(&e.team.whole.Blocks[b.index], e.team.Count) == 0 {
		w.do(op)
		return
	}
	op.Norm = hip.Normal{} // a group's, of which the rank has some heads
	w.do(op)
	all := e.team.whole.Blocks[b.index].Mamba
	group, _ := load.KeyHeads(all.Groups, e.team.Rank, e.team.Count)
	w.rankNorms(int(all.Groups), &hip.RankNorm{T: w.t, D: int(n.Values()), Width: int(all.Values() / all.Groups), X: s.z, Norm: m.norm, Column: int(group), Columns: int(all.Groups)})
}

// shortConv takes all rows through a short convolution up to its output matrix, which
// reads s.convolved then.
func (w *walk) shortConv(b *block, in source) {
	e, s, c, n := w.e, w.s, &b.shortConv, b.ShortConv
	w.linear(w.t, in, target{w: c.in, y: s.z})
	w.do(&hip.ShortConv{Rows: w.rows(0), Sequences: w.sequences(), Channels: int(n.Channels()), Kernel: int(n.Kernel), Conv: c.conv, Bias: c.bias,
		In: s.z, Out: s.convolved, Places: e.kept.table, Memory: e.remembered(b), Apart: e.kept.floats, Few: !w.many})
}
