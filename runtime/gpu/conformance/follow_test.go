package conformance

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
)

// A followCase is steps of two sequences that read some of their pages, and a row that is
// too short for that.
type followCase struct {
	format     cpu.KVFormat
	d          int
	heads, kvs int
	softcap    float32
	sinks      bool
	position   int     // of the first sequence; the other is shorter by a page and a half
	share      float64 // of pages
	mass       float32
	least      int  // pages that are read at least
	odd        bool // a page has no finite summary
	drafts     bool // each step is two rows of the first sequence
	matrix     bool // see hip.Attend
	tolerance  float64
}

func (c followCase) String() string {
	return fmt.Sprintf("%v D=%d heads=%d/%d cap=%g sinks=%v position=%d share=%g mass=%g least=%d odd=%v drafts=%v matrix=%v", c.format, c.d, c.heads, c.kvs, c.softcap, c.sinks, c.position, c.share, c.mass, c.least, c.odd, c.drafts, c.matrix)
}

// A followPage is a page of one head as it is stored, turned where the format turns.
type followPage struct {
	keys, values         [2][][]float32 // [64], and as rows that are near see them
	mean, spread, middle []float64      // rounded to halves
	odd                  bool
}

// held is what is stored of a vector, and what rows see of it that are near.
func held(f cpu.KVFormat, x []float32, key bool) [2][]float32 {
	far := storedVector(f, x, key)
	if !f.Coded() {
		return [...][]float32{far, far}
	}
	return [...][]float32{far, nearOf(f, x, len(x), len(x))}
}

// seenAs says which of them a row sees of a page.
func seenAs(page, position int) int {
	if page < cpu.KVFirst || int64(page)*64 >= cpu.NewestFrom(int64(position)) {
		return 1
	}
	return 0
}

// half rounds as what is stored of summaries is.
func half(x float64) float64 {
	return float64(storedVector(cpu.KVF16, []float32{float32(x)}, true)[0])
}

func (p *followPage) summarize(d int) {
	p.mean, p.spread, p.middle = make([]float64, d), make([]float64, d), make([]float64, d)
	for i := range d {
		var mean, spread, middle float64
		for j := range p.keys[0] {
			mean += float64(p.keys[0][j][i]) / 64
			middle += float64(p.values[0][j][i]) / 64
		}
		for j := range p.keys[0] {
			spread += (float64(p.keys[0][j][i]) - mean) * (float64(p.keys[0][j][i]) - mean) / 64
		}
		p.odd = p.odd || math.Abs(mean) > 65504 || spread > 65504 || math.Abs(middle) > 65504
		p.mean[i], p.spread[i], p.middle[i] = half(mean), half(spread), half(middle)
	}
	if p.odd {
		clear(p.mean)
		clear(p.spread)
		clear(p.middle)
	}
}

// A followed is one head of a sequence: its pages, and its history by the definition.
type followed struct {
	pages              []followPage
	steps              int
	without, with, out float64
	ratio              []float64
}

