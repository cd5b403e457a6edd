package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/kernels/hip"
)

func ordinary(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// batch are rows of two sequences whose pages lie in no order.
type batch struct {
	position, owner []int32
	pages           []int32 // [2][maxPages]
	maxPages        int
	pool            int // pages of the pool
}

// newBatch gives rows to sequences in turn, the last ones at the positions.
func newBatch(r *rand.Rand, position ...int32) batch {
	b := batch{position: position, maxPages: int(slices.Max(position))/hip.PagePositions + 2}
	for i := range position {
		b.owner = append(b.owner, int32(i%2))
	}
	b.pool = 2*b.maxPages + 3
	for _, p := range r.Perm(b.pool)[:2*b.maxPages] {
		b.pages = append(b.pages, int32(p))
	}
	return b
}

// reaches says what the rows of each sequence see.
func (b *batch) reaches() (all []hip.Reach) {
	for row, p := range b.position {
		i := slices.IndexFunc(all, func(r hip.Reach) bool { return r.Owner == int(b.owner[row]) })
		switch {
		case p < 0:
		case i < 0:
			all = append(all, hip.Reach{Owner: int(b.owner[row]), First: int(p), Last: int(p)})
		default:
			all[i].First, all[i].Last = min(all[i].First, int(p)), max(all[i].Last, int(p))
		}
	}
	return all
}

func (b *batch) put(t *testing.T, m *machine) hip.Rows {
	return hip.Rows{
		T: len(b.position), MaxPages: 2 * b.maxPages,
		Position: m.put(t, b.position).address(), Owner: m.put(t, b.owner).address(), Pages: m.put(t, twoHalves(b.pages, b.maxPages, b.pool)).address(),
	}
}

// twoHalves adds to each row of a table of pages of a pool where what is in half precision
// lies: in as many pages, the other way round.
func twoHalves(pages []int32, row, pool int) (table []int32) {
	for ; len(pages) > 0; pages = pages[row:] {
		table = append(table, pages[:row]...)
		for _, p := range pages[:row] {
			table = append(table, int32(pool-1)-p)
		}
	}
	return table
}

// nearVector returns where a vector in half precision lies, given where the other does.
func nearVector(kv *hip.KV, vector int) int {
	size := kv.Heads * hip.PagePositions
	return (kv.Pages-1-vector/size)*size + vector%size
}

// poolOf is a KV of so many pages, with as many of the newest positions.
func poolOf(kv hip.KV, pages int) hip.KV {
	kv.Pages = pages
	if kv.Format.Coded() {
		kv.NewestPages = pages
	}
	return kv
}

// nearOf returns what is stored of x in half precision where a format turns it, turned.
func nearOf(f cpu.KVFormat, x []float32, d, width int) []float32 {
	x = slices.Clone(x)
	f.Turn(x, d, width)
	return storedVector(cpu.KVF16, x, true)
}

// vector returns where a head of a row lies in a pool, in vectors.
func (b *batch) vector(kv *hip.KV, row, head int) int {
	return b.at(kv, int(b.owner[row]), int(b.position[row]), head)
}

func (b *batch) at(kv *hip.KV, owner, position, head int) int {
	page := int(b.pages[owner*b.maxPages+position/hip.PagePositions])
	return (page*kv.Heads+head)*hip.PagePositions + position%hip.PagePositions
}

// storedVector returns what the cache would hold of x, decoded, by the meaning of the
// format: see kernels/cpu. What codes stand for stays turned.
func storedVector(f cpu.KVFormat, x []float32, key bool) []float32 {
	out := slices.Clone(x)
	switch f {
	case cpu.KVQ5, cpu.KVQ4, cpu.KVQ3:
		return codesOf(f, x, len(x), key).numbers(len(x))
	case cpu.KVF16:
		h := make([]byte, 2*len(x))
		cpu.Best().EncodeF16(h, x)
		cpu.Best().DecodeF16(out, h)
	case cpu.KVQ8:
		largest := func(x []float32) float32 {
			m := float32(0)
			for _, v := range x {
				if a := float32(math.Abs(float64(v))); m == m && !(a <= m) {
					m = a
				}
			}
			if m < 0x1p-96 {
				m = 0
			}
			return m
		}
		all := largest(x)
		for i := range x {
			m := all
			if key {
				m = max(largest(x[i/32*32:min(i/32*32+32, len(x))]), all*0x1p-20)
			}
			switch {
			case !(all <= math.MaxFloat32):
				out[i] = float32(math.NaN())
			case m == 0:
				out[i] = 0
			default:
				q := float32(math.RoundToEven(float64(x[i] * (127 / m))))
				out[i] = q * (m / 127)
			}
		}
	}
	return out
}

// decodePool reads a plane of a pool as float32 vectors.
func decodePool(t *testing.T, kv *hip.KV, pool []byte, key bool) func(vector int) []float32 {
	base := planesAt(kv)
	plane, scales := base[0], base[2]
	if !key {
		plane, scales = base[1], base[3]
	}
	data := pool[plane:]
	if kv.Format.Coded() {
		return func(v int) []float32 { return codedAt(kv.Format, kv.Dim, pool, plane, scales, v).numbers(kv.Dim) }
	}
	return func(v int) []float32 {
		out := make([]float32, kv.Dim)
		for i := range out {
			at := v*kv.Dim + i
			switch kv.Format {
			case cpu.KVF32:
				out[i] = math.Float32frombits(le32(data[4*at:]))
			case cpu.KVF16:
				cpu.Best().DecodeF16(out[i:i+1], data[2*at:2*at+2])
			case cpu.KVQ8:
				s := v
				if key {
					s = v*((kv.Dim+31)/32) + i/32
				}
				out[i] = float32(int8(data[at])) * math.Float32frombits(le32(pool[scales+4*s:]))
			}
		}
		return out
	}
}

// nearAt reads a vector in half precision.
func nearAt(kv *hip.KV, pool []byte, vector int, key bool) []float32 {
	x := make([]float32, kv.Dim)
	at := nearPlane(kv, key) + 2*vector*kv.Dim
	cpu.Best().DecodeF16(x, pool[at:at+2*kv.Dim])
	return x
}

// nearPlane returns where the plane of what is in half precision begins.
func nearPlane(kv *hip.KV, key bool) int {
	at := int(kv.PageBytes()) * kv.Pages
	if !key {
		at += int(kv.NewestPlanes()[0]) * kv.NewestPages
	}
	return at
}

func le32(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

func TestRope(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(1, 5))
	plain, err := cpu.ForLevel(cpu.LevelGeneric) // others fuse products with sums
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		format        cpu.KVFormat
		d, heads, kvs int
		pairs         int
		interleaved   bool
		qNorm, kNorm  bool
		kind          hip.NormKind
		special       float32
	}{
		{cpu.KVF32, 64, 4, 2, 32, false, false, false, 0, 0},
		{cpu.KVF32, 128, 5, 1, 64, true, false, false, 0, 0},
		{cpu.KVF16, 128, 8, 2, 64, false, true, true, hip.RMSNorm, 0},
		{cpu.KVF16, 80, 3, 3, 16, false, false, false, 0, 0},
		{cpu.KVF16, 33, 2, 1, 5, true, true, false, hip.LayerNorm, 0},
		{cpu.KVQ8, 128, 6, 3, 64, false, false, true, hip.RMSNorm, 0},
		{cpu.KVQ8, 96, 2, 2, 48, false, false, false, 0, 0},
		{cpu.KVQ8, 112, 2, 2, 56, true, false, false, 0, 0},
		{cpu.KVQ8, 20, 0, 2, 10, false, false, false, 0, 0},
		{cpu.KVQ8, 256, 1, 1, 0, false, false, false, 0, 0},
		{cpu.KVQ8, 2, 1, 1, 1, false, false, false, 0, 0},
		{cpu.KVF32, 1, 1, 1, 0, false, false, false, 0, 0},
		{cpu.KVQ4, 128, 2, 2, 64, false, false, true, hip.RMSNorm, 0},
		{cpu.KVQ5, 80, 1, 2, 40, true, false, false, 0, 0},
		{cpu.KVQ3, 96, 1, 1, 48, false, false, false, 0, 0},
		{cpu.KVQ3, 20, 0, 2, 10, false, false, false, 0, 0},
		{cpu.KVQ5, 33, 0, 1, 5, false, false, false, 0, 0},
		{cpu.KVQ4, 256, 1, 1, 0, false, false, false, 0, 0},
		{cpu.KVQ4, 1, 1, 1, 0, false, false, false, 0, 0},
		{cpu.KVQ4, 64, 1, 2, 16, false, false, false, 0, float32(math.Inf(1))},
		{cpu.KVQ5, 64, 1, 2, 16, false, false, false, 0, 0x1p-100},
		{cpu.KVQ3, 64, 1, 2, 16, false, false, false, 0, 1e12},
		{cpu.KVQ8, 64, 1, 2, 16, false, false, false, 0, float32(math.NaN())},
		{cpu.KVQ8, 64, 1, 2, 16, false, false, false, 0, float32(math.Inf(-1))},
		{cpu.KVQ8, 64, 1, 2, 16, false, false, false, 0, 0x1p-100},
		{cpu.KVQ8, 64, 1, 2, 16, false, false, false, 0, 1e12},
	} {
		if !sampled(t) {
			continue
		}
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			b := newBatch(r, 5, 130, -1, 64, 63)
			n := len(b.position)
			q, k, v := ordinary(r, n*c.heads*c.d), ordinary(r, n*c.kvs*c.d), ordinary(r, n*c.kvs*c.d)
			if c.special != 0 {
				k[c.d+3], v[c.d+7] = c.special, c.special
				if c.special == 0x1p-100 {
					for i := range c.d {
						k[i], v[i] = c.special, -c.special
					}
				}
			}
			cos, sin := ordinary(r, n*c.pairs), ordinary(r, n*c.pairs)
			w, bias := ordinary(r, c.d), ordinary(r, c.d)
			kv := poolOf(hip.KV{Format: c.format, Heads: c.kvs, Dim: c.d}, b.pool)
			pool := m.put(t, make([]byte, kv.Bytes()))
			kv.Base = pool.address()
			norm := hip.Normal{Kind: c.kind, Weight: m.put(t, w).address(), Eps: 1e-6}
			if c.kind == hip.LayerNorm {
				norm.Bias = m.put(t, bias).address()
			}
			dq := m.put(t, q)
			op := hip.Rope{
				Rows: b.put(t, m), Heads: c.heads, Q: dq.address(), K: m.put(t, k).address(), V: m.put(t, v).address(), KV: kv,
				Turn: hip.Rotation{Pairs: c.pairs, Interleaved: c.interleaved, Cosine: m.put(t, cos).address(), Sine: m.put(t, sin).address()},
			}
			if c.qNorm {
				op.QNorm = norm
			}
			if c.kNorm {
				op.KNorm = norm
			}
			finish := func(x []float32, row int, normed bool) {
				for ; len(x) > 0; x = x[c.d:] {
					h := x[:c.d]
					if normed && c.kind == hip.RMSNorm {
						plain.RMSNorm(h, h, w, 1e-6, 0)
					} else if normed {
						plain.LayerNorm(h, h, w, bias, 1e-6)
					}
					if c.interleaved {
						plain.RopeInterleaved(h, cos[row*c.pairs:(row+1)*c.pairs], sin[row*c.pairs:(row+1)*c.pairs])
					} else {
						plain.RopeHalf(h, cos[row*c.pairs:(row+1)*c.pairs], sin[row*c.pairs:(row+1)*c.pairs])
					}
				}
			}
			for row, p := range b.position {
				if p < 0 {
					continue
				}
				finish(q[row*c.heads*c.d:(row+1)*c.heads*c.d], row, c.qNorm)
				finish(k[row*c.kvs*c.d:(row+1)*c.kvs*c.d], row, c.kNorm)
			}
			m.run(t, op.Calls(m.target))
			gotQ, raw := make([]float32, len(q)), make([]byte, kv.Bytes())
			dq.get(t, gotQ)
			pool.get(t, raw)
			same(t, "Q", gotQ, q)
			keys, values := decodePool(t, &kv, raw, true), decodePool(t, &kv, raw, false)
			for row, p := range b.position {
				for h := range c.kvs {
					if p < 0 {
						continue
					}
					at := (row*c.kvs + h) * c.d
					same(t, "key", keys(b.vector(&kv, row, h)), storedVector(c.format, k[at:at+c.d], true))
					same(t, "value", values(b.vector(&kv, row, h)), storedVector(c.format, v[at:at+c.d], false))
					if c.format.Coded() {
						near := nearVector(&kv, b.vector(&kv, row, h))
						same(t, "key in half precision", nearAt(&kv, raw, near, true), nearOf(c.format, k[at:at+c.d], c.d, c.d))
						same(t, "value in half precision", nearAt(&kv, raw, near, false), nearOf(c.format, v[at:at+c.d], c.d, c.d))
					}
				}
			}
			used := 0
			for _, x := range raw {
				if x != 0 {
					used++
				}
			}
			newest := kv.NewestPlanes()
			if bytes := 4 * int(kv.PageBytes()+newest[0]+newest[1]) / hip.PagePositions; used > bytes {
				t.Errorf("%d bytes of the pool were written, four rows have %d", used, bytes)
			}
		})
	}
}

