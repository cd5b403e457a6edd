package conformance

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
)

// A promptFollowCase is rows of two sequences, of which whole pages choose what they read.
type promptFollowCase struct {
	format     cpu.KVFormat
	d          int
	heads, kvs int
	softcap    float32
	sinks      bool
	exact      bool
	odd        bool // a page has no finite summary
	page       int  // of the first block
	blocks     int
	share      float64 // of the pages; of the last head all
	tolerance  float64 // in units of 2^-24 of what is added up
	alike      float64 // pages whose weights are so near may be taken for one another
}

func (c promptFollowCase) String() string {
	return fmt.Sprintf("%v D=%d heads=%d/%d cap=%g sinks=%v exact=%v odd=%v page=%d blocks=%d share=%g", c.format, c.d, c.heads, c.kvs, c.softcap, c.sinks, c.exact, c.odd, c.page, c.blocks, c.share)
}

// promptLeast is how many pages are read at least.
const promptLeast = 5

// check holds the pages that are listed, and what comes of them, to the definition in float64.
func (c promptFollowCase) check(t *testing.T, m *machine, r *rand.Rand) {
	// ten rows in the middle of a page of the second sequence, blocks of the first, one block of
	// the second, seven rows behind it
	var position, owner []int32
	add := func(of, first, n int) {
		for i := range n {
			position, owner = append(position, int32(first+i)), append(owner, int32(of))
		}
	}
	add(1, c.page*64-74, 10)
	add(0, c.page*64, 64*c.blocks)
	add(1, c.page*64-64, 64+7)
	chosen := []hip.ChosenRows{{First: 10, Blocks: c.blocks}, {First: 10 + 64*c.blocks, Blocks: 1}}
	b := newBatch(r, position...)
	b.owner = owner
	b.pool = int(slices.Max(b.pages)) + 1
	kv := poolOf(hip.KV{Format: c.format, Heads: c.kvs, Dim: c.d, Summarized: true}, b.pool)
	pool := newHostPool(kv)
	group := c.heads / c.kvs
	var heads [2][][]followPage
	for s := range heads {
		for h := range c.kvs {
			pages := make([]followPage, c.page+c.blocks+1)
			for p := range pages {
				about := ordinary(r, c.d)
				for j := range 64 {
					k, v := ordinary(r, c.d), ordinary(r, c.d)
					for i := range k {
						k[i] = 0.7*k[i] + about[i]
					}
					if c.odd && p == 2 && j == 5 && s == 0 {
						v[0] = 5e6
					}
					vector := b.at(&kv, s, p*64+j, h)
					pool.store(vector, k, true)
					pool.store(vector, v, false)
					pages[p].keys[0] = append(pages[p].keys[0], storedVector(c.format, k, true))
					pages[p].values[0] = append(pages[p].values[0], storedVector(c.format, v, false))
				}
				pages[p].summarize(c.d)
			}
			heads[s] = append(heads[s], pages)
		}
	}
	cache := m.put(t, pool.raw)
	kv.Base = cache.address()
	rows := b.put(t, m)
	for s := range heads {
		op := hip.Summarize{KV: kv, Table: rows.Pages + hip.Address(4*s*rows.MaxPages), Count: c.page + c.blocks - 2}
		m.run(t, op.Calls(m.target))
	}
	shares := slices.Repeat([]float64{c.share}, c.kvs)
	if c.kvs > 1 {
		shares[c.kvs-1] = 1
	}
	sinks := slices.Repeat([]float64{math.Inf(-1)}, c.heads)
	n := len(position)
	q := ordinary(r, n*c.heads*c.d)
	queries, out, counts := m.put(t, q), m.put(t, make([]float32, len(q))), m.put(t, make([]uint64, 2))
	op := hip.PromptFollow{Attend: hip.Attend{Rows: rows, KV: kv, Heads: c.heads, Scale: float32(1 / math.Sqrt(float64(c.d))), Softcap: c.softcap, Capacity: (c.page + c.blocks + 1) * 64,
		Q: queries.address(), Out: out.address(), Exact: c.exact}, Chosen: chosen, Shares: m.put(t, shares).address(), LeastPages: promptLeast, Counts: counts.address()}
	if c.sinks {
		own := make([]float32, c.heads)
		for i := range own {
			own[i] = float32(2 * r.NormFloat64())
			sinks[i] = float64(own[i])
		}
		op.Sinks = m.put(t, own).address()
	}
	work := m.put(t, bytesOf(slices.Repeat([]float32{float32(math.NaN())}, int(op.PromptFollowBytes()/4))))
	op.Work = work.address()
	got, again := make([]float32, len(q)), make([]float32, len(q))
	m.run(t, op.Calls(m.target))
	out.get(t, got)
	for range repeats() {
		m.run(t, op.Calls(m.target))
		out.get(t, again)
		sameBits(t, "once more", again, got)
	}

	hosted := op
	hosted.KV, hosted.Reaches, hosted.Counts = m.hosted(t, kv), b.reaches(), m.put(t, make([]uint64, 2)).address()
	hosted.Scratch = m.put(t, make([]byte, hosted.Attend.ScratchBytes(m.target))).address()
	m.run(t, hosted.Calls(m.target))
	out.get(t, again)
	sameBits(t, "with pages in the host's memory", again, got)

	// What blocks of the last range have read, one after the other: the second range has overwritten the first.
	one := op
	one.Chosen = chosen[:1]
	one.T = 10 + 64*c.blocks
	one.Work, one.Counts = work.address(), m.put(t, make([]uint64, 2)).address()
	dot := func(q []float32, x []float32) (z float64) {
		for i, v := range x {
			z += float64(q[i]) * float64(v)
		}
		if z *= float64(op.Scale); c.softcap != 0 {
			z = float64(c.softcap) * math.Tanh(z/float64(c.softcap))
		}
		return z
	}
	stride := c.page + c.blocks + 1
	words := make([]int32, op.PromptFollowBytes()/4)
	read, held := 0, 0
	listsOf := func(o *hip.PromptFollow, block, head int) []int32 {
		at := o.T/64*c.heads*stride + (block*c.kvs+head)*(stride+1)
		return words[at+1 : at+1+int(words[at])]
	}
	worst := 0.
	want := func(row, h, position int, of func(page int) bool) {
		at := row*c.heads + h
		var ks, vs [][]float32
		for p, page := range heads[owner[row]][h/group][:position/64+1] {
			for j, k := range page.keys[0] {
				if of(p) && p*64+j <= position {
					ks, vs = append(ks, k), append(vs, page.values[0][j])
				}
			}
		}
		want, size := attend64(q[at*c.d:(at+1)*c.d], ks, vs, float64(op.Scale), float64(c.softcap), sinks[h], false)
		for d := range want {
			e := math.Abs(float64(got[at*c.d+d])-want[d]) / max(size[d], 1e-30) * (1 << 24)
			if !(e <= c.tolerance) {
				t.Fatalf("row %d head %d number %d is %g, want %g: error %.1f units, %.1f are allowed", row, h, d, got[at*c.d+d], want[d], e, c.tolerance)
			}
			worst = max(worst, e)
		}
	}
	every := func(int) bool { return true }
	for row := range n {
		if row < 10 || row >= n-7 {
			for h := range c.heads {
				want(row, h, int(position[row]), every)
			}
		}
	}
	for i, run := range chosen {
		o := &op
		if i == 0 { // its lists lie below those of the second
			o = &one
			m.run(t, one.Calls(m.target))
		} else {
			m.run(t, op.Calls(m.target))
		}
		raw := make([]float32, len(words))
		work.get(t, raw)
		for j, x := range raw {
			words[j] = int32(math.Float32bits(x))
		}
		for block := range run.Blocks {
			first := run.First + 64*block
			page := int(position[first]) / 64
			for head := range c.kvs {
				pages := heads[owner[first]][head]
				room := max(int(math.Ceil(shares[head]*float64(page+1))), promptLeast)
				list := listsOf(o, block, head)
				read, held = read+len(list), held+page+1
				if !slices.IsSorted(list) || int(list[len(list)-1]) != page || int(list[len(list)-2]) != page-1 || list[0] != 0 {
					t.Fatalf("block %d, head %d: pages %v of %d", block, head, list, page+1)
				}
				weights := make([]float64, page-1)
				for row := first; row < first+64; row++ {
					for h := head * group; h < (head+1)*group; h++ {
						query := q[(row*c.heads+h)*c.d:][:c.d]
						sum := math.Exp(sinks[h])
						for _, p := range []int{0, page - 1, page} {
							for j, k := range pages[p].keys[0] {
								if p*64+j <= int(position[row]) {
									sum += math.Exp(dot(query, k))
								}
							}
						}
						told := make([]float64, page-1)
						for p := 1; p < page-1; p++ {
							var z, more float64
							for d, x := range query {
								z += float64(x) * pages[p].mean[d]
								more += float64(x) * float64(x) * pages[p].spread[d]
							}
							if z *= float64(op.Scale); c.softcap != 0 {
								z = float64(c.softcap) * math.Tanh(z/float64(c.softcap))
							}
							told[p] = 64 * math.Exp(z+0.35*float64(op.Scale)*float64(op.Scale)*more)
							sum += told[p]
						}
						for p := 1; p < page-1; p++ {
							weights[p] += told[p] / sum
						}
					}
				}
				var order []int
				for p := 1; p < page-1; p++ {
					if pages[p].odd {
						weights[p] = math.Inf(1)
					}
					order = append(order, p)
				}
				slices.SortStableFunc(order, func(a, b int) int {
					if weights[a] > weights[b] {
						return -1
					} else if weights[a] < weights[b] {
						return 1
					}
					return 0
				})
				order = order[:min(room, page+1)-3]
				if len(list) != len(order)+3 {
					t.Fatalf("block %d, head %d: %d pages are read, want %d", block, head, len(list), len(order)+3)
				}
				for _, p := range list[1 : len(list)-2] {
					if least := weights[order[len(order)-1]]; !(weights[p] >= least*(1-c.alike)) {
						t.Fatalf("block %d, head %d: page %d of weight %g is read, the least is %g", block, head, p, weights[p], least)
					}
				}
				for row := first; row < first+64; row += 7 {
					for h := head * group; h < (head+1)*group; h++ {
						want(row, h, int(position[row]), func(p int) bool { return slices.Contains(list, int32(p)) })
					}
				}
			}
		}
	}
	total := make([]uint64, 2)
	counts.get(t, total)
	if times := uint64(64 * (repeats() + 2)); total[0] != times*uint64(read) || total[1] != times*uint64(held) || read >= held {
		t.Errorf("%d of %d pages counted for %d rows, want %d of %d for each", total[0], total[1], times, read, held)
	}
	t.Logf("largest error %.1f units of 2^-24; %d of %d pages", worst, read, held)
}

