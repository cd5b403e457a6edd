package conformance

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/kernels/kerneltest"
)

// A hostPool is a pool of pages that is filled on the host, every byte of it set
// at first: NaN in every format.
type hostPool struct {
	kv  hip.KV
	raw []byte
}

func newHostPool(kv hip.KV) *hostPool {
	p := &hostPool{kv, make([]byte, kv.Bytes())}
	for i := range p.raw {
		p.raw[i] = 0xff
	}
	return p
}

// store encodes a vector by the meaning of the format.
func (p *hostPool) store(vector int, x []float32, key bool) {
	base, d := planesAt(&p.kv), p.kv.Dim
	plane := 0
	if !key {
		plane = 1
	}
	switch p.kv.Format {
	case cpu.KVF32:
		for i, v := range x {
			put32(p.raw[base[plane]+4*(vector*d+i):], math.Float32bits(v))
		}
	case cpu.KVF16:
		at := base[plane] + 2*vector*d
		cpu.Best().EncodeF16(p.raw[at:at+2*d], x)
	case cpu.KVQ8:
		group := 32
		if !key {
			group = d
		}
		groups := (d + group - 1) / group
		decoded := storedVector(cpu.KVQ8, x, key)
		for g := range groups {
			lo, hi := g*group, min((g+1)*group, d)
			scale := scaleOf(x, x[lo:hi], key)
			put32(p.raw[base[plane+2]+4*(vector*groups+g):], math.Float32bits(scale))
			for i := lo; i < hi; i++ {
				q := int8(0)
				if scale > 0 {
					q = int8(math.RoundToEven(float64(decoded[i] / scale)))
				}
				p.raw[base[plane]+vector*d+i] = byte(q)
			}
		}
	default:
		v := p.kv.Value
		if v == 0 {
			v = d
		}
		codesOf(p.kv.Format, x, v, key).put(p.raw, base[plane], base[plane+2], vector)
		at := nearPlane(&p.kv, key) + 2*nearVector(&p.kv, vector)*d
		cpu.Best().EncodeF16(p.raw[at:at+2*d], nearOf(p.kv.Format, x, d, v))
	}
}

func scaleOf(all, part []float32, key bool) float32 {
	top := func(x []float32) float32 {
		m := float32(0)
		for _, v := range x {
			if v != v {
				return v
			}
			m = max(m, float32(math.Abs(float64(v))))
		}
		return m
	}
	a, m := top(all), top(part)
	if !(a <= math.MaxFloat32) {
		return float32(math.NaN())
	}
	if key {
		m = max(m, a*0x1p-20)
	}
	return m / 127
}

