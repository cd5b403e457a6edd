package formats_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats"
)

func TestPrintable(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain größe 雪 \\n 👩‍💻", "plain größe 雪 \\n 👩‍💻"},
		{"\x1b]0;x\x07", `\x1b]0;x\x07`},
		{"a\nb\tc\rd\x7f", `a\nb\tc\rd\x7f`},
		{"\u009b2J", `\u009b2J`},
		{"a\u202eb\u2066c\u200f", `a\u202eb\u2066c\u200f`},
		{"\u2028\ufeff\U000e0041", `\u2028\ufeff\U000e0041`},
		{"\xff\xc2", `\xff\xc2`},
		{"\ufffd", "\ufffd"},
	} {
		got := formats.Printable(c.in)
		if got != c.want {
			t.Errorf("%q is shown as %q, want %q", c.in, got, c.want)
		}
		if again := formats.Printable(got); again != got {
			t.Errorf("%q is shown as %q the second time", got, again)
		}
	}
	if got := formats.PrintableText("a\n\tb\x1b\r"); got != "a\n\tb\\x1b\\r" {
		t.Errorf("a text of lines is shown as %q", got)
	}
}

func TestBrief(t *testing.T) {
	if got := formats.Brief("short", 5); got != "short" {
		t.Error(got)
	}
	got := formats.Brief(strings.Repeat("ä", 1<<20), 90)
	if len(got) > 150 || !strings.Contains(got, " bytes … ") || strings.ContainsRune(got, '\ufffd') {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

// What an error says is short and obeyed by nobody, whoever chose the words.
func TestErrorsAreBounded(t *testing.T) {
	long := "\x1b[2J\n\u202e" + strings.Repeat("x", 1<<20)
	for _, err := range []error{
		formats.Errorf(long, long, "dtype %q", long), formats.Errorf("f", "", "dtype %s", long), formats.Unsupportedf(long, long, "%s", long),
		&formats.FormatError{File: long, Offset: -1, Reason: long, Err: errors.New(long)},
	} {
		if s := err.Error(); len(s) > 8192 || strings.ContainsFunc(s, formats.Controls) {
			t.Errorf("%d bytes: %.200q", len(s), s)
		}
	}
}
