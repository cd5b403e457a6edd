package hip

import (
	"fmt"
	"slices"
	"strings"
)

// A Tuning is divisions of work that were found to be the fastest on a device,
// by the operation's key. What it does not list is divided as the tables say.
type Tuning struct {
	Matvec map[string]MatvecShape `json:"matvec,omitempty"`
	Matmul map[string]MatmulTile  `json:"matmul,omitempty"`
	Attend map[string]AttendShape `json:"attend,omitempty"`
}

// Apply gives an operation the division that was found for it, if any.
func (u *Tuning) Apply(operation any) {
	if u == nil {
		return
	}
	switch o := operation.(type) {
	case *Matvec:
		if s, ok := u.Matvec[o.Key()]; ok {
			o.Shape = &s
		}
	case *Matmul:
		if m, ok := u.Matmul[o.Key()]; ok {
			o.Tile = &m
		}
	case *Attend:
		if s, ok := u.Attend[o.Key()]; ok {
			o.Shape = &s
		}
	}
}

// Sound reports whether a tuning's divisions are among those that are tried on a
// target, as far as can be told without the operations.
func (u *Tuning) Sound(t Target) bool {
	for _, s := range u.Matvec {
		if s.Waves < 1 || s.Waves*t.Wave > 1024 || s.Lanes < 1 || s.Lanes > t.Wave || s.Lanes&(s.Lanes-1) != 0 || s.Split < 1 || s.Waves%s.Split != 0 || s.Split&(s.Split-1) != 0 ||
			s.Rows < 1 || s.Rows > 4 || s.Steps < 1 || s.Steps > 8 || s.Blocks < 1 || s.Blocks > 8 || s.Grid < 0 || s.Grid > 16 ||
			s.Ahead != 0 || s.Direct || s.Features != 0 || s.Depth != 0 { // Shapes never lists those
			return false
		}
	}
	for _, m := range u.Matmul {
		if !slices.Contains(MatmulTiles(t, false), m) && !slices.Contains(MatmulTiles(t, true), m) {
			return false
		}
	}
	for _, s := range u.Attend {
		if s.Waves*t.Wave != 256 || s.Queries < 1 || s.Queries > attendMaxGroup || s.Fill < 1 || s.Fill > 4 || s.Least < 64 || s.Least > 4096 || s.Least%64 != 0 || s.Resident != 0 || s.Rows != 0 {
			return false
		}
	}
	return true
}

// sizes writes formats and sizes of products.
func sizes(products []Product) string {
	var b strings.Builder
	for _, p := range products {
		fmt.Fprintf(&b, " %s %dx%d", strings.TrimPrefix(p.W.Format.defines, "NSTF_SCHEME="), p.W.N, p.W.K)
		if p.Z != 0 {
			fmt.Fprintf(&b, "+%d", p.A.K)
		}
	}
	return b.String()
}

// Key names what the best division depends on, "" where there is nothing to
// choose: products of several formats are several launches.
func (o *Matvec) Key() string {
	if len(o.groups(o.together(), 3)) != 1 || o.Products[0].W.Format.Rotated() {
		return ""
	}
	source := "x"
	switch {
	case o.Norm.Weight != 0:
		source = "norm"
	case o.rounded(o.Products[0].W.Format).Data != 0:
		source = "bytes"
	}
	return fmt.Sprintf("%d rows of %s%s exact=%t gated=%t rounded=%t experts=%d", o.T, source, sizes(o.Products), o.Exact, o.Gated, o.Rounded.Data != 0, o.Stack)
}

// Key names what the best division depends on, "" where there is nothing to
// choose.
func (o *Matmul) Key() string {
	if len((&Matvec{Products: o.Products, Gated: o.Gated}).groups(3, 3)) != 1 {
		return ""
	}
	return fmt.Sprintf("%d rows of prompts%s exact=%t gated=%t experts=%d", o.T, sizes(o.Products), o.Exact, o.Gated, o.whole())
}

// Key names what the best division depends on, "" where there is nothing to
// choose. What is best for one row several rows have too, and so their bits.
func (o *Attend) Key() string {
	if o.Prompt || o.T > MaxRows {
		return ""
	}
	return fmt.Sprintf("rows of %d heads %dx%d %v", o.Heads, o.KV.Heads, o.KV.Dim, o.KV.Format)
}

// Shapes lists divisions that are worth trying beside the chosen one.
func (o *Matvec) Shapes(t Target) []MatvecShape {
	w := &o.Products[0].W
	least := w.N
	for _, p := range o.Products {
		least = min(least, p.W.N)
	}
	usual := o.usual(t)
	lanes, split := usual.Lanes, usual.Split // another order of sums would give other rows other bits
	perLane := ceil(w.K/w.Format.unit, lanes*split)
	var list []MatvecShape
	add := func(s MatvecShape) {
		s.Lanes, s.Split = lanes, split
		tile := s.Waves / split * (t.Wave / lanes) * s.Rows
		if s.Rows > least || s.Waves < split || o.Rounded.Data != 0 && tile%32 != 0 || s.Steps > 1 && perLane%s.Steps != 0 || slices.Contains(list, s) {
			return
		}
		list = append(list, s)
	}
	for _, threads := range []int{256, 512} {
		for _, rows := range []int{1, 2, 4} {
			for _, steps := range []int{1, 2, 4} {
				if n := rows * steps * o.views() * min(rowsAtOnce(o.T), 4); n > 8 {
					continue
				}
				blocks := 1024 / threads
				add(MatvecShape{Rows: rows, Steps: steps, Waves: threads / t.Wave, Blocks: 1})
				add(MatvecShape{Rows: rows, Steps: steps, Waves: threads / t.Wave, Blocks: blocks / 2, Grid: blocks / 2, Pipe: true})
				if t.API == HIP { // of waves of 32 a SIMD holds 16, of 64 about 8
					add(MatvecShape{Rows: rows, Steps: steps, Waves: threads / t.Wave, Blocks: 1, Grid: blocks})
				}
			}
		}
	}
	return list
}

// Tiles lists tiles that are worth trying beside the chosen one.
func (o *Matmul) Tiles(t Target) []MatmulTile {
	f := &o.Products[0].W.Format
	exact := o.Exact || !f.halves()
	var list []MatmulTile
	order := o.order(t, o.Products, exact) // another one would give rows other bits
	for _, m := range MatmulTiles(t, exact) {
		if m.order() != order || f.Rotated() || o.Gated && !m.gates() || m.lds(t, exact) > t.LDS-matvecStatic {
			continue
		}
		list = append(list, m)
	}
	return list
}

// Shapes lists divisions that are worth trying beside the chosen one.
func (o *Attend) Shapes(t Target) []AttendShape {
	var list []AttendShape
	for _, queries := range []int{1, 2, 4} {
		for _, least := range []int{64, 128, 256} {
			for _, fill := range []int{1, 2} {
				list = append(list, AttendShape{Waves: 256 / t.Wave, Queries: queries, Fill: fill, Least: least})
			}
		}
	}
	return list
}
