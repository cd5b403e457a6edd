package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A spec says how a value is written: the format specification of Python's
// str.format, and what % formatting has of it.
type spec struct {
	fill      string
	align     byte // '<', '>', '^', '=', 0 for the type's own
	sign      byte // '+', ' ', 0
	alt       bool
	width     int64
	group     byte // ',', '_', 0
	precision int64
	kind      byte
}

// maxPrecision bounds the digits of a float.
const maxPrecision = 1000

// cut cuts a text to the precision.
func (f spec) cut(m *machine, s string) string {
	if f.precision >= 0 {
		return s[:m.skip(s, f.precision)]
	}
	return s
}

// pad fills a text up to the width.
func (f spec) pad(m *machine, s string) string {
	n := f.width - m.runes(s)
	if n <= 0 {
		return s
	}
	switch f.align {
	case '<':
		return m.pad(s, f.fill, 0, n)
	case '^':
		return m.pad(s, f.fill, n/2, n-n/2)
	}
	return m.pad(s, f.fill, n, 0)
}

// number joins sign, prefix and digits; '=' fills between them.
func (f spec) number(m *machine, negative bool, prefix, digits string) string {
	sign := ""
	if negative {
		sign = "-"
	} else if f.sign != 0 {
		sign = string(rune(f.sign))
	}
	head := sign + prefix
	if f.align == '=' {
		if n := f.width - m.runes(head+digits); n > 0 {
			if f.group != 0 && f.fill == "0" {
				digits = f.zeros(m, digits, n)
			} else {
				digits = m.pad(digits, f.fill, n, 0)
			}
		}
		return head + digits
	}
	return f.pad(m, head+digits)
}

// zeros pads grouped digits with grouped zeros.
func (f spec) zeros(m *machine, digits string, n int64) string {
	whole, rest := digits, ""
	if i := strings.IndexAny(digits, ".eE"); i >= 0 {
		whole, rest = digits[:i], digits[i:]
	}
	want := int64(len(whole)) + n
	plain := strings.ReplaceAll(whole, string(rune(f.group)), "")
	plain = m.repeatText("0", want) + plain
	grouped := f.grouped(plain)
	grouped = grouped[int64(len(grouped))-want:]
	if grouped[0] == f.group {
		grouped = "0" + grouped
	}
	return grouped + rest
}

// grouped puts separators between groups of digits.
func (f spec) grouped(digits string) string {
	if f.group == 0 {
		return digits
	}
	size := 3
	if f.kind == 'x' || f.kind == 'X' || f.kind == 'o' || f.kind == 'b' {
		size = 4
	}
	var b strings.Builder
	for i := range len(digits) {
		if i > 0 && (len(digits)-i)%size == 0 {
			b.WriteByte(f.group)
		}
		b.WriteByte(digits[i])
	}
	return b.String()
}

func (f spec) integer(m *machine, i *big.Int, kind byte) string {
	abs := new(big.Int).Abs(i)
	var digits, prefix string
	switch kind {
	case 'x', 'X', 'o', 'b':
		digits = abs.Text(map[byte]int{'x': 16, 'X': 16, 'o': 8, 'b': 2}[kind])
		if f.alt {
			prefix = "0" + string(rune(kind))
		}
		if kind == 'X' {
			digits = strings.ToUpper(digits)
		}
	default:
		digits = m.intText(abs)
	}
	if f.precision > int64(len(digits)) {
		digits = m.pad(digits, "0", f.precision-int64(len(digits)), 0)
	}
	f.kind = kind
	return f.number(m, i.Sign() < 0, prefix, f.grouped(digits))
}

// float writes a float as e, f, g, % or, for 0, as str does.
func (f spec) float(m *machine, v float64, kind byte) string {
	precision := f.precision
	if precision < 0 && kind != 0 {
		precision = 6
	}
	if precision > maxPrecision {
		m.unsupported("a float with more than %d digits", maxPrecision)
	}
	m.step(precision)
	negative := math.Signbit(v) && !math.IsNaN(v)
	a := math.Abs(v)
	if kind == '%' {
		a *= 100
	}
	var s string
	switch {
	case math.IsNaN(v):
		s = "nan"
	case math.IsInf(v, 0):
		s = "inf"
	case kind == 'e' || kind == 'E':
		s = strconv.FormatFloat(a, 'e', int(precision), 64)
		if f.alt && precision == 0 {
			s = s[:1] + "." + s[1:]
		}
	case kind == 'f' || kind == 'F' || kind == '%':
		s = strconv.FormatFloat(a, 'f', int(precision), 64)
		if f.alt && precision == 0 {
			s += "."
		}
	case kind == 'g' || kind == 'G' || kind == 'n' || precision >= 0:
		s = general(a, max(precision, 1), f.alt, kind == 0)
	default:
		s = floatText(a)
	}
	if kind == '%' && !math.IsNaN(v) && !math.IsInf(v, 0) || kind == '%' {
		s += "%"
	}
	if 'A' <= kind && kind <= 'Z' {
		s = strings.ToUpper(s)
	}
	if f.group != 0 && s[0] != 'i' && s[0] != 'n' {
		whole := len(s) - len(strings.TrimLeft(s, "0123456789"))
		s = f.grouped(s[:whole]) + s[whole:]
	}
	return f.number(m, negative, "", s)
}