// same wants equal numbers, except that NaNs are alike.
func same(t *testing.T, name string, got, want []float32) {
	t.Helper()
	for i, w := range want {
		if got[i] != w && !(got[i] != got[i] && w != w) {
			t.Fatalf("%s: element %d is %g, want %g", name, i, got[i], w)
		}
	}
}

func TestAngles(t *testing.T) {
	m := open(t)
	const pairs = 37
	position := []int32{0, 1, 2, 100, 4095, 131071, 1 << 23, 7}
	owner := []int32{0, 1, 0, 1, 1, 0, 1, 1}
	freq, factor := make([]float32, 2*pairs), []float32{1, 1.25}
	for i := range freq {
		freq[i] = float32(math.Pow(10000, -float64(i%pairs)/pairs)) / float32(1+i/pairs)
	}
	n := len(position) * pairs
	for _, perOwner := range []bool{true, false} {
		cos, sin := m.put(t, make([]float32, n)), m.put(t, make([]float32, n))
		m.run(t, (&hip.Angles{
			Cosine: cos.address(), Sine: sin.address(), Position: m.put(t, position).address(), Owner: m.put(t, owner).address(),
			Frequency: m.put(t, freq).address(), Factor: m.put(t, factor).address(), T: len(position), Pairs: pairs, PerOwner: perOwner,
		}).Calls(m.target))
		gotCos, gotSin := make([]float32, n), make([]float32, n)
		cos.get(t, gotCos)
		sin.get(t, gotSin)
		for i := range n {
			s := int(owner[i/pairs])
			if !perOwner {
				s = 0
			}
			wantSin, wantCos := math.Sincos(float64(float32(position[i/pairs]) * freq[s*pairs+i%pairs]))
			if gotCos[i] != float32(wantCos)*factor[s] || gotSin[i] != float32(wantSin)*factor[s] {
				t.Fatalf("position %d pair %d: %g %g, want %g %g", position[i/pairs], i%pairs, gotCos[i], gotSin[i], wantCos, wantSin)
			}
		}
	}
}