// step is the definition, in float64: see runtime/cpu/follow.go. It returns what each query gives,
// the size of what is added up, and how many pages were read.
func (f *followed) step(c *followCase, q [][]float32, sinks []float64, scale float64, position int) (out, size [][]float64, read int) {
	pages := position/64 + 1
	known := max(pages-2, 1)
	logs, told := make([][]float64, len(q)), make([][]float64, len(q))
	dot := func(q []float32, x []float32) (z float64) {
		for i, v := range x {
			z += float64(q[i]) * float64(v)
		}
		if z *= scale; c.softcap != 0 {
			z = float64(c.softcap) * math.Tanh(z/float64(c.softcap))
		}
		return z
	}
	seen := func(q []float32, page int) float64 {
		sum := 0.
		for j, k := range f.pages[page].keys[seenAs(page, position)] {
			if page*64+j <= position {
				sum += math.Exp(dot(q, k))
			}
		}
		return math.Log(sum)
	}
	for i := range q {
		logs[i], told[i] = make([]float64, pages), make([]float64, pages)
		for p := range pages {
			if p == 0 || p >= known {
				logs[i][p] = seen(q[i], p)
				continue
			}
			var z, more float64
			for d, x := range q[i] {
				z += float64(x) * f.pages[p].mean[d]
				more += float64(x) * float64(x) * f.pages[p].spread[d]
			}
			if z *= scale; c.softcap != 0 {
				z = float64(c.softcap) * math.Tanh(z/float64(c.softcap))
			}
			told[i][p] = math.Log(64) + z + 0.35*scale*scale*more
			logs[i][p] = told[i][p] + 0.5*f.ratio[p]
		}
	}
	shares := func() [][]float64 {
		all := make([][]float64, len(q))
		for i := range q {
			sum := math.Exp(sinks[i])
			for _, x := range logs[i] {
				sum += math.Exp(x)
			}
			for _, x := range logs[i] {
				all[i] = append(all[i], math.Exp(x)/sum)
			}
		}
		return all
	}
	weights := make([]float64, pages)
	for _, s := range shares() {
		for p, x := range s {
			weights[p] += x / float64(len(q))
		}
	}
	chosen, have, room := make([]bool, pages), 0., pages
	if c.share < 1 {
		room = max(int(math.Ceil(c.share*float64(pages))), c.least)
	}
	var order []int
	for p := range pages {
		if p == 0 || p >= known || f.pages[p].odd {
			chosen[p] = true
			room--
			if !f.pages[p].odd || p == 0 || p >= known {
				have += weights[p]
			}
			continue
		}
		order = append(order, p)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case weights[a] > weights[b]:
			return -1
		case weights[a] < weights[b]:
			return 1
		}
		return a - b
	})
	for _, p := range order {
		if room <= 0 || c.share < 1 && c.mass < 1 && have >= float64(c.mass) {
			break
		}
		chosen[p] = true
		have += weights[p]
		room--
	}
	left := 0.
	for p, w := range weights {
		if !chosen[p] {
			left += w
		}
		if chosen[p] {
			read++
		}
	}
	learns := c.share < 1
	all := learns && (f.steps == 0 || f.steps >= followRefresh || f.steps >= 16 && left > f.out+0.4)
	stand := learns && (all || f.with < f.without)
	if all {
		read = pages
	}
	for i := range q {
		for p := 1; p < known; p++ {
			if chosen[p] {
				logs[i][p] = seen(q[i], p)
			}
		}
	}
	estimated := shares()
	var without, with float64
	for i := range q {
		exact := func(take func(p int) bool) (sum float64, v, size []float64) {
			v, size = make([]float64, c.d), make([]float64, c.d)
			for p := range pages {
				at := seenAs(p, position)
				for j := range f.pages[p].keys[at] {
					if !take(p) || p*64+j > position {
						continue
					}
					w := math.Exp(dot(q[i], f.pages[p].keys[at][j]))
					sum += w
					for d, x := range f.pages[p].values[at][j] {
						v[d] += w * float64(x)
						size[d] += w * math.Abs(float64(x))
					}
				}
			}
			return sum, v, size
		}
		sum, v, abs := exact(func(p int) bool { return chosen[p] })
		whole, w, most := exact(func(p int) bool { return true })
		sum, whole = sum+math.Exp(sinks[i]), whole+math.Exp(sinks[i])
		share := 0.
		for p, x := range estimated[i] {
			if !chosen[p] {
				share += x
			}
		}
		o, s := make([]float64, c.d), make([]float64, c.d)
		for d := range c.d {
			a, mixed := v[d]/sum, v[d]/sum*(1-share)
			for p := range pages {
				if !chosen[p] {
					mixed += estimated[i][p] * f.pages[p].middle[d]
				}
			}
			full := w[d] / whole
			without, with = without+(a-full)*(a-full), with+(mixed-full)*(mixed-full)
			switch {
			case all:
				o[d], s[d] = full, most[d]/whole
			case stand:
				o[d], s[d] = mixed, abs[d]/sum
			default:
				o[d], s[d] = a, abs[d]/sum
			}
		}
		out, size = append(out, o), append(size, s)
	}
	if !learns {
		return out, size, read
	}
	fresh := f.steps == 0
	if f.out = 0.9*f.out + 0.1*left; all && fresh {
		f.out = left
	}
	keep := 0.7
	if all {
		old := 0.5
		if fresh {
			old = 0
		}
		f.without, f.with = old*f.without+(1-old)*without, old*f.with+(1-old)*with
		keep, f.steps = 0, 0
		for i := range q {
			for p := 1; p < known; p++ {
				logs[i][p] = seen(q[i], p)
			}
		}
	}
	now := shares()
	for p := 1; p < known; p++ {
		if !chosen[p] && !all {
			continue
		}
		var sum, weight float64
		for i := range q {
			sum, weight = sum+now[i][p]*(logs[i][p]-told[i][p]), weight+now[i][p]
		}
		f.ratio[p] = keep*f.ratio[p] + (1-keep)*max(-4, min(sum/weight, 4))
	}
	f.steps++
	return out, size, read
}

