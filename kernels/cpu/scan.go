package cpu

// ScanStep takes one head of a state space one position on. memory is
// S[len(k)][len(v)]; v becomes the output:
//
//	u[j]    = rate * v[j]
//	S[i][j] = fade*S[i][j] + k[i]*u[j]
//	v[j]    = skip*v[j] + sum over i of S[i][j]*q[i]
//
// i ascending, products and sums in float32. Source: arXiv 2405.21060, the recurrent
// form of section 3.
func (s *Set) ScanStep(memory, q, k, v []float32, fade, rate, skip float32) {
	want(len(q) == len(k) && len(memory) == len(k)*len(v), "ScanStep", len(memory), len(q), len(k), len(v))
	s.scanStep(memory, q, k, v, fade, rate, skip)
}

func scanStepGeneric(memory, q, k, v []float32, fade, rate, skip float32) {
	// A run of columns at a time: the sums lie in it.
	const run = 64
	var told, out [run]float32
	for lo := 0; lo < len(v); lo += run {
		n := min(run, len(v)-lo)
		for j := range n {
			told[j], out[j] = rate*v[lo+j], skip*v[lo+j]
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

// scanStepOfRows is ScanStep by the level's kernels for rows, for levels that have none
// of their own.
func (s *Set) scanStepOfRows(memory, q, k, v []float32, fade, rate, skip float32) {
	var run [64]float32
	for lo := 0; lo < len(v); lo += len(run) {
		n := min(len(run), len(v)-lo)
		told, columns := run[:n], memory[lo:]
		for j := range told {
			told[j] = rate * v[lo+j]
		}
		for i, a := range k {
			row := columns[i*len(v) : i*len(v)+n]
			s.scale(row, fade)
			s.axpy(row, a, told)
		}
		s.scale(v[lo:lo+n], skip)
		s.accumRows(v[lo:lo+n], q, columns, len(v))
	}
}
