package scheme

import (
	"math"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/tensor"
)

// Some parts have one row for every run of consecutive rows of the tensor:
// fp8's scales, affine's group indices. The last run may be short. Cutting
// and joining may need shorter runs; their rows then repeat, which costs a
// few words each and reads nothing.
type runs struct {
	data tensor.Blob
	size int64 // bytes of a row of the part
	run  int64 // rows of the tensor to a row of the part
	n    int64 // rows of the tensor
}

// maxRun bounds the parameters that count rows or weights: far beyond any
// tensor, far below an overflow.
const maxRun = 1 << 40

// ceilDiv returns a/b rounded up, for a >= 0 and b > 0.
func ceilDiv(a, b int64) int64 {
	if a == 0 {
		return 0
	}
	return (a-1)/b + 1
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// slice returns the runs of rows [row, row+n).
func (r runs) slice(row, n int64) runs {
	if n == 0 {
		return runs{size: r.size, run: 1}
	}
	run := gcd(r.run, row)
	if row/r.run == (row+n-1)/r.run {
		run = n
	}
	return r.every(run, row, n)
}

// every repeats the rows of the part so that there is one for every run rows
// from row on; run divides both r.run and row, or one run covers all.
func (r runs) every(run, row, n int64) runs {
	index := make([]int64, ceilDiv(n, run))
	for i := range index {
		index[i] = (row + int64(i)*run) / r.run
	}
	return runs{data: pickRows(r.data, r.size, index), size: r.size, run: run, n: n}
}

// pick returns the runs of rows in the order of index.
func (r runs) pick(index []int64) runs {
	run := int64(1)
	if r.run >= r.n {
		run = int64(max(len(index), 1)) // all the same
	}
	rows := make([]int64, ceilDiv(int64(len(index)), run))
	for i := range rows {
		rows[i] = index[int64(i)*run] / r.run
	}
	return runs{data: pickRows(r.data, r.size, rows), size: r.size, run: run, n: int64(len(index))}
}

// joinRuns stacks the rows of several. The common run is the longest that
// starts anew at every seam.
func joinRuns(rs []runs) runs {
	var common, row int64
	for _, r := range rs {
		common = gcd(common, row)
		if r.run < r.n {
			common = gcd(common, r.run)
		}
		row += r.n
	}
	if common == 0 { // a single run covers all
		common = max(row, 1)
	}
	out := runs{size: rs[0].size, run: common}
	blobs := make([]tensor.Blob, len(rs))
	for i, r := range rs {
		if r.n > 0 {
			blobs[i] = r.every(common, 0, r.n).data
		}
		out.n += r.n
	}
	out.data = tensor.Concat(blobs...)
	return out
}

// numbers are the elements of a part with a small choice of types.
type numbers struct {
	data  []byte
	dtype tensor.DType
}

// at converts element i to float32, exactly.
func (v numbers) at(i int64) float32 {
	switch v.dtype {
	case tensor.F32:
		return math.Float32frombits(le.Uint32(v.data[4*i:]))
	case tensor.F16:
		return half(v.data[2*i:])
	case tensor.BF16:
		return tensor.BF16ToF32(le.Uint16(v.data[2*i:]))
	case tensor.I16:
		return float32(int16(le.Uint16(v.data[2*i:])))
	}
	return float32(v.data[i]) // U8
}

// param returns a parameter and checks its range.
func param(s *Scheme, g geometry, key string, low, high int64) (int64, error) {
	v, ok := g.params[key]
	if !ok {
		return 0, formats.Errorf("", "", "%s lacks its parameter %q", s.Name, key)
	}
	if v < low || v > high {
		return 0, formats.Errorf("", "", "%s: parameter %q is %d, not in [%d, %d]", s.Name, key, v, low, high)
	}
	return v, nil
}

// paramType returns the element type that a parameter names by the id of its
// plain scheme, one of allowed; 0 means absent where optional.
func paramType(s *Scheme, g geometry, key string, optional bool, allowed ...tensor.DType) (tensor.DType, error) {
	v, ok := g.params[key]
	if optional && (!ok || v == 0) {
		return tensor.Invalid, nil
	}
	if !ok {
		return 0, formats.Errorf("", "", "%s lacks its parameter %q", s.Name, key)
	}
	for _, d := range allowed {
		if int64(ByDType(d).ID) == v {
			return d, nil
		}
	}
	return 0, formats.Errorf("", "", "%s: parameter %q is %d, not the id of one of %v", s.Name, key, v, allowed)
}

// knownParams refuses parameters with other names.
func knownParams(s *Scheme, g geometry, keys ...string) error {
next:
	for key := range g.params {
		for _, k := range keys {
			if k == key {
				continue next
			}
		}
		return formats.Errorf("", "", "%s has no parameter %q", s.Name, key)
	}
	return nil
}

// with returns a copy of params with one value changed.
func with(params map[string]int64, key string, v int64) map[string]int64 {
	out := make(map[string]int64, len(params)+1)
	for k, x := range params {
		out[k] = x
	}
	out[key] = v
	return out
}

// spec makes a PartSpec and its size.
func spec(name string, d tensor.DType, shape ...int64) (PartSpec, error) {
	size, err := tensor.Size(d, shape)
	if err != nil {
		return PartSpec{}, formats.Errorf("", "", "part %q: %v", name, err)
	}
	return PartSpec{Name: name, DType: d, Shape: shape, Bytes: size}, nil
}

// specs makes several; each row is name, type, shape.
type partRow struct {
	name  string
	dtype tensor.DType
	shape []int64
}

func specs(rows ...partRow) ([]PartSpec, error) {
	var out []PartSpec
	for _, r := range rows {
		p, err := spec(r.name, r.dtype, r.shape...)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// sameParams reports whether two tensors agree in all parameters but except.
func sameParams(a, b *formats.Tensor, except string) bool {
	for _, m := range [][2]map[string]int64{{a.Params, b.Params}, {b.Params, a.Params}} {
		for k, v := range m[0] {
			if k != except && m[1][k] != v {
				return false
			}
		}
	}
	return true
}
