package conformance

import (
	"math/rand/v2"
	"testing"

	"github.com/nstf/nstf/kernels/hip"
	"github.com/nstf/nstf/kernels/ops"
)

// TestMatrows multiplies many rows in one reading of the weights, of every scheme with an
// integer form: whole steps and tails, and rows alone have the same bits.
func TestMatrows(t *testing.T) {
	m := open(t)
	for _, v := range varieties(t) {
		t.Run(v.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(81, 82))
			run := 0
			for _, c := range []*matvecCase{
				{v: v, t: 17, k: 1280, n: []int{37}, acts: true, extras: true},
				{v: v, t: 9, k: 2304, n: []int{19}, acts: true},
			} {
				if v.fits(c.k) && v.integer(t, c.k) && !(divided() && run > 0) && taken(t) {
					c.run(t, m, r)
					run++
				}
			}
		})
	}
}

// integer reports whether there are products of rounded activations.
func (v *variety) integer(t testing.TB, k int) bool {
	t.Helper()
	f, err := hip.FormatOf(v.scheme, v.params, int64(k))
	if err != nil {
		t.Fatal(err)
	}
	return f.Integer() && !f.Rotated()
}

// TestMatrowsGroups multiplies several matrices, also narrower than a tile, by numbers of
// rows up to and beyond what a launch takes.
func TestMatrowsGroups(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(83, 84))
	for _, v := range pick(t, "q4_k", "q6_k", "q8_0") {
		for _, c := range []*matvecCase{
			{t: 32, k: 1024, n: []int{40, 8, 8}},
			{t: 12, k: 256, n: []int{1, 70}, extras: true},
			{t: 33, k: 512, n: []int{33, 129, 2}, repeated: true},
			{t: 64, k: 768, n: []int{50}, extras: true},
		} {
			if c.v, c.acts = v, true; taken(t) {
				c.run(t, m, r)
			}
		}
	}
}

// TestMatrowsShapes runs tiles of every height, of activations in LDS and in memory.
func TestMatrowsShapes(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(87, 88))
	for _, v := range pick(t, "q4_k", "q6_k") {
		for features := 1; features <= 3; features++ {
			for _, parts := range []int{2, 4, 8} {
				for _, k := range []int{1280, 768} { // of activations in memory, and in LDS
					s := hip.MatvecShape{Rows: parts, Waves: max(parts/4, 1), Features: features, Steps: max(parts/features, 1), Blocks: 1, Direct: k == 1280}
					if features*parts <= 8 && taken(t) {
						(&matvecCase{v: v, t: 13, k: k, n: []int{50, 200}, acts: true, shape: &s}).run(t, m, r)
					}
				}
			}
		}
	}
}

// TestMatrowsRaw runs what NVIDIA's matrix unit multiplies straight from codes: tiles that
// waves share and that they have alone, steps that are not whole, several tiles of a
// block, and several matrices; rows alone have the same bits.
func TestMatrowsRaw(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(89, 90))
	v := pick(t, "q4_k")[0]
	shapes := []*hip.MatvecShape{nil}
	if m.target.Matrix() == hip.MMA {
		shapes = append(shapes, &hip.MatvecShape{Waves: 16, Split: 8, Depth: 3}, &hip.MatvecShape{Waves: 12, Split: 4, Depth: 4},
			&hip.MatvecShape{Waves: 6, Split: 2, Depth: 2}, &hip.MatvecShape{Waves: 14, Split: 1, Depth: 4})
	}
	for _, s := range shapes {
		for _, c := range []*matvecCase{
			{t: 32, k: 1024, n: []int{40, 8, 8}, repeated: true},
			{t: 9, k: 1280, n: []int{70}, extras: true},
			{t: 3, k: 2304, n: []int{33}},
			{t: 24, k: 4096, n: []int{1, 130}, extras: true},
			{t: 17, k: 1024, n: []int{9000}, repeated: true},
		} {
			if c.v, c.acts, c.shape = v, true, s; taken(t) && !(testing.Short() && c.n[0] > 1000 && m.target.API == hip.HIP) {
				c.run(t, m, r)
			}
		}
	}
}

// TestMatrowsGated wants the bits of gated rows alone.
func TestMatrowsGated(t *testing.T) {
	m := open(t)
	r := rand.New(rand.NewPCG(85, 86))
	for _, v := range pick(t, "q4_k", "q6_k", "q8_0") {
		for _, c := range []struct{ t, n, k int }{{8, 70, 1280}, {8, 45, 512}, {10, 45, 512}, {20, 64, 1280}, {32, 130, 256}, {17, 50, 1280}} {
			if !taken(t) {
				continue
			}
			acts, a := m.rounded(t, activations(r, c.t*c.k), c.t, c.k, v.fine(t, c.k))
			op := &hip.Matvec{T: c.t, Gated: true, Act: ops.SiLU}
			give(op, a)
			for range 2 {
				op.Products = append(op.Products, hip.Product{W: m.place(t, v.make(t, r, c.n, c.k), c.n)})
			}
			all, one := make([]float32, c.t*c.n), make([]float32, c.n)
			y, alone := m.put(t, all), m.put(t, one)
			op.Products[0].Y = y.address()
			m.run(t, op.Calls(m.target))
			y.get(t, all)
			for row := range c.t {
				single := *op
				single.T, single.Products = 1, []hip.Product{{W: op.Products[0].W, Y: alone.address()}, {W: op.Products[1].W}}
				if a.Fine {
					single.Fine.Data += hip.Address(hip.FineActsSize(row, c.k))
				} else {
					single.Acts.Data += hip.Address(hip.ActsSize(row, c.k))
				}
				m.run(t, single.Calls(m.target))
				alone.get(t, one)
				sameBits(t, v.String()+", a gated row alone", one, all[row*c.n:(row+1)*c.n])
			}
			for _, p := range []*memory{acts, y, alone} {
				p.release()
			}
		}
	}
}
