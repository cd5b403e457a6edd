package cpu

import (
	"math"

	"github.com/nstf/nstf/formats/model"
	kernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/cache"
	"github.com/nstf/nstf/runtime/device"
)

// A pass is the batch in progress, spread out by row, and the arguments of
// the work that the pool is doing. All slices keep their memory.
type pass struct {
	rows, from int
	segments   []segment
	tokens     []int32   // of each row
	positions  []int64   // of each row in its sequence
	owner      []int32   // segment of each row
	angles     []angles  // of each rope
	freq       []float32 // a rope's frequencies

	layer   int
	linear  linearWork
	peer    peerWork
	rowWork rowWork
	attend  attendWork
	rotated rotatedWork
	formed  formedWork
	routes  routes
}

type segment struct {
	kv    *cache.KV
	first int // row
	rows  int
}

// angles are the cosines and sines of one rope, [T][pairs].
type angles struct {
	pairs    int
	cos, sin []float32
}

// rowWork is the arguments of work done row by row.
type rowWork struct {
	dst, src      []float32
	branch, extra branch
	width         int
	norm          *norm
	act           kernels.Activation
	softcap       float32
	base          int
}

// parts are the functions that the pool calls, bound once: binding allocates.
type parts struct {
	linear, attend, rotated, thin, chain                              func(worker, part int)
	norm, place, act, residual, softcap, route, quantize, turn, round func(row int)
}

func (e *Engine) bindParts() parts {
	return parts{
		linear: e.linearPart, attend: e.attendPart, rotated: e.rotatedPart, thin: e.thinPart, chain: e.chainPart, turn: e.turnRow,
		norm: e.normRow, place: e.placeRow, act: e.actRow, residual: e.residualRow, softcap: e.softcapRow, route: e.routeRow, quantize: e.quantizeRow, round: e.roundRow,
	}
}

// eachRow calls f for rows 0 to t-1, spread over the threads where there are
// several.
func (e *Engine) eachRow(t int, f func(row int)) {
	if t == 1 {
		f(0)
		return
	}
	e.pool.Run(t, f)
}

// begin spreads a batch out.
func (e *Engine) begin(b *device.Batch) {
	p := &e.pass
	p.rows, p.from = b.Rows(), b.From
	if e.hook != nil {
		p.from = 0 // calibration sees every row of every linear
	}
	p.segments, p.tokens, p.positions, p.owner = p.segments[:0], p.tokens[:0], p.positions[:0], p.owner[:0]
	for i := range b.Segments {
		s := &b.Segments[i]
		kv := s.Cache.(*cache.KV)
		p.segments = append(p.segments, segment{kv, len(p.tokens), len(s.Tokens)})
		for j, id := range s.Tokens {
			p.tokens = append(p.tokens, id)
			p.positions = append(p.positions, kv.Len()+int64(j))
			p.owner = append(p.owner, int32(i))
		}
	}
	e.s.fit(e.g, p.rows)
	if p.angles == nil {
		p.angles = make([]angles, len(e.g.Ropes))
	}
	for i := range e.g.Ropes {
		p.turn(&p.angles[i], &e.g.Ropes[i], b)
	}
}

// turn computes a rope's angles for every row. The product of position and
// frequency is rounded to float32 before its cosine, as in the reference.
func (p *pass) turn(a *angles, r *model.Rope, b *device.Batch) {
	a.pairs = int(r.Dim / 2)
	a.cos, a.sin = fit(a.cos, p.rows*a.pairs), fit(a.sin, p.rows*a.pairs)
	for i, s := range p.segments {
		freq, factor := r.AppendFrequencies(p.freq[:0], b.Segments[i].Length)
		p.freq = freq
		for row := s.first; row < s.first+s.rows; row++ {
			pos := float32(p.positions[row])
			for j, f := range freq {
				sin, cos := math.Sincos(float64(pos * f))
				a.cos[row*a.pairs+j] = float32(cos) * factor
				a.sin[row*a.pairs+j] = float32(sin) * factor
			}
		}
	}
}

// scratch is the work space of a pass, one row after the other.
type scratch struct {
	rows             int
	x, h, a, f       []float32 // [T][D]: hidden state, normed, branch outputs
	q, att           []float32 // [T][H*HeadDim]
	k, v             []float32 // [T][KVHeads*HeadDim]
	gate, up         []float32 // [T][F]
	router           []float32 // [T][Experts]
	gathered, result []float32 // [T][D]: rows of one expert
}

// local is the work space of one worker.
type local struct {
	gemm    kernels.GemmScratch
	integer kernels.IntegerScratch
	attend  attendLocal
	chain   chainLocal
}

func (l *local) bytes() int64 { return l.attend.bytes() + int64(l.integer.Bytes()) + l.chain.bytes() }

// fit sizes the work space for t rows.
func (s *scratch) fit(g *model.Graph, t int) {
	if t <= s.rows {
		return
	}
	s.rows = t
	var q, kv, inner, experts int
	for i := range g.Blocks {
		b := &g.Blocks[i]
		q, kv = max(q, int(b.Attn.Q.Out)), max(kv, int(b.Attn.K.Out))
		if b.FFN != nil {
			inner = max(inner, int(b.FFN.Up.Out))
		}
		if b.MoE != nil {
			inner, experts = max(inner, int(b.MoE.Up.Out)), max(experts, int(b.MoE.Experts))
		}
	}
	d := int(g.Width)
	for _, buf := range []*[]float32{&s.x, &s.h, &s.a, &s.f} {
		*buf = make([]float32, t*d)
	}
	s.q, s.att = make([]float32, t*q), make([]float32, t*q)
	s.k, s.v = make([]float32, t*kv), make([]float32, t*kv)
	s.gate, s.up = make([]float32, t*inner), make([]float32, t*inner)
	if experts > 0 {
		s.router = make([]float32, t*experts)
		s.gathered, s.result = make([]float32, t*d), make([]float32, t*d)
	}
}

func (s *scratch) bytes() int64 {
	var n int
	for _, b := range [][]float32{s.x, s.h, s.a, s.f, s.q, s.att, s.k, s.v, s.gate, s.up, s.router, s.gathered, s.result} {
		n += cap(b)
	}
	return int64(n) * 4
}

// fit returns a slice of n elements, b's memory where it is large enough. It
// doubles, so that a sequence growing by one allocates rarely.
func fit[T any](b []T, n int) []T {
	if n <= cap(b) {
		return b[:n]
	}
	return make([]T, n, max(n, 2*cap(b)))
}
