package jinja

import (
	"fmt"
	"strings"
	"time"
)

// strftimeNow is the moment of the rendering by the C library's strftime in
// the C locale. Names of time zones are empty: Python's datetime.now has none.
func strftimeNow(m *machine, a *args) Value {
	format := a.bind(m, "strftime_now", 1, "format").text(0, "")
	m.allocs(int64(len(format)), 16)
	var b strings.Builder
	writeTime(&b, m.opts.Now, format)
	return b.String()
}

func writeTime(b *strings.Builder, t time.Time, format string) {
	for format != "" {
		i := strings.IndexByte(format, '%')
		if i < 0 || i+1 == len(format) {
			b.WriteString(format)
			return
		}
		b.WriteString(format[:i])
		whole := format[i:]
		rest := whole[1:]
		flag := byte(0)
		if strings.IndexByte("_-0^#", rest[0]) >= 0 {
			flag, rest = rest[0], rest[1:]
		}
		if rest != "" && (rest[0] == 'E' || rest[0] == 'O') {
			rest = rest[1:]
		}
		if rest == "" {
			b.WriteString(whole)
			return
		}
		text, ok := directive(t, rest[0], flag)
		if !ok { // the C library leaves it as it is
			text = whole[:len(whole)-len(rest)+1]
		}
		b.WriteString(text)
		format = rest[1:]
	}
}

// directive is one directive's text.
func directive(t time.Time, c, flag byte) (string, bool) {
	if s, ok := named(t, c); ok {
		switch {
		case flag == '^' || flag == '#' && c != 'p' && c != 'Z':
			s = strings.ToUpper(s)
		case flag == '#':
			s = strings.ToLower(s)
		}
		return s, true
	}
	n, width, fill, ok := numbered(t, c)
	if !ok {
		return "", false
	}
	switch flag {
	case '-':
		width = 0
	case '_':
		fill = ' '
	case '0':
		fill = '0'
	}
	if fill == ' ' {
		return fmt.Sprintf("%*d", width, n), true
	}
	return fmt.Sprintf("%0*d", width, n), true
}

// named are the directives that give words and times.
func named(t time.Time, c byte) (string, bool) {
	layout := map[byte]string{
		'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'p': "PM", 'P': "pm",
		'D': "01/02/06", 'x': "01/02/06", 'F': "2006-01-02", 'T': "15:04:05", 'X': "15:04:05", 'R': "15:04",
		'r': "03:04:05 PM", 'c': "Mon Jan _2 15:04:05 2006",
	}[c]
	switch c {
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case '%':
		return "%", true
	case 'z', 'Z':
		return "", true
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	}
	return t.Format(layout), layout != ""
}

// numbered are the directives that give numbers, with their width and fill.
func numbered(t time.Time, c byte) (n, width int, fill byte, ok bool) {
	isoYear, isoWeek := t.ISOWeek()
	hour12 := (t.Hour()+11)%12 + 1
	monday := (int(t.Weekday()) + 6) % 7
	switch c {
	case 'Y':
		return t.Year(), 0, '0', true
	case 'C':
		return t.Year() / 100, 2, '0', true
	case 'y':
		return t.Year() % 100, 2, '0', true
	case 'G':
		return isoYear, 0, '0', true
	case 'g':
		return isoYear % 100, 2, '0', true
	case 'V':
		return isoWeek, 2, '0', true
	case 'U':
		return (t.YearDay() + 6 - int(t.Weekday())) / 7, 2, '0', true
	case 'W':
		return (t.YearDay() + 6 - monday) / 7, 2, '0', true
	case 'm':
		return int(t.Month()), 2, '0', true
	case 'd':
		return t.Day(), 2, '0', true
	case 'e':
		return t.Day(), 2, ' ', true
	case 'H':
		return t.Hour(), 2, '0', true
	case 'k':
		return t.Hour(), 2, ' ', true
	case 'I':
		return hour12, 2, '0', true
	case 'l':
		return hour12, 2, ' ', true
	case 'M':
		return t.Minute(), 2, '0', true
	case 'S':
		return t.Second(), 2, '0', true
	case 'j':
		return t.YearDay(), 3, '0', true
	case 'u':
		return monday + 1, 1, '0', true
	case 'w':
		return int(t.Weekday()), 1, '0', true
	case 's':
		return int(t.Unix()), 0, '0', true
	}
	return 0, 0, 0, false
}