func put32(b []byte, v uint32) {
	b[0], b[1], b[2], b[3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
}

// TestAttendTable runs the table's cases, which are causal or see an interval
// that ends at some position, one row at a time.
func TestAttendTable(t *testing.T) {
	m := open(t)
	kerneltest.Test(t, kerneltest.Backend{Name: m.target.Arch, SameWidth: true, Takes: func(n int) bool { return n == 1 || taken(t) }, Attend: func(a *kerneltest.Attention) func(out []float32) {
		return func(out []float32) { tableAttend(t, m, a, out) }
	}})
}

func tableAttend(t *testing.T, m *machine, a *kerneltest.Attention, out []float32) {
	format, err := cpu.ParseKVFormat(a.Format)
	if err != nil {
		t.Fatal(err)
	}
	positions := len(a.Keys) / a.Dim
	pages := (positions + 63) / 64
	p := newHostPool(poolOf(hip.KV{Format: format, Heads: 1, Dim: a.Dim}, pages+1))
	table := make([]int32, pages+1)
	for i := range table {
		table[i] = int32((i*7 + 1) % (pages + 1))
		if (pages+1)%7 == 0 {
			table[i] = int32(pages - i)
		}
	}
	for i := range positions {
		v := int(table[i/64])*64 + i%64
		p.store(v, a.Keys[i*a.Dim:(i+1)*a.Dim], true)
		p.store(v, a.Values[i*a.Dim:(i+1)*a.Dim], false)
	}
	pool, q := m.put(t, p.raw), m.put(t, a.Q)
	zero, pageTable, sinks := m.put(t, []int32{0}), m.put(t, twoHalves(table, len(table), pages+1)), m.put(t, a.Sinks)
	p.kv.Base = pool.address()
	for i := range out {
		out[i] = 0
	}
	dst := m.put(t, out)
	for i, reach := range a.Reach {
		if reach[0] >= reach[1] {
			continue // no position sees nothing
		}
		at := hip.Address(4 * i * a.Group * a.Dim)
		position := m.put(t, []int32{int32(reach[1] - 1)})
		op := hip.Attend{
			Rows: hip.Rows{T: 1, Position: position.address(), Owner: zero.address(), Pages: pageTable.address(), MaxPages: 2 * len(table)},
			KV:   p.kv, Heads: a.Group, Scale: a.Scale, Softcap: a.Softcap, Capacity: positions, Window: reach[1] - reach[0],
			Q: q.address() + at, Out: dst.address() + at,
		}
		if reach[0] == 0 {
			op.Window = 0
		}
		if a.Sinks != nil {
			op.Sinks = sinks.address()
		}
		scratch := m.put(t, make([]byte, op.ScratchBytes(m.target)))
		op.Scratch = scratch.address()
		m.run(t, op.Calls(m.target))
		scratch.release()
		position.release()
	}
	dst.get(t, out)
	for _, x := range []*memory{pool, q, zero, pageTable, sinks, dst} {
		x.release()
	}
}

// An attendCase is rows of two sequences; those beyond sixteen take the way of
// prompts.
type attendCase struct {
	format     cpu.KVFormat
	d          int
	latent     int // a value is so many numbers of its key; 0: it has its own d
	heads, kvs int
	softcap    float32
	sinks      bool
	window     int
	chunked    bool // window is a run's
	position   []int32
	capacity   int
	exact      bool
	matrix     bool    // see hip.Attend
	tolerance  float64 // in units of 2^-24 of what is added up
	halves     float64 // the same of a target whose LDS holds a tile of such heads, in half precision; 0: tolerance
}

func (c attendCase) String() string {
	latent := ""
	if c.latent > 0 {
		latent = fmt.Sprintf(" latent=%d", c.latent)
	}
	return fmt.Sprintf("%v D=%d%s heads=%d/%d cap=%g sinks=%v window=%d chunked=%v rows=%d last=%d exact=%v matrix=%v", c.format, c.d, latent, c.heads, c.kvs, c.softcap, c.sinks, c.window, c.chunked, len(c.position), c.position[len(c.position)-1], c.exact, c.matrix)
}

// check compares with float64 and repeats ten times.
func (c attendCase) check(t *testing.T, m *machine, r *rand.Rand) {
	b := newBatch(r, c.position...)
	b.pool = int(slices.Max(b.pages)) + 1 // the last page is one of theirs
	kv, width := poolOf(hip.KV{Format: c.format, Heads: c.kvs, Dim: c.d, Value: c.latent}, b.pool), c.d
	if c.latent > 0 {
		width = c.latent
	}
	p := newHostPool(kv)
	// What is stored of a vector, turned back where the format turns: for rows that see it
	// far away, and near.
	held := func(x []float32, key bool) (all [2][]float32) {
		if !c.format.Coded() {
			x = storedVector(c.format, x, key)
			return [...][]float32{x, x}
		}
		all = [...][]float32{codesOf(c.format, x, width, key).numbers(len(x)), nearOf(c.format, x, c.d, width)}
		for _, x := range all {
			c.format.Turn(x, c.d, width)
		}
		return all
	}
	keys, values := map[[3]int][2][]float32{}, map[[3]int][2][]float32{}
	for row, last := range c.position {
		for pos := range int(last) + 1 {
			for h := range c.kvs {
				at := [3]int{int(b.owner[row]), pos, h}
				if keys[at][0] != nil {
					continue
				}
				k, v := ordinary(r, c.d), ordinary(r, c.d)
				vector := b.at(&kv, at[0], pos, h)
				p.store(vector, k, true)
				keys[at] = held(k, true)
				if c.latent > 0 {
					values[at] = [...][]float32{keys[at][0][:c.latent], keys[at][1][:c.latent]}
					continue
				}
				p.store(vector, v, false)
				values[at] = held(v, false)
			}
		}
	}
	q := ordinary(r, len(c.position)*c.heads*c.d)
	queries, dst := m.put(t, q), m.put(t, make([]float32, len(q)/c.d*width))
	pool, err := m.alloc(int64(len(p.raw))) // without guards: what is read behind the last value is no one's
	if err == nil {
		err = m.stream.Upload(pool, p.raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	kv.Base = pool.Address
	op := hip.Attend{
		Rows: b.put(t, m), KV: kv, Heads: c.heads, Scale: float32(1 / math.Sqrt(float64(c.d))), Softcap: c.softcap, Window: c.window, Chunked: c.chunked,
		Capacity: c.capacity, Q: queries.address(), Out: dst.address(), Exact: c.exact, Matrix: c.matrix, Prompt: len(c.position) > 16, Reaches: b.reaches(),
	}
	sinks := make([]float32, c.heads) // without: what changes nothing
	for h := range sinks {
		if sinks[h] = float32(math.Inf(-1)); c.sinks {
			sinks[h] = float32(2 * r.NormFloat64())
		}
	}
	if c.sinks {
		op.Sinks = m.put(t, sinks).address()
	}
	op.Scratch = m.put(t, make([]byte, op.ScratchBytes(m.target))).address()
	got := make([]float32, len(q)/c.d*width)
	calls := op.Calls(m.target)
	if c.halves != 0 && slices.ContainsFunc(calls, func(c hip.Call) bool { return c.Unit.File == "attendtiles.hip" }) {
		c.tolerance = c.halves
	}
	m.run(t, calls)
	dst.get(t, got)
	for pages := 1; pages <= 2 && len(calls) > 1 && slices.ContainsFunc(calls, func(c hip.Call) bool { return c.Unit.File == "attendspread.hip" }); pages++ { // piece by piece
		again := make([]float32, len(got))
		op := op
		op.Shape = &hip.AttendShape{Spread: pages}
		queries.set(t, q) // prompts of turned keys turn them in place
		dst.set(t, again)
		m.run(t, op.Calls(m.target))
		dst.get(t, again)
		sameBits(t, fmt.Sprintf("%d pages spread at once", pages), got, again)
	}
	if c.latent == 0 { // wherever pages lie
		again := make([]float32, len(got))
		op := op
		op.KV = m.hosted(t, kv)
		op.Scratch = m.put(t, make([]byte, op.ScratchBytes(m.target))).address()
		queries.set(t, q)
		dst.set(t, again)
		m.run(t, op.Calls(m.target))
		dst.get(t, again)
		sameBits(t, "with pages in the host's memory", again, got)
	}
	worst := 0.0
	for row, last := range c.position {
		for h := range c.heads {
			if last < 0 {
				continue
			}
			lo := 0
			if c.window > 0 {
				lo = max(int(last)+1-c.window, 0)
			}
			if c.chunked {
				lo = int(last) / c.window * c.window
			}
			at := row*c.heads + h
			var ks, vs [][]float32
			for pos := lo; pos <= int(last); pos++ {
				i := [3]int{int(b.owner[row]), pos, h / (c.heads / c.kvs)}
				near := 0
				if pos < cpu.KVFirst*cpu.KVPositions || int64(pos) >= cpu.NewestFrom(int64(last)) {
					near = 1
				}
				ks, vs = append(ks, keys[i][near]), append(vs, values[i][near])
			}
			want, size := attend64(q[at*c.d:(at+1)*c.d], ks, vs, float64(op.Scale), float64(c.softcap), float64(sinks[h]), c.format.Coded())
			for d := range want {
				e := math.Abs(float64(got[at*width+d])-want[d]) / max(size[d], 1e-30) * (1 << 24)
				if !(e <= c.tolerance) {
					t.Fatalf("row %d head %d number %d is %g, want %g: error %.1f units, %.1f are allowed", row, h, d, got[at*width+d], want[d], e, c.tolerance)
				}
				worst = max(worst, e)
			}
		}
	}
	t.Logf("largest error %.2f units of 2^-24", worst)
	again := make([]float32, len(got))
	for range repeats() {
		queries.set(t, q) // prompts of turned keys turn them in place
		m.run(t, op.Calls(m.target))
		dst.get(t, again)
		for i, v := range got {
			if math.Float32bits(again[i]) != math.Float32bits(v) {
				t.Fatalf("element %d was %g, then %g", i, v, again[i])
			}
		}
	}
}

func attend64(q []float32, keys, values [][]float32, scale, softcap, sink float64, turned bool) (out, size []float64) {
	z, top := make([]float64, len(keys)), sink
	for p, k := range keys {
		for d, v := range k {
			z[p] += float64(v) * float64(q[d])
		}
		z[p] *= scale
		if softcap != 0 {
			z[p] = softcap * math.Tanh(z[p]/softcap)
		}
		top = max(top, z[p])
	}
	out, size = make([]float64, len(values[0])), make([]float64, len(values[0]))
	sum := math.Exp(sink - top)
	for p, v := range values {
		w, length := math.Exp(z[p]-top), 0.0
		sum += w
		for _, x := range v {
			length += float64(x) * float64(x)
		}
		for d, x := range v {
			out[d] += w * float64(x)
			if turned {
				size[d] += w * math.Sqrt(length) // each number is a sum of others
			} else {
				size[d] += w * math.Abs(float64(x))
			}
		}
	}
	for d := range out {
		out[d] /= sum
		size[d] /= sum
	}
	return out, size
}

// upTo returns the positions from lo on, n of them, twice: once for each of two
// sequences in turn.
func upTo(lo, n int) []int32 {
	var p []int32
	for i := range n {
		p = append(p, int32(lo+i/2))
	}
	return p
}

func TestAttendPrompts(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(9, 8))
	for _, c := range []attendCase{
		{format: cpu.KVF16, d: 128, heads: 2, kvs: 1, position: upTo(0, 70), tolerance: 20000},
		{format: cpu.KVF16, d: 64, heads: 1, kvs: 1, position: upTo(20, 22), tolerance: 20000},
		{format: cpu.KVF32, d: 64, heads: 2, kvs: 2, position: upTo(7, 19), tolerance: 16},
		{format: cpu.KVF32, d: 64, heads: 1, kvs: 1, position: upTo(44, 40), tolerance: 16}, // columns of 48, to the end of the last page
		{format: cpu.KVF16, d: 64, heads: 4, kvs: 2, sinks: true, position: append(upTo(0, 20), -1, 130), window: 128, tolerance: 20000},
		{format: cpu.KVF16, d: 64, heads: 2, kvs: 1, sinks: true, position: upTo(3, 20), exact: true, tolerance: 16},
		{format: cpu.KVQ8, d: 32, heads: 2, kvs: 1, sinks: true, softcap: 5, position: upTo(3, 20), tolerance: 20000},
		{format: cpu.KVQ8, d: 128, heads: 1, kvs: 1, position: upTo(60, 20), tolerance: 20000},
		{format: cpu.KVQ8, d: 96, heads: 1, kvs: 1, position: upTo(0, 70), exact: true, tolerance: 24},
		{format: cpu.KVF16, d: 80, heads: 1, kvs: 1, position: upTo(100, 20), window: 50, tolerance: 20000},
		{format: cpu.KVF16, d: 64, heads: 4, kvs: 2, position: append(upTo(0, 20), -1, 63, 130), window: 9, chunked: true, tolerance: 20000},
		{format: cpu.KVF16, d: 80, heads: 1, kvs: 1, position: upTo(100, 19), window: 67, chunked: true, exact: true, tolerance: 16},
		{format: cpu.KVF16, d: 112, heads: 1, kvs: 1, position: upTo(100, 19), window: 80, exact: true, tolerance: 16},
		{format: cpu.KVF16, d: 256, heads: 1, kvs: 1, position: upTo(0, 18), softcap: 50, tolerance: 20000},
		{format: cpu.KVF16, d: 256, heads: 1, kvs: 1, position: upTo(0, 18), softcap: 50, exact: true, tolerance: 40},
		{format: cpu.KVQ8, d: 20, heads: 3, kvs: 1, position: upTo(0, 40), tolerance: 20000},
		{format: cpu.KVF16, d: 33, heads: 1, kvs: 1, position: append(upTo(0, 16), -1, -1, 64, 300), tolerance: 20000},
		{format: cpu.KVF32, d: 1, heads: 1, kvs: 1, position: upTo(0, 20), tolerance: 12},
		{format: cpu.KVQ4, d: 128, heads: 2, kvs: 1, position: upTo(0, 70), tolerance: 20000},
		// Rows on both sides of where a page of codes begins to be seen.
		{format: cpu.KVQ4, d: 64, heads: 1, kvs: 1, position: upTo(415, 70), tolerance: 20000},
		{format: cpu.KVQ5, d: 80, heads: 2, kvs: 1, position: upTo(360, 66), exact: true, tolerance: 24},
		{format: cpu.KVQ3, d: 96, latent: 64, heads: 1, kvs: 1, position: append(upTo(420, 66), -1, 260), window: 290, tolerance: 20000},
		{format: cpu.KVQ5, d: 64, heads: 2, kvs: 2, sinks: true, softcap: 5, position: append(upTo(0, 20), -1, 130), window: 70, tolerance: 20000},
		{format: cpu.KVQ3, d: 96, heads: 1, kvs: 1, position: upTo(60, 20), tolerance: 20000},
		{format: cpu.KVQ4, d: 80, heads: 1, kvs: 1, position: upTo(3, 20), exact: true, tolerance: 24},
		{format: cpu.KVQ5, d: 20, heads: 1, kvs: 1, position: upTo(3, 40), exact: true, tolerance: 24},
		{format: cpu.KVQ3, d: 33, heads: 1, kvs: 1, position: upTo(3, 20), tolerance: 20000},
		{format: cpu.KVQ4, d: 96, latent: 64, heads: 3, kvs: 1, position: upTo(0, 40), tolerance: 20000},
		{format: cpu.KVF16, d: 512, heads: 1, kvs: 1, position: upTo(0, 20), tolerance: 20, halves: 20000, capacity: 20},
		{format: cpu.KVF16, d: 96, latent: 64, heads: 3, kvs: 1, position: upTo(0, 40), tolerance: 20000},
		{format: cpu.KVF32, d: 26, latent: 20, heads: 2, kvs: 1, position: upTo(3, 30), tolerance: 16},
		{format: cpu.KVQ8, d: 192, latent: 150, heads: 1, kvs: 1, position: upTo(60, 20), tolerance: 20000},
		{format: cpu.KVF16, d: 576, latent: 512, heads: 1, kvs: 1, position: upTo(0, 20), tolerance: 20, halves: 20000, capacity: 20},
	} {
		if sampled(t) {
			t.Run(c.String(), func(t *testing.T) { c.check(t, m, r) })
		}
	}
}

func TestAttendRows(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(7, 8))
	for _, c := range []attendCase{
		{format: cpu.KVF16, d: 128, heads: 8, kvs: 2, position: []int32{300}, capacity: 512, tolerance: 12},
		{format: cpu.KVF16, d: 128, heads: 32, kvs: 8, position: []int32{1000}, capacity: 8192, tolerance: 12},
		{format: cpu.KVF16, d: 576, latent: 512, heads: 5, kvs: 1, position: []int32{300, 4}, capacity: 512, tolerance: 24},
		{format: cpu.KVQ8, d: 72, latent: 45, heads: 16, kvs: 1, position: []int32{200, 70}, capacity: 256, tolerance: 12},
		{format: cpu.KVF32, d: 26, latent: 20, heads: 3, kvs: 1, position: []int32{65, 700}, capacity: 1024, tolerance: 12},
		{format: cpu.KVF16, d: 64, heads: 8, kvs: 1, sinks: true, position: []int32{1000, 3}, capacity: 4096, tolerance: 12},
		{format: cpu.KVQ8, d: 64, heads: 7, kvs: 1, sinks: true, position: []int32{200}, window: 128, capacity: 256, tolerance: 12},
		{format: cpu.KVF32, d: 64, heads: 4, kvs: 4, position: []int32{0, 31, 32, 1023, -1, 64, 65, 700}, capacity: 1024, tolerance: 12},
		{format: cpu.KVQ8, d: 128, heads: 8, kvs: 1, position: []int32{99, 640, 63, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 800, 31}, capacity: 4096, tolerance: 12},
		{format: cpu.KVF16, d: 64, heads: 7, kvs: 1, position: []int32{511, 512}, capacity: 4096, tolerance: 12},
		{format: cpu.KVF16, d: 64, heads: 5, kvs: 1, position: []int32{129, 300}, window: 130, chunked: true, capacity: 400, tolerance: 12},
		{format: cpu.KVF16, d: 80, heads: 6, kvs: 2, position: []int32{129, 2}, window: 100, capacity: 300, tolerance: 12},
		{format: cpu.KVF16, d: 96, heads: 3, kvs: 3, position: []int32{600, 1200}, window: 512, capacity: 2048, tolerance: 12},
		{format: cpu.KVQ8, d: 112, heads: 4, kvs: 2, position: []int32{200}, capacity: 256, tolerance: 12},
		{format: cpu.KVF16, d: 256, heads: 8, kvs: 1, position: []int32{450}, capacity: 512, softcap: 50, tolerance: 40},
		{format: cpu.KVF32, d: 256, heads: 2, kvs: 1, position: []int32{90, 400}, capacity: 512, tolerance: 12},
		{format: cpu.KVQ8, d: 20, heads: 13, kvs: 1, position: []int32{333, 77}, capacity: 512, tolerance: 12},
		{format: cpu.KVF16, d: 33, heads: 2, kvs: 1, position: []int32{150}, capacity: 512, tolerance: 12},
		{format: cpu.KVQ4, d: 128, heads: 8, kvs: 2, position: []int32{300}, capacity: 512, tolerance: 12},
		{format: cpu.KVF16, matrix: true, d: 64, heads: 7, kvs: 1, sinks: true, position: []int32{200, 3, -1, 700}, window: 512, capacity: 1024, tolerance: 12},
		{format: cpu.KVQ8, matrix: true, d: 96, heads: 3, kvs: 1, position: []int32{600, 31}, capacity: 2048, tolerance: 12},
		{format: cpu.KVQ3, matrix: true, d: 128, heads: 4, kvs: 4, position: []int32{640, 63, 800, 99}, capacity: 4096, tolerance: 12},
		{format: cpu.KVQ4, matrix: true, d: 256, heads: 8, kvs: 1, position: []int32{450}, capacity: 512, softcap: 50, tolerance: 40},
		{format: cpu.KVQ5, matrix: true, d: 64, heads: 6, kvs: 2, position: []int32{500}, capacity: 512, tolerance: 12},
		{format: cpu.KVQ5, d: 64, heads: 7, kvs: 1, sinks: true, position: []int32{200, 3, -1, 64}, window: 128, capacity: 256, tolerance: 12},
		{format: cpu.KVQ3, d: 128, heads: 4, kvs: 4, position: []int32{640, 63, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 800, 31, 99}, capacity: 4096, tolerance: 12},
		{format: cpu.KVQ4, d: 80, heads: 6, kvs: 2, position: []int32{129, 2}, window: 100, capacity: 300, tolerance: 12},
		{format: cpu.KVQ3, d: 20, heads: 13, kvs: 1, position: []int32{333, 77}, capacity: 512, tolerance: 12},
		{format: cpu.KVQ4, d: 256, heads: 8, kvs: 1, position: []int32{450}, capacity: 512, softcap: 50, tolerance: 40},
		{format: cpu.KVQ4, d: 576, latent: 512, heads: 5, kvs: 1, position: []int32{300, 4}, capacity: 512, tolerance: 24},
		{format: cpu.KVQ5, d: 72, latent: 40, heads: 16, kvs: 1, position: []int32{200, 70}, capacity: 256, tolerance: 12},
		{format: cpu.KVF16, d: 512, heads: 20, kvs: 1, position: []int32{70}, capacity: 512, tolerance: 20},
		{format: cpu.KVF32, d: 1, heads: 1, kvs: 1, position: []int32{0}, capacity: 1, tolerance: 12},
		{format: cpu.KVF16, d: 2, heads: 2, kvs: 1, position: []int32{6000}, capacity: 8192, tolerance: 20},
	} {
		if sampled(t) {
			t.Run(c.String(), func(t *testing.T) { c.check(t, m, r) })
		}
	}
}

// TestAttendTurns compares a launch that turns heads on the way with one after
// the other: the same bits in output and cache.
func TestAttendTurns(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(17, 8))
	for _, c := range []struct {
		format             cpu.KVFormat
		d, heads, kvs      int
		pairs              int
		interleaved, norms bool
		window             int
		position           []int32
	}{
		{cpu.KVF16, 128, 8, 2, 64, false, true, 0, []int32{300, 64}},
		{cpu.KVF32, 64, 4, 4, 16, true, false, 0, []int32{31}},
		{cpu.KVQ8, 96, 3, 1, 48, false, true, 100, []int32{500, 0}},
		{cpu.KVQ8, 20, 26, 2, 10, false, false, 0, []int32{-1, 95}},
		{cpu.KVQ4, 128, 8, 2, 64, false, true, 0, []int32{448, 64}},
		{cpu.KVQ5, 96, 3, 1, 48, false, true, 100, []int32{500, 0}},
		{cpu.KVQ3, 20, 26, 2, 10, false, false, 0, []int32{-1, 95}},
		{cpu.KVF16, 256, 8, 1, 128, false, false, 0, []int32{129}},
		{cpu.KVF16, 80, 2, 2, 0, false, false, 0, []int32{40, 41}},
		{cpu.KVF16, 64, 2, 1, 32, false, true, 0, []int32{40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56}},
	} {
		if !sampled(t) {
			continue
		}
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			b := newBatch(r, c.position...)
			rows := len(c.position)
			kv := poolOf(hip.KV{Format: c.format, Heads: c.kvs, Dim: c.d}, b.pool)
			pool := newHostPool(kv)
			for v := range b.pool * c.kvs * hip.PagePositions {
				pool.store(v, ordinary(r, c.d), true)
				pool.store(v, ordinary(r, c.d), false)
			}
			q, w := ordinary(r, rows*c.heads*c.d), ordinary(r, c.d)
			where := b.put(t, m)
			turn := hip.Rope{K: m.put(t, ordinary(r, rows*c.kvs*c.d)).address(), V: m.put(t, ordinary(r, rows*c.kvs*c.d)).address(),
				Turn: hip.Rotation{Pairs: c.pairs, Interleaved: c.interleaved, Cosine: m.put(t, ordinary(r, rows*c.pairs+1)).address(), Sine: m.put(t, ordinary(r, rows*c.pairs+1)).address()}}
			if c.norms {
				turn.QNorm = hip.Normal{Weight: m.put(t, w).address(), Eps: 1e-6}
				turn.KNorm = turn.QNorm
			}
			var outputs, caches [3][]byte // turned before; on the way; and read early
			for i := range outputs {
				cache, dq, dst := m.put(t, pool.raw), m.put(t, q), m.put(t, make([]float32, len(q)))
				kv.Base = cache.address()
				op := hip.Attend{Rows: where, KV: kv, Heads: c.heads, Scale: 0.1, Window: c.window, Capacity: 1024, Q: dq.address(), Out: dst.address(), Prompt: rows > 16, Reaches: b.reaches()}
				op.Scratch = m.put(t, make([]byte, op.ScratchBytes(m.target))).address()
				if i == 0 {
					first := turn
					first.Rows, first.Heads, first.Q, first.KV = where, c.heads, op.Q, kv
					m.run(t, first.Calls(m.target))
				} else {
					op.Turn, op.Settled = &turn, i == 2
				}
				m.run(t, op.Calls(m.target))
				outputs[i], caches[i] = make([]byte, 4*len(q)), make([]byte, len(pool.raw))
				dst.get(t, outputs[i])
				cache.get(t, caches[i])
			}
			for i := 1; i < len(outputs); i++ {
				if !bytes.Equal(outputs[0], outputs[i]) {
					t.Errorf("outputs differ (%d)", i)
				}
				if !bytes.Equal(caches[0], caches[i]) {
					t.Errorf("caches differ (%d)", i)
				}
			}
		})
	}
}
