package cpu

// integerRows are the rows of one matrix of a scheme.
type integerRows struct {
	*Integer
	w []byte
	k int
}

// unpackRow unpacks row n, padding its end.
func (r *integerRows) unpackRow(dst []byte, n int, sc *IntegerScratch) {
	size, run := r.rowBytes(r.k), r.runBytes()
	row := r.w[n*size : (n+1)*size]
	whole := size / run
	if whole > 0 {
		r.unpackRuns(dst, row, whole, sc)
	}
	if rest := row[whole*run:]; len(rest) > 0 {
		clear(sc.last[copy(sc.last[:], rest):run])
		r.unpackRuns(dst[whole*unpackedBytes:], sc.last[:run], 1, sc)
	}
}

// unpackRuns unpacks whole runs, with the level's assembly where it has some.
func (k *Integer) unpackRuns(dst, w []byte, runs int, sc *IntegerScratch) {
	if k.unpackAll != nil {
		k.unpackAll(dst, w, runs)
		return
	}
	run := k.runBytes()
	for i := range runs {
		k.unpack(&sc.run, w[i*run:(i+1)*run])
		k.product.put((*[unpackedBytes]byte)(dst[i*unpackedBytes:]), &sc.run)
	}
}

// multiplyFew multiplies tokens by rows of w, four or eight at a time, and a handful of
// rows at a time, so that they are read from memory once.
func (k *Integer) multiplyFew(c []float32, ldc, rows int, w []byte, a *Activations, sc *IntegerScratch) {
	size := k.rowBytes(a.k)
	step := rows
	if a.t >= len(k.matVec) || k.matVec[a.t] == nil {
		step = max(rowsInL1/size, 1)
	}
	most := 4
	if k.matVec[8] != nil {
		most = 8
	}
	for n := 0; n < rows; n += step {
		here := min(step, rows-n)
		for t := 0; t < a.t; {
			m := tokensAtOnce(a.t-t, most)
			k.multiplyRows(c[t*ldc+n:], ldc, here, w[n*size:], a, t, m, sc)
			t += m
		}
	}
}

// rowsInL1 is how many bytes of weights are read again for the next tokens.
const rowsInL1 = 16 << 10

// tokensAtOnce returns how many of the tokens that are left go together: a power of two.
func tokensAtOnce(left, most int) int {
	for most > left {
		most /= 2
	}
	return most
}

// multiplyRows multiplies tokens t to t+m by rows of w.
func (k *Integer) multiplyRows(c []float32, ldc, rows int, w []byte, a *Activations, t, m int, sc *IntegerScratch) {
	size, run, step := k.rowBytes(a.k), k.runBytes(), a.pitch*recordBytes
	at := a.at
	if k.ordered {
		at = a.orderedAt
	}
	whole := size / run
	if whole > 0 {
		k.matVec[m](c, ldc, rows, w, size, at(t, 0), step, whole)
	}
	if whole == a.records {
		return
	}
	const batch = len(sc.last) / maxRunBytes
	for n := 0; n < rows; n += batch {
		here := min(batch, rows-n)
		clear(sc.last[:])
		for r := range here {
			row := w[(n+r)*size : (n+r+1)*size]
			copy(sc.last[r*run:], row[whole*run:])
		}
		k.matVec[m](sc.edge[:], batch, here, sc.last[:], run, at(t, whole), step, 1)
		for i := range m {
			put(c[i*ldc+n:i*ldc+n+here], sc.edge[i*batch:], whole > 0)
		}
	}
}
