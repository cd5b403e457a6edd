package jinja

import (
	"fmt"
	"html"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// stripTags removes HTML's tags and comments, joins white space, and resolves
// entities.
func stripTags(m *machine, v Value) Value {
	s := m.str(v)
	m.alloc(int64(len(s)))
	var b strings.Builder
	rest := s
	for {
		i := strings.IndexByte(rest, '<')
		if i < 0 {
			break
		}
		from, end := 1, ">"
		if strings.HasPrefix(rest[i:], "<!--") {
			from, end = 4, "-->"
		}
		j := strings.Index(rest[i+from:], end)
		if j < 0 {
			break
		}
		b.WriteString(rest[:i])
		rest = rest[i+from+j+len(end):]
	}
	b.WriteString(rest)
	return html.UnescapeString(strings.Join(strings.FieldsFunc(b.String(), isSpace), " "))
}

// urlEncode quotes a text for a URL, or pairs for its query.
func urlEncode(m *machine, v Value) Value {
	if _, ok := isText(v); ok {
		return m.urlQuote(v, "/")
	}
	d, ok := v.(*Dict)
	if ok {
		v = &view{d, "items"}
	}
	next := m.iter(v)
	if next == nil {
		return m.urlQuote(v, "/")
	}
	var parts []string
	for {
		pair, ok := next()
		if !ok {
			return m.joined(parts, "&")
		}
		kv := m.items(pair)
		if len(kv) != 2 {
			m.fail("urlencode needs pairs")
		}
		s := strings.ReplaceAll(m.urlQuote(kv[0], ""), "%20", "+") + "=" + strings.ReplaceAll(m.urlQuote(kv[1], ""), "%20", "+")
		m.alloc(int64(len(s)) + 16)
		parts = append(parts, s)
	}
}

func (m *machine) urlQuote(v Value, keep string) string {
	s := m.str(v)
	m.allocs(int64(len(s)), 3)
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'z' || strings.IndexByte("_.-~"+keep, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func xmlAttrFilter(m *machine, v Value, a *args) Value {
	b := a.bind(m, "xmlattr", 0, "autospace")
	d, ok := v.(*Dict)
	if !ok {
		m.use(v)
		m.fail("xmlattr: %s is not a dict", typeName(v))
	}
	var parts []string
	for i, k := range d.keys {
		switch d.values[i].(type) {
		case nil, *undefined:
			continue
		}
		key, ok := isText(k)
		if !ok || strings.ContainsAny(key, " \t\n\r\f\v/>=") {
			m.fail("xmlattr: %s cannot be an attribute", quote(m.brief(k)))
		}
		s := string(m.escape(k)) + `="` + string(m.escape(d.values[i])) + `"`
		m.alloc(int64(len(s)) + 16)
		parts = append(parts, s)
	}
	s := m.joined(parts, " ")
	if s != "" && b.truth(0, true) {
		s = " " + s
	}
	return s
}

func fileSizeFilter(m *machine, v Value, a *args) Value {
	b := a.bind(m, "filesizeformat", 0, "binary")
	n, ok := m.parseFloat(v)
	if !ok {
		m.fail("filesizeformat: %s is not a number", typeName(v))
	}
	base, unit := 1000.0, "kMGTPEZY"
	suffix := "B"
	if b.truth(0, false) {
		base, unit, suffix = 1024, "KMGTPEZY", "iB"
	}
	switch {
	case n == 1:
		return "1 Byte"
	case n < base:
		return m.truncated(n).String() + " Bytes"
	}
	size := base
	for i := range unit {
		if size *= base; n < size || i == len(unit)-1 {
			return strconv.FormatFloat(base*n/size, 'f', 1, 64) + " " + unit[i:i+1] + suffix
		}
	}
	return ""
}

func (m *machine) abs(v Value) Value {
	m.use(v)
	if f, ok := v.(float64); ok {
		return math.Abs(f)
	}
	i, ok := isInt(v)
	if !ok {
		m.fail("abs: %s is not a number", typeName(v))
	}
	return norm(new(big.Int).Abs(i))
}

func intFilter(m *machine, v Value, a *args) Value {
	b := a.bind(m, "int", 0, "default", "base")
	m.use(v)
	if s, ok := isText(v); ok {
		if i, ok := m.parseInt(s, b.int(1, 10)); ok {
			return i
		}
	}
	if i, ok := isInt(v); ok {
		return norm(i)
	}
	f, ok := m.parseFloat(v)
	if x, isFloat := v.(float64); isFloat && math.IsInf(x, 0) {
		m.fail("int: an infinite number")
	}
	if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
		return b.or(0, int64(0))
	}
	return norm(m.truncated(f))
}

// parseInt reads an integer as Python's int(text, base).
func (m *machine) parseInt(s string, base int64) (Value, bool) {
	if base != 0 && (base < 2 || base > 36) {
		return nil, false
	}
	s = strings.TrimFunc(s, isSpace)
	m.scan(len(s))
	sign := ""
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign, s = strings.TrimPrefix(s[:1], "+"), s[1:]
	}
	if len(s) > 1 && s[0] == '0' {
		if b, _ := prefixBase(s[1]); b != 0 && (base == 0 || int64(b) == base) {
			base, s = int64(b), strings.TrimPrefix(s[2:], "_")
		} else if base == 0 && strings.Trim(s, "0_") != "" {
			return nil, false
		}
	}
	if base == 0 {
		base = 10
	}
	if s == "" || s[0] == '_' || s[len(s)-1] == '_' || strings.Contains(s, "__") || s[0] == '-' || s[0] == '+' {
		return nil, false
	}
	s = asciiDigits(strings.ReplaceAll(s, "_", ""))
	if len(s) > maxDigits {
		return nil, false
	}
	i, ok := new(big.Int).SetString(sign+s, int(base))
	if !ok {
		return nil, false
	}
	return norm(i), true
}

// asciiDigits spells the decimal digits of all scripts in ASCII.
func asciiDigits(s string) string {
	if isASCII(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r >= 0x80 && strPredicates["isdecimal"](string(r)) {
			zero := r // digits come in runs of ten
			for strPredicates["isdecimal"](string(zero-1)) && r-zero < 9 {
				zero--
			}
			return '0' + (r - zero)
		}
		return r
	}, s)
}