const followRefresh = 4

func (c followCase) check(t *testing.T, m *machine, r *rand.Rand) {
	second := c.position - 96
	b := newBatch(r, int32(c.position+8), int32(second+8))
	kv := poolOf(hip.KV{Format: c.format, Heads: c.kvs, Dim: c.d, Summarized: true}, b.pool)
	pool := newHostPool(kv)
	group := c.heads / c.kvs
	var heads [2][]followed
	for s := range heads {
		for h := range c.kvs {
			f := followed{pages: make([]followPage, b.maxPages), ratio: make([]float64, b.maxPages)}
			for p := range f.pages {
				about, to := ordinary(r, c.d), ordinary(r, c.d) // pages differ
				for j := range 64 {
					k, v := ordinary(r, c.d), ordinary(r, c.d)
					for i := range k {
						k[i], v[i] = 0.7*k[i]+about[i], v[i]+to[i]
					}
					if c.odd && p == 2 && j == 5 && s == 0 {
						v[0] = 5e6
					}
					vector := b.at(&kv, s, p*64+j, h)
					pool.store(vector, k, true)
					pool.store(vector, v, false)
					for at, x := range held(c.format, k, true) {
						f.pages[p].keys[at] = append(f.pages[p].keys[at], x)
					}
					for at, x := range held(c.format, v, false) {
						f.pages[p].values[at] = append(f.pages[p].values[at], x)
					}
				}
				f.pages[p].summarize(c.d)
			}
			heads[s] = append(heads[s], f)
		}
	}
	cache := m.put(t, pool.raw)
	kv.Base = cache.address()
	table := m.put(t, twoHalves(b.pages, b.maxPages, b.pool))
	for s, last := range []int{c.position, second} {
		op := hip.Summarize{KV: kv, Table: table.address() + hip.Address(8*s*b.maxPages), Count: last/64 + 1}
		m.run(t, op.Calls(m.target))
	}
	c.wantSummaries(t, &b, &kv, heads[:], cache, []int{c.position, second})

	owner := []int32{0, 1, 1}
	if c.drafts {
		owner = []int32{0, 1, 0, 1}
	}
	rows := len(owner)
	histories := m.put(t, make([]float32, 2*c.kvs*hip.HistoryFloats(2*b.maxPages)))
	shares, sinks, least := make([]float64, c.kvs), make([]float32, c.heads), second-64
	for i := range shares {
		shares[i] = c.share
	}
	none := make([]float64, c.heads)
	for i := range none {
		if none[i] = math.Inf(-1); c.sinks {
			sinks[i] = float32(2 * r.NormFloat64())
			none[i] = float64(sinks[i])
		}
	}
	positions, queries, out := m.put(t, make([]int32, rows)), m.put(t, make([]float32, rows*c.heads*c.d)), m.put(t, make([]float32, rows*c.heads*c.d))
	counts := m.put(t, make([]uint64, 2))
	op := hip.Follow{Attend: hip.Attend{
		Rows:   hip.Rows{T: rows, MaxPages: 2 * b.maxPages, Position: positions.address(), Owner: m.put(t, owner).address(), Pages: table.address()},
		Matrix: c.matrix, KV: kv, Heads: c.heads, Scale: float32(1 / math.Sqrt(float64(c.d))), Softcap: c.softcap, Capacity: c.position + 64, Q: queries.address(), Out: out.address()},
		Histories: histories.address(), HistoryHeads: c.kvs, Shares: m.put(t, shares).address(), Mass: c.mass,
		Least: least, LeastPages: c.least, Refresh: followRefresh, Rank: -1, Counts: counts.address()}
	if c.sinks {
		op.Sinks = m.put(t, sinks).address()
	}
	op.Work = m.put(t, bytesOf(slices.Repeat([]float32{float32(math.NaN())}, int(op.FollowBytes(m.target)/4)))).address()
	beside := op
	beside.Out, beside.Counts, beside.Histories = m.put(t, make([]float32, rows*c.heads*c.d)).address(), m.put(t, make([]uint64, 2)).address(), m.put(t, make([]float32, 2*c.kvs*hip.HistoryFloats(2*b.maxPages))).address()
	beside.Work = m.put(t, make([]float32, op.FollowBytes(m.target)/4)).address()
	hosted, uses := op, m.put(t, make([]uint32, 2*2*b.maxPages))
	hosted.KV, hosted.Uses = m.hosted(t, kv), uses.address()
	base, worst, read, held := ordinary(r, rows*c.heads*c.d), 0., 0, 0
	for step := range 6 {
		now := []int32{int32(c.position + step), int32(second + step), int32(least - 1)}
		if c.drafts {
			now = []int32{int32(c.position - 12 + 2*step), int32(second + step), int32(c.position - 11 + 2*step), int32(least - 1)}
		}
		q := ordinary(r, len(base))
		for i := range q {
			q[i] = base[i] + 0.5*q[i] // steps are alike
		}
		positions.set(t, now)
		queries.set(t, q)
		out.set(t, slices.Repeat([]float32{-7}, len(q)))
		before := make([]float32, 2*c.kvs*hip.HistoryFloats(2*b.maxPages))
		histories.get(t, before)
		got, again := make([]float32, len(q)), make([]float32, len(q))
		run := func(to []float32) {
			if op.Rank = -1; c.drafts {
				op.Rank = 0
				m.run(t, append(op.Calls(m.target), (&hip.Learn{Of: &op}).Calls(m.target)...))
				op.Rank = 1
			}
			m.run(t, op.Calls(m.target))
			// Every other step learns beside the choice of another that is alike.
			if step%2 == 0 {
				m.run(t, (&hip.Learn{Of: &op}).Calls(m.target))
			} else {
				beside.Rank, beside.Before, beside.Uses = op.Rank, &op, op.Uses
				if !op.Fits(&beside, m.target) {
					t.Fatal("a step does not fit beside one that is alike")
				}
				m.run(t, beside.Calls(m.target))
			}
			out.get(t, to)
		}
		plain := op
		op = hosted // pages in the host's memory
		run(again)
		op = plain
		histories.set(t, before)
		counts.set(t, []uint64{uint64(read), uint64(held)})
		run(got)
		if !slices.Equal(got, again) {
			t.Fatalf("step %d gives other numbers where pages lie in the host's memory", step)
		}
		histories.set(t, before)
		counts.set(t, []uint64{uint64(read), uint64(held)})
		run(again)
		if !slices.Equal(got, again) {
			t.Fatalf("step %d gives other numbers when it is run again", step)
		}
		turned := slices.Clone(q)
		if c.format.Coded() {
			c.format.Turn(turned, c.d, c.d)
		}
		for row, position := range now {
			for h := range c.kvs {
				at := row*c.heads + h*group
				if int(position) < least {
					if i := slices.IndexFunc(got[at*c.d:(at+group)*c.d], func(x float32) bool { return x != -7 }); i >= 0 {
						t.Fatalf("row %d, which is too short, was written", row)
					}
					continue
				}
				var qs [][]float32
				for g := range group {
					qs = append(qs, turned[(at+g)*c.d:(at+g+1)*c.d])
				}
				want, size, n := heads[owner[row]][h].step(&c, qs, none[h*group:(h+1)*group], float64(op.Scale), int(position))
				read, held = read+n, held+int(position)/64+1
				for g := range group {
					have := slices.Clone(got[(at+g)*c.d : (at+g+1)*c.d])
					if c.format.Coded() {
						c.format.Turn(have, c.d, c.d)
					}
					for d, x := range want[g] {
						e := math.Abs(float64(have[d])-x) / slices.Max(size[g]) * (1 << 24)
						if !(e <= c.tolerance) {
							t.Fatalf("step %d row %d query %d number %d is %g, want %g: error %.1f units, %.1f are allowed", step, row, h*group+g, d, have[d], x, e, c.tolerance)
						}
						worst = max(worst, e)
					}
				}
			}
		}
		learned := make([]float32, len(before))
		histories.get(t, learned)
		for s := range heads {
			for h := range heads[s] {
				f, at := &heads[s][h], learned[(s*c.kvs+h)*hip.HistoryFloats(2*b.maxPages):]
				for i, want := range append([]float64{float64(f.steps), f.without, f.with, f.out}, f.ratio...) {
					if e := math.Abs(float64(at[i]) - want); !(e <= 1e-3*math.Abs(want)+1e-5) {
						t.Fatalf("step %d: number %d of the history of sequence %d, head %d, is %g, want %g", step, i, s, h, at[i], want)
					}
				}
			}
		}
		counted := make([]uint64, 2)
		counts.get(t, counted)
		if counted[0] != uint64(read) || counted[1] != uint64(held) {
			t.Fatalf("step %d: %d of %d pages counted, want %d of %d", step, counted[0], counted[1], read, held)
		}
	}
	used := make([]uint32, 2*2*b.maxPages)
	uses.get(t, used)
	if used[0] != 0 || used[2*b.maxPages] != 0 || c.share < 1 && slices.Max(used) == 0 {
		t.Errorf("pages chosen %d times", used)
	}
	t.Logf("largest error %.1f units of 2^-24; %d of %d pages", worst, read, held)
	if c.share < 1 && read >= held {
		t.Error("all pages were read")
	}
}

