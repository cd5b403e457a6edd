package grammar

import (
	"math/big"
	"slices"
	"strings"
)

// Digits that numbers have at most, in front of the point and behind it; bounds with more
// allow more.
const (
	wholeDigits    = 16
	fractionDigits = 16
)

// A decimal is a number that is not negative, in digits: 12.05 is 12 and 05.
type decimal struct {
	whole, fraction string
	strict          bool // the bound itself is outside
}

// newDecimal returns a bound's magnitude.
func newDecimal(b *bound) decimal {
	v := new(big.Rat).Abs(b.v)
	n, _ := v.FloatPrec()
	whole, fraction, _ := strings.Cut(v.FloatString(n), ".")
	return decimal{whole, fraction, b.strict}
}

var zero = &bound{v: new(big.Rat)}

// numberDFA returns the numbers between bounds, which may be nil, without exponents.
func numberDFA(low, high *bound, whole bool) (*dfa, error) {
	out := alt{}
	if high == nil || high.v.Sign() >= 0 {
		l := low
		if l == nil || l.v.Sign() < 0 {
			l = zero
		}
		d, err := magnitudes(l, high, whole)
		if err != nil {
			return nil, err
		}
		out = append(out, regular{d})
	}
	if low == nil || low.v.Sign() < 0 {
		l, h := high, low // of the magnitude
		if l == nil || l.v.Sign() >= 0 {
			l = &bound{zero.v, true} // no -0
		}
		d, err := magnitudes(l, h, whole)
		if err != nil {
			return nil, err
		}
		out = append(out, seq{literal("-"), regular{d}})
	}
	return regularOf(out)
}

