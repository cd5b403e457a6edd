//go:build !noasm

package cpu

func lanesAVX2() laneKernels {
	return assemblyLanes(laneSumsAVX2, laneErrorAVX2, laneRangeAVX2, laneAnswerAVX2, laneRoundAVX2).
		search(laneScalesAVX2, laneOffsetsAVX2, laneNearAVX2)
}

func lanesAVX512() laneKernels {
	return assemblyLanes(laneSumsAVX512, laneErrorAVX512, laneRangeAVX512, laneAnswerAVX512, laneRoundAVX512).
		search(laneScalesAVX512, laneOffsetsAVX512, laneNearAVX512)
}

func assemblyLanes(
	sums, distortion func(sums, x, w *float32, n int, grid, table *float32),
	extent func(low, high, x *float32, n int),
	answer func(z, e *float32, n int, m *float32, ld int),
	round func(q, z, e, loss, d, m *float32, ld int, grid, table *float32),
) laneKernels {
	return laneKernels{
		sums: func(s *LaneSums, x []Lane, w []float32, g *LaneGrid) {
			if len(x) == 0 {
				*s = LaneSums{}
				return
			}
			sums(&s.Level[0], &x[0][0], &w[0], len(w), &g.Scale[0], g.table())
		},
		distortion: func(sum *Lane, x []Lane, w []float32, g *LaneGrid) {
			if len(x) == 0 {
				*sum = Lane{}
				return
			}
			distortion(&sum[0], &x[0][0], &w[0], len(w), &g.Scale[0], g.table())
		},
		extent: func(low, high *Lane, x []Lane) { extent(&low[0], &high[0], &x[0][0], len(x)) },
		answer: func(z *[Lanes]Lane, e []Lane, m []float32, ld int) {
			answer(&z[0][0], &e[0][0], len(e), &m[0], ld)
		},
		round: func(q, z, e *[Lanes]Lane, loss *Lane, d *[Lanes]float32, m []float32, ld int, g *LaneGrid) {
			var first *float32
			if m != nil {
				first = &m[0]
			}
			round(&q[0][0], &z[0][0], &e[0][0], &loss[0], &d[0], first, ld, &g.Scale[0], g.table())
		},
	}
}

// search adds the kernels of lanesearch.go.
func (k laneKernels) search(
	scales func(best, top, x, w *float32, n int, reach []float32, refine int, grid, table *float32),
	offsets func(best, low, high, x, w *float32, n int, reach []float32, refine int, o, grid, table *float32),
	near func(sum, scale, offset, x, w *float32, n int, near, steps *float32, count int, grid, table *float32),
) laneKernels {
	k.scales = func(best *LaneScales, top *Lane, x []Lane, w, reach []float32, refine int, g *LaneGrid) {
		scales(&best.Scale[0], &top[0], &x[0][0], &w[0], len(w), reach, refine, &g.Scale[0], g.table())
	}
	k.offsets = func(best *LaneScales, low, high *Lane, x []Lane, w, reach []float32, refine int, o *[2]float32, g *LaneGrid) {
		offsets(&best.Scale[0], &low[0], &high[0], &x[0][0], &w[0], len(w), reach, refine, &o[0], &g.Scale[0], g.table())
	}
	k.near = func(sum, scale, offset *Lane, x []Lane, w []float32, from *LaneNear, steps [][2]float32, g *LaneGrid) {
		near(&sum[0], &scale[0], &offset[0], &x[0][0], &w[0], len(w), &from.Scale[0], &steps[0][0], len(steps), &g.Scale[0], g.table())
	}
	return k
}

// table returns where the levels begin, or nil.
func (g *LaneGrid) table() *float32 {
	if g.Table == nil {
		return nil
	}
	return &g.Table[0]
}