// wantSummaries wants those of the definition, to the bit.
func (c *followCase) wantSummaries(t *testing.T, b *batch, kv *hip.KV, heads [][]followed, cache *memory, last []int) {
	t.Helper()
	width := (c.d + 7) / 8 * 8
	n, at := 3*width+8, int(kv.Summaries()-kv.Base)
	all := make([]byte, kv.Bytes())
	cache.get(t, all)
	raw := make([]uint16, n*kv.Heads*kv.Pages)
	if _, err := binary.Decode(all[at:], binary.LittleEndian, raw); err != nil {
		t.Fatal(err)
	}
	value := func(h uint16) float64 {
		x := make([]float32, 1)
		cpu.Best().DecodeF16(x, []byte{byte(h), byte(h >> 8)})
		return float64(x[0])
	}
	for s := range heads {
		for h := range heads[s] {
			for p := range last[s]/64 + 1 {
				page := &heads[s][h].pages[p]
				at := raw[(int(b.pages[s*b.maxPages+p])*kv.Heads+h)*n:]
				for i := range c.d {
					if value(at[i]) != page.mean[i] || value(at[width+i]) != page.spread[i] || value(at[2*width+i]) != page.middle[i] {
						t.Fatalf("page %d of sequence %d, head %d, number %d: %g, %g, %g, want %g, %g, %g", p, s, h, i, value(at[i]), value(at[width+i]), value(at[2*width+i]), page.mean[i], page.spread[i], page.middle[i])
					}
				}
				if (at[3*width] != 0) != page.odd {
					t.Fatalf("page %d of sequence %d, head %d: odd %d, want %v", p, s, h, at[3*width], page.odd)
				}
			}
		}
	}
}

