package hip

import (
	"fmt"
	"strings"
)

// A MatmulTile is how a launch of a matrix product divides its work; see
// matmul.hip. The sizes of a tile are those of the target's matrix unit.
type MatmulTile struct {
	Features int  // tiles of weights of a wave
	Tokens   int  // tiles of activations of a block
	Waves    int  // waves side by side over the features
	Parts    int  // groups of them that divide k
	Stages   int  // steps of activations in LDS
	Ahead    int  // loads of weights that are under way
	Resident int  // blocks of a unit (CUDA) or waves of a SIMD (HIP) that registers are limited for
	Teams    bool // the waves multiply in teams of four, where the target can (sm_90)
}

// String writes the tile as the tables of measurements do.
func (m MatmulTile) String() string {
	return fmt.Sprintf("f%d t%d w%d p%d s%d a%d r%d%s", m.Features, m.Tokens, m.Waves, m.Parts, m.Stages, m.Ahead, m.Resident, map[bool]string{true: " team"}[m.Teams])
}

func (m MatmulTile) defines() string {
	return fmt.Sprintf("MATMUL_FEATURES=%d MATMUL_TOKENS=%d MATMUL_WAVES=%d MATMUL_PARTS=%d MATMUL_STAGES=%d MATMUL_AHEAD=%d MATMUL_RESIDENT=%d NSTF_TEAMS=%d",
		m.Features, m.Tokens, m.Waves, m.Parts, m.Stages, m.Ahead, m.Resident, digit(m.Teams))
}

// A unitShape is what matrix.hip calls MATRIX_FEATURES, MATRIX_TOKENS and
// MATRIX_SUMS.
type unitShape struct{ features, tokens, sums int }

func shapeOf(t Target, exact bool) unitShape {
	switch unit := t.Matrix(); {
	case exact || unit == NoMatrix:
		return unitShape{t.Wave, 8, 8}
	case unit == MMA:
		return unitShape{16, 8, 4}
	case unit == MFMA:
		return unitShape{16, 16, 4}
	}
	return unitShape{16, 16, 8}
}

// Size returns the tokens and features of a block.
func (m MatmulTile) Size(t Target, exact bool) (tokens, features int) {
	s := shapeOf(t, exact)
	return m.Tokens * s.tokens, m.Waves * m.Features * s.features
}

// gates reports whether half of the waves can have gates and half what they are
// multiplied with.
func (m MatmulTile) gates() bool { return m.Waves%2 == 0 && (!m.Teams || m.Waves%8 == 0) }

// lds returns the dynamic LDS of a block: the stages, which the parts' sums and a
// tile of weights of what gates are multiplied with use again.
func (m MatmulTile) lds(t Target, exact bool) int {
	s := shapeOf(t, exact)
	stages := m.Stages * m.Parts * m.Tokens * s.tokens * 128
	sums := m.Waves * t.Wave * m.Tokens * s.sums * 4
	return max(stages, (m.Parts-1)*m.Features*sums, sums/2)
}

// tuned is a tile and the share of the target's greatest rate that it reaches
// where it fills all units.
type tuned struct {
	MatmulTile
	rate float64
}

// MatmulTiles returns the tiles that are worth trying on a target, the ones that
// suit most tokens first.
func MatmulTiles(t Target, exact bool) []MatmulTile {
	var tiles []MatmulTile
	for _, r := range matmulTiles(t, exact) {
		tiles = append(tiles, r.MatmulTile)
	}
	return tiles
}

// matmulTiles is the tuning table. AMD's tiles for few tokens, whose rates are guessed, divide k as the others do:
// another order of sums would not be chosen.
func matmulTiles(t Target, exact bool) []tuned {
	unit := t.Matrix()
	switch {
	case exact && t.API == CUDA:
		return []tuned{
			{MatmulTile{2, 8, 4, 1, 2, 1, 2, false}, 0.3},
			{MatmulTile{1, 8, 4, 1, 2, 1, 4, false}, 0.5},
			{MatmulTile{2, 4, 4, 1, 2, 1, 3, false}, 0.5},
			{MatmulTile{1, 16, 4, 1, 2, 1, 2, false}, 0.5},
			{MatmulTile{1, 4, 4, 2, 2, 1, 2, false}, 0.5},
			{MatmulTile{1, 4, 2, 4, 2, 1, 1, false}, 0.6},
		}
	case exact && unit != MFMA:
		return []tuned{
			{MatmulTile{1, 8, 4, 1, 2, 1, 1, false}, 1},
			{MatmulTile{1, 2, 4, 1, 2, 2, 1, false}, 0.4},
			{MatmulTile{1, 1, 2, 1, 2, 2, 1, false}, 0.2},
		}
	case exact || unit == NoMatrix:
		return []tuned{
			{MatmulTile{2, 4, 4, 1, 2, 1, 1, false}, 1},
			{MatmulTile{1, 2, 4, 1, 2, 2, 1, false}, 0.4},
			{MatmulTile{1, 1, 2, 1, 2, 2, 1, false}, 0.2},
		}
	case unit == MMA && strings.HasPrefix(t.Arch, "sm_90"):
		return []tuned{
			{MatmulTile{1, 32, 8, 1, 4, 1, 1, true}, 0.49},
			{MatmulTile{1, 16, 8, 1, 4, 1, 1, true}, 0.41},
			{MatmulTile{1, 4, 8, 1, 4, 1, 2, true}, 0.24},
			{MatmulTile{1, 4, 4, 1, 4, 1, 4, true}, 0.23},
			{MatmulTile{2, 8, 4, 1, 4, 1, 2, false}, 0.27},
			{MatmulTile{2, 4, 4, 2, 3, 2, 1, false}, 0.21},
			{MatmulTile{1, 4, 2, 4, 3, 2, 2, false}, 0.17},
			{MatmulTile{1, 2, 2, 4, 3, 2, 2, false}, 0.12},
		}
	case unit == MMA:
		return []tuned{
			{MatmulTile{2, 8, 4, 1, 3, 1, 2, false}, 1},
			{MatmulTile{2, 4, 4, 2, 2, 1, 2, false}, 0.7},
			{MatmulTile{1, 2, 2, 4, 2, 2, 2, false}, 0.4},
		}
	case unit == MFMA:
		resident := 2
		if t.Arch == "gfx908" {
			resident = 1 // sums and the rest lie in two files of registers
		}
		return []tuned{
			{MatmulTile{4, 8, 4, 1, 2, 1, resident, false}, 1},
			{MatmulTile{2, 4, 4, 1, 2, 1, 1, false}, 0.7},
			{MatmulTile{1, 2, 4, 1, 2, 2, 1, false}, 0.3},
			{MatmulTile{1, 1, 2, 1, 2, 2, 1, false}, 0.2},
		}
	}
	return []tuned{ // WMMA
		{MatmulTile{2, 8, 4, 1, 2, 1, 1, false}, 1},
		{MatmulTile{2, 4, 4, 1, 2, 1, 1, false}, 0.8},
		{MatmulTile{1, 2, 4, 1, 2, 2, 1, false}, 0.3},
		{MatmulTile{1, 1, 2, 1, 2, 2, 1, false}, 0.2},
	}
}

