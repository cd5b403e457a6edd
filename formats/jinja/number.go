package jinja

import (
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
)

const (
	// maxDigits is the longest integer that Python (from 3.11) reads or prints.
	maxDigits = 4300
	// maxBits bounds integers, which Python does not.
	maxBits = 1 << 16
)

// norm makes the smallest kind of an integer.
func norm(i *big.Int) Value {
	if i.IsInt64() {
		return i.Int64()
	}
	return i
}

// isNumber reports whether v is an int, bool or float.
func isNumber(v Value) bool {
	switch v.(type) {
	case bool, int64, *big.Int, float64:
		return true
	}
	return false
}

// isInt returns an integer as a big one; bool is an integer.
func isInt(v Value) (*big.Int, bool) {
	switch v := v.(type) {
	case bool:
		return big.NewInt(int64(btoi(v))), true
	case int64:
		return big.NewInt(v), true
	case *big.Int:
		return v, true
	}
	return nil, false
}

// small returns an integer of 64 bits.
func small(v Value) (int64, bool) {
	switch v := v.(type) {
	case bool:
		return int64(btoi(v)), true
	case int64:
		return v, true
	}
	return 0, false
}

// clamped is a position or count: an integer cut to 64 bits.
func (m *machine) clamped(what string, v Value) int64 {
	if i, ok := small(v); ok {
		return i
	}
	if b, ok := v.(*big.Int); ok {
		if b.Sign() < 0 {
			return math.MinInt64
		}
		return math.MaxInt64
	}
	m.use(v)
	m.fail("%s: %s is not an integer", what, typeName(v))
	return 0
}

// toFloat is float(v) of a number.
func (m *machine) toFloat(v Value) float64 {
	switch v := v.(type) {
	case float64:
		return v
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		if math.IsInf(f, 0) {
			m.fail("an integer too large for a float")
		}
		return f
	}
	i, _ := small(v)
	return float64(i)
}

// compareNumbers compares exactly, an int and a float as well.
func compareNumbers(a, b Value) (int, bool) {
	x, xi := small(a)
	y, yi := small(b)
	if xi && yi {
		switch {
		case x < y:
			return -1, true
		case x > y:
			return 1, true
		}
		return 0, true
	}
	f, g := bigFloat(a), bigFloat(b)
	if f == nil || g == nil {
		return 0, false
	}
	return f.Cmp(g), true
}

// bigFloat is a number exactly, nil for NaN.
func bigFloat(v Value) *big.Float {
	if f, ok := v.(float64); ok {
		if math.IsNaN(f) {
			return nil
		}
		return big.NewFloat(f)
	}
	i, _ := isInt(v)
	return new(big.Float).SetPrec(uint(max(64, i.BitLen()))).SetInt(i)
}

// arith is a + b and the like of two numbers.
func (m *machine) arith(op string, a, b Value) Value {
	_, af := a.(float64)
	_, bf := b.(float64)
	if af || bf {
		return m.floatOp(op, m.toFloat(a), m.toFloat(b))
	}
	x, xs := small(a)
	y, ys := small(b)
	if xs && ys {
		if v, ok := smallOp(op, x, y); ok {
			return v
		}
	}
	i, _ := isInt(a)
	j, _ := isInt(b)
	return m.bigOp(op, i, j)
}

func smallOp(op string, x, y int64) (Value, bool) {
	switch op {
	case "+":
		s := x + y
		return s, (s > x) == (y > 0)
	case "-":
		s := x - y
		return s, (s < x) == (y > 0)
	case "*":
		hi, lo := bits.Mul64(abs64(x), abs64(y))
		return x * y, hi == 0 && lo <= math.MaxInt64
	case "//", "%":
		if y == 0 || x == math.MinInt64 {
			return nil, false
		}
		q, r := x/y, x%y
		if r != 0 && (r < 0) != (y < 0) {
			q, r = q-1, r+y
		}
		if op == "//" {
			return q, true
		}
		return r, true
	case "/":
		const exact = 1 << 53
		if y != 0 && -exact < x && x < exact && -exact < y && y < exact {
			return float64(x) / float64(y), true
		}
	}
	return nil, false
}