func TestFollow(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(3, 18))
	for _, c := range []followCase{
		{format: cpu.KVF16, d: 128, heads: 8, kvs: 2, position: 1000, share: 0.35, mass: 1},
		{format: cpu.KVF32, d: 64, heads: 4, kvs: 4, position: 700, share: 0.5, mass: 1, odd: true},
		{format: cpu.KVQ8, d: 96, heads: 3, kvs: 1, position: 900, share: 0.4, mass: 1, sinks: true},
		{format: cpu.KVQ4, d: 128, heads: 8, kvs: 2, position: 830, share: 0.35, mass: 1},
		{format: cpu.KVF16, matrix: true, d: 128, heads: 8, kvs: 2, position: 1000, share: 0.35, mass: 1},
		{format: cpu.KVQ4, matrix: true, d: 128, heads: 8, kvs: 2, position: 830, share: 0.35, mass: 1},
		{format: cpu.KVF16, d: 64, heads: 7, kvs: 1, position: 1500, share: 0.9, mass: 0.6},
		{format: cpu.KVQ5, d: 64, heads: 6, kvs: 2, position: 640, share: 0.3, mass: 1, least: 8, softcap: 20},
		{format: cpu.KVQ3, d: 80, heads: 4, kvs: 2, position: 575, share: 0.5, mass: 1, drafts: true},
		{format: cpu.KVF16, d: 20, heads: 26, kvs: 2, position: 600, share: 1, mass: 1, sinks: true},
		{format: cpu.KVF32, d: 33, heads: 2, kvs: 1, position: 2500, share: 0.2, mass: 0.9, odd: true, drafts: true},
		{format: cpu.KVF16, d: 256, heads: 8, kvs: 1, position: 400, share: 0.7, mass: 1, softcap: 50},
		{format: cpu.KVF16, matrix: true, d: 512, heads: 4, kvs: 1, position: 400, share: 0.5, mass: 1},
		{format: cpu.KVQ4, matrix: true, d: 512, heads: 4, kvs: 1, position: 460, share: 0.5, mass: 1},
		{format: cpu.KVF32, d: 4, heads: 13, kvs: 1, position: 35000, share: 0.1, mass: 1, odd: true}, // more pages than threads keep
	} {
		c.tolerance = 40
		if sampled(t) {
			t.Run(c.String(), func(t *testing.T) { c.check(t, m, r) })
		}
	}
}