// general is the format g: the shorter of e and f at a number of digits.
// Whole numbers keep ".0" where dotted is set.
func general(a float64, precision int64, alt, dotted bool) string {
	e := strconv.FormatFloat(a, 'e', int(precision-1), 64)
	at := strings.IndexByte(e, 'e')
	exponent, _ := strconv.Atoi(e[at+1:])
	most := int(precision)
	if dotted {
		most-- // str's rule: a point must fit
	}
	if exponent < -4 || exponent >= max(most, 1) && (!dotted || exponent >= most) {
		digits := e[:at]
		if !alt && strings.Contains(digits, ".") {
			digits = strings.TrimRight(strings.TrimRight(digits, "0"), ".")
		}
		return digits + e[at:]
	}
	s := strconv.FormatFloat(a, 'f', int(precision)-1-exponent, 64)
	if !alt && strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if dotted && !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// parseSpec reads a format specification.
func (m *machine) parseSpec(s string) spec {
	f := spec{fill: " ", precision: -1}
	if _, n := utf8.DecodeRuneInString(s); len(s) > n && strings.IndexByte("<>=^", s[n]) >= 0 {
		f.fill, f.align, s = s[:n], s[n], s[n+1:]
	} else if s != "" && strings.IndexByte("<>=^", s[0]) >= 0 {
		f.align, s = s[0], s[1:]
	}
	take := func(set string) byte {
		if s != "" && strings.IndexByte(set, s[0]) >= 0 {
			c := s[0]
			s = s[1:]
			return c
		}
		return 0
	}
	switch c := take("+- "); c {
	case '+', ' ':
		f.sign = c
	}
	f.alt = take("#") != 0
	if take("0") != 0 && f.align == 0 {
		f.fill, f.align = "0", '='
	}
	number := func() (n int64, ok bool) {
		for ; s != "" && isDigit(s[0]); s = s[1:] {
			n, ok = min(n*10+int64(s[0]-'0'), 1<<31), true
		}
		return n, ok
	}
	f.width, _ = number()
	f.group = take(",_")
	if take(".") != 0 {
		var ok bool
		if f.precision, ok = number(); !ok {
			m.fail("a format specification without digits after the point")
		}
	}
	f.kind = take("bcdeEfFgGnosxX%")
	if s != "" {
		m.fail("invalid format specification: %s is left over", quote(s))
	}
	return f
}

// truncated is int(f).
func (m *machine) truncated(f float64) *big.Int {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		m.fail("%s is no integer", floatText(f))
	}
	i, _ := big.NewFloat(math.Trunc(f)).Int(nil)
	return i
}

// format is Python's format(v, s).
func (m *machine) format(v Value, s string) string {
	if s == "" {
		return m.str(v)
	}
	f := m.parseSpec(s)
	wrong := func() string {
		m.fail("the format %s does not fit %s", quote(s), typeName(v))
		return ""
	}
	if text, ok := isText(v); ok {
		if f.kind != 0 && f.kind != 's' || f.sign != 0 || f.alt || f.group != 0 || f.align == '=' && f.fill != "0" {
			return wrong()
		}
		if f.align == 0 || f.align == '=' {
			f.align = '<'
		}
		return f.pad(m, f.cut(m, text))
	}
	x, isFloat := v.(float64)
	i, isInteger := isInt(v)
	if f.align == 0 && (isFloat || isInteger) {
		f.align = '>'
	}
	switch {
	case isInteger && strings.IndexByte("\x00bdnoxX", f.kind) >= 0:
		if f.precision >= 0 || f.group == ',' && f.kind != 0 && f.kind != 'd' {
			return wrong()
		}
		if _, isBool := v.(bool); isBool && f.kind == 0 {
			f.kind = 'd'
		}
		return f.integer(m, i, f.kind)
	case isInteger && f.kind == 'c':
		m.unsupported("the format c")
	case isInteger && strings.IndexByte("eEfFgG%", f.kind) >= 0:
		return f.float(m, m.toFloat(v), f.kind)
	case isFloat && strings.IndexByte("\x00eEfFgGn%", f.kind) >= 0:
		return f.float(m, x, f.kind)
	}
	m.use(v)
	return wrong()
}