// magnitudes returns the numbers without a sign between two bounds' magnitudes.
func magnitudes(low, high *bound, whole bool) (*dfa, error) {
	digit := class(digits)
	l := newDecimal(low)
	most, behind := max(wholeDigits, len(l.whole)), max(fractionDigits, len(l.fraction))
	if high != nil {
		h := newDecimal(high)
		most, behind = max(most, len(h.whole)), max(behind, len(h.fraction))
	}
	fraction := expr(seq{})
	if !whole {
		fraction = repeat{seq{literal("."), repeat{digit, 1, behind}}, 0, 1}
	}
	d, err := regularOf(seq{alt{literal("0"), seq{class(newRuneSet(runeRange{'1', '9'})), repeat{digit, 0, most - 1}}}, fraction})
	if err != nil {
		return nil, err
	}
	parts := []expr{atLeast(l)}
	if high != nil {
		parts = append(parts, atMost(newDecimal(high)))
	}
	for _, x := range parts {
		e, err := regularOf(x)
		if err != nil {
			return nil, err
		}
		if d, err = both(d, e); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func digitRange(lo, hi byte) expr { return class(newRuneSet(runeRange{rune(lo), rune(hi)})) }

var (
	anyDigits   = repeat{class(digits), 0, -1}
	anyFraction = repeat{seq{literal("."), anyDigits}, 0, 1}
)

// atLeast returns the texts of numbers that are a decimal or more; what is no number may
// be among them.
func atLeast(d decimal) expr {
	n := len(d.whole)
	more := alt{seq{digitRange('1', '9'), repeat{class(digits), n, -1}}} // more digits
	for i := range n {
		if d.whole[i] < '9' {
			more = append(more, seq{literal(d.whole[:i]), digitRange(d.whole[i]+1, '9'), repeat{class(digits), n - i - 1, n - i - 1}})
		}
	}
	equal := alt{seq{literal("."), tailAtLeast(d.fraction, d.strict)}}
	if d.fraction == "" && !d.strict {
		equal = append(equal, seq{})
	}
	return alt{seq{more, anyFraction}, seq{literal(d.whole), equal}}
}

// tailAtLeast returns digits behind a point that are some or more.
func tailAtLeast(f string, strict bool) expr {
	out := alt{}
	for i := range len(f) {
		if f[i] < '9' {
			out = append(out, seq{literal(f[:i]), digitRange(f[i]+1, '9'), anyDigits})
		}
	}
	if strict {
		return append(out, seq{literal(f), repeat{literal("0"), 0, -1}, digitRange('1', '9'), anyDigits})
	}
	return append(out, seq{literal(f), anyDigits})
}

// atMost returns the texts of numbers that are a decimal or less.
func atMost(d decimal) expr {
	n := len(d.whole)
	less := alt{}
	if n > 1 {
		less = append(less, repeat{class(digits), 1, n - 1})
	}
	for i := range n {
		if d.whole[i] > '0' {
			less = append(less, seq{literal(d.whole[:i]), digitRange('0', d.whole[i]-1), repeat{class(digits), n - i - 1, n - i - 1}})
		}
	}
	equal := alt{seq{literal("."), tailAtMost(d.fraction, d.strict)}}
	if d.fraction != "" || !d.strict {
		equal = append(equal, seq{})
	}
	return alt{seq{less, anyFraction}, seq{literal(d.whole), equal}}
}

func tailAtMost(f string, strict bool) expr {
	out := alt{}
	for i := range len(f) {
		if i > 0 {
			out = append(out, literal(f[:i])) // fewer digits
		}
		if f[i] > '0' {
			out = append(out, seq{literal(f[:i]), digitRange('0', f[i]-1), anyDigits})
		}
	}
	if strict {
		return out
	}
	return append(out, seq{literal(f), repeat{literal("0"), 0, -1}})
}

// maxStep bounds the digits of multipleOf: its automaton has a state for each remainder.
const maxStep = 10000

// multiplesDFA returns the numbers that a step divides.
func multiplesDFA(step *big.Rat) (*dfa, error) {
	n, _ := step.FloatPrec() // digits behind the point that matter
	scaled := new(big.Rat).Mul(step, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)))
	if n > 20 || !scaled.IsInt() || !scaled.Num().IsInt64() || scaled.Num().Int64()*int64(n+2) > maxStep {
		return nil, refused("", "multipleOf %s: a step of more than %d remainders", step.RatString(), maxStep)
	}
	p := int(scaled.Num().Int64())
	power := make([]int, n+1) // of 10, modulo p
	power[0] = 1 % p
	for i := 1; i <= n; i++ {
		power[i] = power[i-1] * 10 % p
	}
	// States: 0 begins, 1 behind a sign; then a remainder for so many digits behind the point:
	// none and no point yet, 0 to n, and n with zeros alone behind them.
	const base = 2
	id := func(level, r int) int32 { return int32(base + level*p + r) }
	d := &dfa{states: make([]state, base+(n+3)*p)}
	move := func(to func(digit int) int32) (out []edge) {
		for c := range 10 {
			if t := to(c); t >= 0 {
				out = append(out, edge{byte('0' + c), byte('0' + c), t})
			}
		}
		return out
	}
	first := func(c int) int32 { return id(0, c%p) }
	d.states[0].edges = append([]edge{{'-', '-', 1}}, move(first)...)
	d.states[1].edges = move(first)
	for r := range p {
		s := &d.states[id(0, r)]
		s.accept = r*power[n]%p == 0
		s.edges = append([]edge{{'.', '.', id(1, r)}}, move(func(c int) int32 { return id(0, (r*10+c)%p) })...)
		for j := 0; j <= n; j++ {
			s := &d.states[id(1+j, r)]
			s.accept = j > 0 && r*power[n-j]%p == 0
			if j < n {
				s.edges = move(func(c int) int32 { return id(2+j, (r*10+c)%p) })
				continue
			}
			zeros := id(n+2, r)
			s.edges = []edge{{'0', '0', zeros}}
		}
		z := &d.states[id(n+2, r)]
		z.accept = r == 0
		z.edges = []edge{{'0', '0', id(n+2, r)}}
	}
	for i := range d.states {
		slices.SortFunc(d.states[i].edges, func(a, b edge) int { return int(a.lo) - int(b.lo) })
	}
	return d.trim(), nil
}