// TestFollowTurns wants the bits of queries, keys and values that were finished before, also where two rows are of
// one sequence that has one which is too short.
func TestFollowTurns(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(19, 18))
	for _, c := range []struct {
		format        cpu.KVFormat
		d, heads, kvs int
		pairs         int
		norms, shared bool
		matrix        bool
		position      int
	}{
		{cpu.KVF16, 128, 8, 2, 64, true, false, true, 640},
		{cpu.KVQ4, 128, 8, 2, 64, false, false, true, 511},
		{cpu.KVF32, 64, 4, 4, 16, false, true, false, 460},
		{cpu.KVQ8, 96, 3, 1, 48, true, false, false, 450},
		{cpu.KVQ3, 20, 26, 2, 10, true, false, false, 448},
		{cpu.KVQ5, 64, 6, 2, 0, false, true, false, 390},
	} {
		if !sampled(t) {
			continue
		}
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			b := newBatch(r, int32(c.position+8), int32(c.position-60))
			kv := poolOf(hip.KV{Format: c.format, Heads: c.kvs, Dim: c.d, Summarized: true}, b.pool)
			pool := newHostPool(kv)
			for v := range b.pool * c.kvs * hip.PagePositions {
				pool.store(v, ordinary(r, c.d), true)
				pool.store(v, ordinary(r, c.d), false)
			}
			const rows = 3
			owner, table := m.put(t, []int32{0, 1, 1}), m.put(t, twoHalves(b.pages, b.maxPages, b.pool))
			shares := make([]float64, c.kvs)
			for i := range shares {
				shares[i] = 0.6
			}
			turn := hip.Rope{Turn: hip.Rotation{Pairs: c.pairs, Cosine: m.put(t, ordinary(r, rows*c.pairs+1)).address(), Sine: m.put(t, ordinary(r, rows*c.pairs+1)).address()}, Shared: c.shared}
			if c.norms {
				turn.QNorm = hip.Normal{Weight: m.put(t, ordinary(r, c.d)).address(), Eps: 1e-6}
				turn.KNorm = turn.QNorm
			}
			var queries, keys, values [3][]float32
			for step := range queries {
				queries[step], keys[step], values[step] = ordinary(r, rows*c.heads*c.d), ordinary(r, rows*c.kvs*c.d), ordinary(r, rows*c.kvs*c.d)
			}
			var got [2][][]byte
			for way := range got {
				cache, q, out := m.put(t, pool.raw), m.put(t, queries[0]), m.put(t, make([]float32, len(queries[0])))
				k, v, position := m.put(t, keys[0]), m.put(t, values[0]), m.put(t, make([]int32, rows))
				histories := m.put(t, make([]float32, 2*c.kvs*hip.HistoryFloats(2*b.maxPages)))
				kv.Base = cache.address()
				for s, last := range []int{c.position, c.position - 68} {
					op := hip.Summarize{KV: kv, Table: table.address() + hip.Address(8*s*b.maxPages), Count: last/64 - 1}
					m.run(t, op.Calls(m.target))
				}
				op := hip.Follow{Attend: hip.Attend{
					Rows:   hip.Rows{T: rows, MaxPages: 2 * b.maxPages, Position: position.address(), Owner: owner.address(), Pages: table.address()},
					Matrix: c.matrix, KV: kv, Heads: c.heads, Scale: 0.1, Capacity: c.position + 64, Q: q.address(), Out: out.address()},
					Histories: histories.address(), HistoryHeads: c.kvs, Shares: m.put(t, shares).address(), Mass: 1, Least: c.position - 68, Refresh: 1 << 20, Rank: -1, Counts: m.put(t, make([]uint64, 2)).address()}
				op.Work = m.put(t, make([]byte, op.FollowBytes(m.target))).address()
				for step := range queries {
					position.set(t, []int32{int32(c.position + step), int32(c.position - 68 + step), int32(c.position - 70)})
					q.set(t, queries[step])
					k.set(t, keys[step])
					v.set(t, values[step])
					rope := turn
					rope.K, rope.V = k.address(), v.address()
					if op.Turn = &rope; way == 0 { // before, and of rows that follow alone
						op.Turn, rope.Rows, rope.Heads, rope.Q, rope.KV = nil, op.Rows, c.heads, op.Q, kv
						rope.Rows.T = 2
						m.run(t, rope.Calls(m.target))
					}
					m.run(t, append(op.Calls(m.target), (&hip.Learn{Of: &op}).Calls(m.target)...))
					o, h := make([]byte, 4*len(queries[0])), make([]byte, 8*c.kvs*hip.HistoryFloats(2*b.maxPages))
					out.get(t, o)
					histories.get(t, h)
					got[way] = append(got[way], o, h)
				}
				all := make([]byte, len(pool.raw))
				cache.get(t, all)
				got[way] = append(got[way], all)
			}
			for i := range got[0] {
				if !bytes.Equal(got[0][i], got[1][i]) {
					t.Errorf("outputs, histories by turns of three steps, then what is stored: number %d differs", i)
				}
			}
		})
	}
}
