package cpu

// DeltaStep takes one head of a gated delta net one position on. memory is
// S[len(k)][len(v)]; v becomes the output:
//
//	S *= fade
//	u[j]     = rate * (v[j] - sum over i of S[i][j]*k[i])
//	S[i][j] += k[i] * u[j]
//	v[j]     = sum over i of S[i][j]*q[i]
//
// i ascending, products and sums in float32. Source: Gated Delta Networks, arXiv
// 2412.06464, equation 10.
func (s *Set) DeltaStep(memory, q, k, v []float32, fade, rate float32) {
	want(len(q) == len(k) && len(memory) == len(k)*len(v), "DeltaStep", len(memory), len(q), len(k), len(v))
	s.deltaStep(memory, q, k, v, fade, rate)
}

// DeltaStepByChannel is DeltaStep where every row of S fades by a number of its own,
// fade[len(k)]. Source: Kimi Linear, arXiv 2510.26692, equation 1.
func (s *Set) DeltaStepByChannel(memory, q, k, v, fade []float32, rate float32) {
	want(len(q) == len(k) && len(fade) == len(k) && len(memory) == len(k)*len(v), "DeltaStepByChannel", len(memory), len(q), len(k), len(v), len(fade))
	s.deltaStepByChannel(memory, q, k, v, fade, rate)
}

// MulAdd computes dst[i] += a[i] * b[i].
func (s *Set) MulAdd(dst, a, b []float32) {
	want(len(a) == len(dst) && len(b) == len(dst), "MulAdd", len(dst), len(a), len(b))
	s.mulAdd(dst, a, b)
}

func deltaStepGeneric(memory, q, k, v []float32, fade, rate float32) {
	// A run of columns at a time: the sums lie in it.
	const run = 64
	var told, out [run]float32
	for lo := 0; lo < len(v); lo += run {
		n := min(run, len(v)-lo)
		clear(told[:n])
		clear(out[:n])
		for i, a := range k {
			for j, s := range memory[i*len(v)+lo : i*len(v)+lo+n] {
				told[j] += float32(a * s)
			}
		}
		for j := range n {
			told[j] = rate * (v[lo+j] - float32(fade*told[j]))
		}
		for i, a := range k {
			row := memory[i*len(v)+lo : i*len(v)+lo+n]
			for j, s := range row {
				s = float32(fade*s) + float32(a*told[j])
				row[j] = s
				out[j] += float32(q[i] * s)
			}
		}
		copy(v[lo:], out[:n])
	}
}

func deltaStepByChannelGeneric(memory, q, k, v, fade []float32, rate float32) {
	const run = 64
	var told, out [run]float32
	for lo := 0; lo < len(v); lo += run {
		n := min(run, len(v)-lo)
		clear(told[:n])
		clear(out[:n])
		for i, a := range k {
			a = float32(a * fade[i])
			for j, s := range memory[i*len(v)+lo : i*len(v)+lo+n] {
				told[j] += float32(a * s)
			}
		}
		for j := range n {
			told[j] = rate * (v[lo+j] - told[j])
		}
		for i, a := range k {
			row := memory[i*len(v)+lo : i*len(v)+lo+n]
			for j, s := range row {
				s = float32(fade[i]*s) + float32(a*told[j])
				row[j] = s
				out[j] += float32(q[i] * s)
			}
		}
		copy(v[lo:], out[:n])
	}
}

// deltaStepOfRows is DeltaStep by the level's kernels for rows, for levels that have none
// of their own.
func (s *Set) deltaStepOfRows(memory, q, k, v []float32, fade, rate float32) {
	var run [64]float32
	for lo := 0; lo < len(v); lo += len(run) {
		n := min(len(run), len(v)-lo)
		told, columns := run[:n], memory[lo:]
		clear(told)
		s.accumRows(told, k, columns, len(v))
		for j := range told {
			told[j] = rate * (v[lo+j] - float32(fade*told[j]))
		}
		for i, a := range k {
			row := columns[i*len(v) : i*len(v)+n]
			s.scale(row, fade)
			s.axpy(row, a, told)
		}
		clear(v[lo : lo+n])
		s.accumRows(v[lo:lo+n], q, columns, len(v))
	}
}

// deltaStepByChannelOfRows is DeltaStepByChannel in the same way.
func (s *Set) deltaStepByChannelOfRows(memory, q, k, v, fade []float32, rate float32) {
	var run [64]float32
	for lo := 0; lo < len(v); lo += len(run) {
		n := min(len(run), len(v)-lo)
		told, columns := run[:n], memory[lo:]
		clear(told)
		for i := range k {
			s.scale(columns[i*len(v):i*len(v)+n], fade[i])
		}
		s.accumRows(told, k, columns, len(v))
		for j := range told {
			told[j] = rate * (v[lo+j] - told[j])
		}
		for i, a := range k {
			s.axpy(columns[i*len(v):i*len(v)+n], a, told)
		}
		clear(v[lo : lo+n])
		s.accumRows(v[lo:lo+n], q, columns, len(v))
	}
}

func mulAddGeneric(dst, a, b []float32) {
	for i := range dst {
		dst[i] += float32(a[i] * b[i])
	}
}