func TestPromptFollow(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(5, 18))
	for _, c := range []promptFollowCase{
		{format: cpu.KVF16, d: 128, heads: 4, kvs: 2, page: 11, blocks: 2, share: 0.3},
		{format: cpu.KVF32, d: 64, heads: 2, kvs: 2, page: 14, blocks: 1, share: 0.6, odd: true, sinks: true},
		{format: cpu.KVF16, d: 64, heads: 3, kvs: 1, page: 9, blocks: 3, share: 0.5, exact: true, softcap: 20},
		{format: cpu.KVF16, d: 20, heads: 4, kvs: 2, page: 70, blocks: 1, share: 0.2, sinks: true},
		{format: cpu.KVF16, d: 256, heads: 2, kvs: 1, page: 8, blocks: 1, share: 0.7, softcap: 30},
		{format: cpu.KVF32, d: 33, heads: 2, kvs: 1, page: 40, blocks: 1, share: 0.1},
	} {
		c.tolerance, c.alike = 1<<14, 0.02
		if c.exact || c.format == cpu.KVF32 {
			c.tolerance, c.alike = 40, 1e-5
		}
		if sampled(t) {
			t.Run(c.String(), func(t *testing.T) { c.check(t, m, r) })
		}
	}
}

// BenchmarkPromptFollow times a block's attention of 2048 rows of a prompt, dense and by some of the pages, with
// random keys: all launches, and each alone.
func BenchmarkPromptFollow(b *testing.B) {
	m := open(b)
	const rows = 2048
	for _, length := range []int{32768, 65536} {
		b.Run(fmt.Sprintf("positions=%d/dense", length), func(b *testing.B) { m.benchAttend(b, cpu.KVF16, rows, length, nil, false) })
		for _, share := range []float64{0.1, 0.2, 0.3} {
			for i, what := range []string{"all", "weigh", "choose", "attend"} {
				if i > 0 && (share != 0.1 || length != 65536) {
					continue
				}
				b.Run(fmt.Sprintf("positions=%d/pages=%g/%s", length, share, what), func(b *testing.B) { m.benchPromptFollow(b, rows, length, share, i-1) })
			}
		}
	}
}