// parseFloat is Python's float(v).
func (m *machine) parseFloat(v Value) (float64, bool) {
	m.use(v)
	if isNumber(v) {
		return m.toFloat(v), true
	}
	s, ok := isText(v)
	if !ok {
		return 0, false
	}
	s = asciiDigits(strings.TrimFunc(s, isSpace))
	m.scan(len(s))
	if s == "" || s[0] == '_' || s[len(s)-1] == '_' || strings.ContainsAny(s, "xXpP") {
		return 0, false
	}
	for i := 1; i < len(s)-1; i++ {
		if s[i] == '_' && !(isDigit(s[i-1]) && isDigit(s[i+1])) {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

func floatFilter(m *machine, v Value, a *args) Value {
	b := a.bind(m, "float", 0, "default")
	f, ok := m.parseFloat(v)
	if !ok {
		return b.or(0, 0.0)
	}
	return f
}

func roundFilter(m *machine, v Value, a *args) Value {
	b := a.bind(m, "round", 0, "precision", "method")
	m.use(v)
	if !isNumber(v) {
		m.fail("round: %s is not a number", typeName(v))
	}
	precision := b.or(0, int64(0))
	switch how := b.text(1, "common"); how {
	case "common":
		return m.round(v, precision)
	case "ceil", "floor":
		factor := m.binary("**", int64(10), precision)
		x := m.toFloat(m.binary("*", v, factor))
		if how == "ceil" {
			x = math.Ceil(x)
		} else {
			x = math.Floor(x)
		}
		return m.binary("/", norm(m.truncated(x)), factor)
	default:
		m.fail("round: unknown method %s", quote(how))
	}
	return nil
}

// round is Python's round(v, digits), ties to even.
func (m *machine) round(v, digits Value) Value {
	if digits == nil {
		digits = int64(0)
		if f, ok := v.(float64); ok {
			return norm(m.truncated(math.RoundToEven(f)))
		}
	}
	n := m.clamped("round", digits)
	i, isInteger := isInt(v)
	if isInteger {
		if n >= 0 {
			return norm(i)
		}
		unit := m.power(big.NewInt(10), big.NewInt(-n))
		u, _ := isInt(unit)
		return norm(roundTo(i, u))
	}
	f := v.(float64)
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0) || n > 323:
		return f
	case n < -308:
		return math.Copysign(0, f)
	case n >= 0:
		r, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(n), 64), 64)
		return r
	}
	// A whole number of tens: the nearest multiple of the exact value, and at
	// a tie the even one.
	exact := new(big.Rat).SetFloat64(f)
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(-n), nil)
	num := new(big.Int).Set(exact.Num())
	r := roundTo(num, new(big.Int).Mul(unit, exact.Denom()))
	g, _ := new(big.Rat).SetFrac(r, exact.Denom()).Float64()
	return math.Copysign(g, f)
}

// roundTo is the multiple of unit nearest to i, at a tie the even one.
func roundTo(i, unit *big.Int) *big.Int {
	q, r := new(big.Int).DivMod(i, unit, new(big.Int))
	twice := new(big.Int).Lsh(r, 1)
	if c := twice.Cmp(unit); c > 0 || c == 0 && q.Bit(0) == 1 {
		q.Add(q, big.NewInt(1))
	}
	return q.Mul(q, unit)
}