// holds reports whether registers hold the largest tile's sums beside weights of
// a format on their way: on WMMA targets weights that are decoded number by
// number spill, on gfx950 two schemes and on RDNA 4 one.
func (t Target) holds(f Format) bool {
	unit := t.Matrix()
	if t.Arch == "gfx950" {
		return f.Scheme != "f32" && f.Scheme != "tq1_0"
	}
	if unit == WMMA12 && f.Scheme == "q2_0" { // clang-19 spills 2 registers
		return false
	}
	return unit != WMMA11 && unit != WMMA12 || f.integer || f.Scheme == "f16" || f.Scheme == "bf16"
}

// order is what the order of a product's sums depends on.
func (m MatmulTile) order() MatmulTile { return MatmulTile{Parts: m.Parts, Teams: m.Teams} }

// tile chooses the launch that should take the least time, of those with the order of
// sums that prompts have.
func (o *Matmul) tile(t Target, group []Product, exact bool) MatmulTile {
	if o.Tile != nil {
		return *o.Tile
	}
	return o.least(t, group, exact, o.T, o.order(t, group, exact))
}

// order returns the order of the sums of products: how many parts divide k, and whether
// teams multiply. It depends neither on how many rows there are, so that a row's bits do
// not, nor on which products share a launch: it is that of the tile for most tokens, and
// of experts, of which each has some of the rows, that of the one for a long prompt.
func (o *Matmul) order(t Target, group []Product, exact bool) MatmulTile {
	if o.Slots != 0 {
		const slots = 8192
		return o.least(t, group, exact, slots, MatmulTile{}).order()
	}
	for _, r := range matmulTiles(t, exact) {
		if m := r.MatmulTile; o.takes(t, group, exact, &m) {
			return m.order()
		}
	}
	return MatmulTile{}
}

// takes reports whether products may have a tile, and adapts it to them.
func (o *Matmul) takes(t Target, group []Product, exact bool, m *MatmulTile) bool {
	if group[0].W.Format.Rotated() { // a lane holds whole tiles of codes
		m.Features, m.Ahead, m.Resident = 1, 1, 1
		m.Tokens = min(m.Tokens, map[API]int{HIP: 4, CUDA: 16}[t.API])
	}
	if !exact && m.Features*m.Tokens > 8 && !t.holds(group[0].W.Format) {
		return false
	}
	return (!o.Gated || m.gates()) && m.lds(t, exact) <= t.LDS-matvecStatic
}

// least returns the launch for so many rows that should take the least time, of one
// order where that is given: the rounds that all units work through, times what a
// block has to do at the tile's rate.
func (o *Matmul) least(t Target, group []Product, exact bool, rows int, order MatmulTile) MatmulTile {
	var best MatmulTile
	least := 0.0
	for _, r := range matmulTiles(t, exact) {
		m := r.MatmulTile
		if !o.takes(t, group, exact, &m) || order != (MatmulTile{}) && m.order() != order {
			continue
		}
		tokens, features := m.Size(t, exact)
		if o.Gated {
			features /= 2
		}
		blocks := 0
		for i, p := range group {
			if i == 0 || !o.Gated {
				blocks += ceil(p.W.N, features)
			}
		}
		blocks *= ceil(rows, tokens) + o.whole()/2
		rounds := max(float64(blocks)/float64(t.Units), 1)
		if blocks < 4*t.Units {
			rounds = float64(ceil(blocks, t.Units))
		}
		time := rounds * float64(tokens*features) / r.rate
		if least == 0 || time < least {
			best, least = m, time
		}
	}
	return best
}