func (m *machine) benchPromptFollow(b *testing.B, rows, length int, share float64, launch int) {
	kv := poolOf(hip.KV{Format: cpu.KVF16, Heads: benchKV, Dim: benchDim, Summarized: true}, length/hip.PagePositions)
	raw := make([]byte, kv.Bytes())
	r := rand.New(rand.NewPCG(1, 2))
	for i := 0; i+8 <= len(raw); i += 8 { // halves of 0.25 to 0.5, and 1 to 2, of either sign
		binary.LittleEndian.PutUint64(raw[i:], r.Uint64()&0x8bff8bff8bff8bff|0x3400340034003400)
	}
	kv.Base = m.put(b, raw).address()
	pages, position := make([]int32, kv.Pages), make([]int32, rows)
	for i := range pages {
		pages[i] = int32(i * 7 % kv.Pages)
	}
	for i := range position {
		position[i] = int32(length - rows + i)
	}
	q := ordinary(r, rows*benchHeads*benchDim)
	table := m.put(b, pages).address()
	op := hip.PromptFollow{Attend: hip.Attend{Rows: hip.Rows{T: rows, Position: m.put(b, position).address(), Owner: m.put(b, make([]int32, rows)).address(), Pages: table, MaxPages: len(pages)},
		Heads: benchHeads, Scale: 0.088, Capacity: length, Q: m.put(b, q).address(), Out: m.put(b, make([]float32, len(q))).address(), KV: kv},
		Chosen: []hip.ChosenRows{{Blocks: rows / hip.PagePositions}}, Shares: m.put(b, slices.Repeat([]float64{share}, benchKV)).address(), LeastPages: 16, Counts: m.put(b, make([]uint64, 2)).address()}
	op.Work = m.put(b, make([]byte, op.PromptFollowBytes())).address()
	summaries := hip.Summarize{KV: kv, Table: table, Count: kv.Pages - 2}
	m.run(b, summaries.Calls(m.target))
	m.run(b, op.Calls(m.target)) // what single launches read
	var calls []hip.Call
	const times = 4
	for range times {
		c := op.Calls(m.target)
		if launch >= 0 {
			c = c[launch : launch+1]
		}
		calls = append(calls, c...)
	}
	m.report(b, calls, times, 0, 0)
}
