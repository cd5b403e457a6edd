package tensor

import "io"

// Strided returns, of every line bytes of b, the n bytes from off on: columns of a matrix, or
// the same rows of each matrix of a stack. It costs as many words for many lines as for one,
// and reads nothing. It panics where b has no whole lines, or a line no such bytes.
func (b Blob) Strided(line, off, n int64) Blob {
	if line < 1 || b.size%line != 0 || off < 0 || n < 0 || off > line-n {
		panic("tensor: bytes of lines that a blob does not have")
	}
	lines := b.size / line
	switch {
	case n == line || lines*n == 0:
		return b.Slice(0, lines*n)
	case lines == 1:
		return b.Slice(off, n)
	}
	s := &strided{of: b, line: line, off: off, n: n}
	if b.LargestComputed() == 0 {
		return NewBlob(s, 0, lines*n)
	}
	return Computed(lines*n, func() ([]byte, error) { // whose source is then computed once
		all, err := b.Bytes()
		if err != nil {
			return nil, err
		}
		made := *s
		made.of = BytesBlob(all)
		p := make([]byte, lines*n)
		_, err = made.ReadAt(p, 0)
		return p, err
	})
}

// strided reads n bytes from off on of every line of a blob.
type strided struct {
	of           Blob
	line, off, n int64
}

// linesAtOnce bounds the bytes that are read to pick short pieces out of them.
const linesAtOnce = 1 << 20

// ReadAt implements io.ReaderAt.
func (s *strided) ReadAt(p []byte, at int64) (done int, err error) {
	var buf []byte
	for done < len(p) {
		row, in := at/s.n, at%s.n
		if row >= s.of.size/s.line {
			return done, io.EOF
		}
		from := row*s.line + s.off + in
		want := p[done:]
		if s.line >= linesAtOnce/2 || int64(len(want)) <= s.n-in { // a piece at a time
			want = want[:min(int64(len(want)), s.n-in)]
			if n, err := s.of.ReadAt(want, from); n < len(want) {
				return done + n, err
			}
			at, done = at+int64(len(want)), done+len(want)
			continue
		}
		count := min(linesAtOnce/s.line, (in+int64(len(want))+s.n-1)/s.n, s.of.size/s.line-row)
		size := (count-1)*s.line + s.n - in
		if buf == nil {
			buf = make([]byte, max(size, min(linesAtOnce, s.of.size)))
		}
		lines := buf[:size]
		if n, err := s.of.ReadAt(lines, from); n < len(lines) {
			return done, err
		}
		for len(lines) > 0 && done < len(p) {
			n := copy(p[done:], lines[:s.n-in])
			at, done = at+int64(n), done+n
			lines = lines[min(s.line-in, int64(len(lines))):]
			in = 0
		}
	}
	return done, nil
}