func abs64(x int64) uint64 {
	if x < 0 {
		return -uint64(x)
	}
	return uint64(x)
}

// bigOp is an operation on integers of any size.
func (m *machine) bigOp(op string, x, y *big.Int) Value {
	words := int64(x.BitLen()+y.BitLen())/64 + 1
	m.alloc(8 * words)
	m.step(words * words / 64)
	z := new(big.Int)
	switch op {
	case "+":
		z.Add(x, y)
	case "-":
		z.Sub(x, y)
	case "*":
		z.Mul(x, y)
	case "**":
		return m.power(x, y)
	default:
		if y.Sign() == 0 {
			m.fail("division by zero")
		}
		if op == "/" {
			f, _ := new(big.Rat).SetFrac(x, y).Float64()
			if math.IsInf(f, 0) {
				m.fail("a quotient too large for a float")
			}
			return f
		}
		r := new(big.Int)
		z.QuoRem(x, y, r)
		if r.Sign() != 0 && (r.Sign() < 0) != (y.Sign() < 0) {
			z.Sub(z, big.NewInt(1))
			r.Add(r, y)
		}
		if op == "%" {
			z = r
		}
	}
	return m.bounded(z)
}

func (m *machine) bounded(z *big.Int) Value {
	if z.BitLen() > maxBits {
		failBudget(m.name, m.line, "memory", "an integer of more than %d bits", maxBits)
	}
	return norm(z)
}

func (m *machine) power(x, y *big.Int) Value {
	if y.Sign() < 0 {
		return m.floatOp("**", m.toFloat(norm(x)), m.toFloat(norm(y)))
	}
	if x.BitLen() > 1 && (!y.IsInt64() || y.Int64() > maxBits || int64(x.BitLen()-1)*y.Int64() > maxBits) {
		m.bounded(new(big.Int).Lsh(big.NewInt(1), maxBits+1))
	}
	if x.BitLen() <= 1 { // 0, 1, -1: only whether y is odd counts
		switch {
		case y.Sign() == 0:
			return int64(1)
		case y.Bit(0) == 0:
			return norm(new(big.Int).Abs(x))
		}
		return norm(x)
	}
	m.step(1 << 12)
	return m.bounded(new(big.Int).Exp(x, y, nil))
}

func (m *machine) floatOp(op string, x, y float64) Value {
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "**":
		switch {
		case x == 0 && y < 0:
			m.fail("zero cannot be raised to a negative power")
		case x < 0 && y != math.Trunc(y):
			m.unsupported("a complex number, %s**%s,", floatText(x), floatText(y))
		}
		f := math.Pow(x, y)
		if math.IsInf(f, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
			m.fail("a power too large for a float")
		}
		return f
	}
	if y == 0 {
		m.fail("division by zero")
	}
	if op == "/" {
		return x / y
	}
	r := math.Mod(x, y)
	q := (x - r) / y
	if r != 0 {
		if (y < 0) != (r < 0) {
			r += y
			q--
		}
	} else {
		r = math.Copysign(0, y)
	}
	if op == "%" {
		return r
	}
	if q == 0 {
		return math.Copysign(0, x/y)
	}
	f := math.Floor(q)
	if q-f > 0.5 {
		f++
	}
	return f
}

// intText is str(i).
func (m *machine) intText(i *big.Int) string {
	// A number of n decimal digits has at least 3.32 (n-1) bits.
	s := i.String()
	if n := len(strings.TrimPrefix(s, "-")); n > maxDigits {
		m.fail("an integer of %d digits cannot be printed: the limit is %d", n, maxDigits)
	}
	return s
}

// floatText is repr(f).
func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64) // two digits of exponent, like Python
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
