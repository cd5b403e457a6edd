package nstf

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nstf/nstf/formats/tensor"
)

const page = "../../docs/nstf.md"

// TestPage holds the examples of docs/nstf.md to what the writer makes, and
// its tables to the constants. With -update it rewrites the examples.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	data := minimal(t)
	want := string(text)
	want = replaceExample(t, want, "<!-- header of", "```json\n"+headOf(data)+"```\n")
	want = replaceExample(t, want, "<!-- bytes of", "```\n"+annotate(data)+"```\n")
	if want != string(text) {
		if !*update {
			t.Fatalf("the examples of %s are out of date: run with -update; wanted\n%s", page, annotate(data))
		}
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for d := tensor.F64; d.Bits() > 0; d++ {
		if entry := fmt.Sprintf("`%v` %d", d, d.Bits()); !strings.Contains(want, entry) {
			t.Errorf("%s lacks the dtype %s", page, entry)
		}
	}
	for _, row := range []string{
		fmt.Sprintf("| header | %d bytes |", MaxHeader), fmt.Sprintf("| nesting | %d levels |", MaxDepth),
		fmt.Sprintf("| keys of one object | %d |", MaxKeys), fmt.Sprintf("| tensors | %d |", MaxTensors),
		fmt.Sprintf("| attached files | %d |", MaxFiles), fmt.Sprintf("| name | %d bytes |", MaxName),
		fmt.Sprintf("| id | %d bytes |", MaxID), fmt.Sprintf("| dimensions | %d |", MaxDims),
		fmt.Sprintf("| parts of a tensor | %d |", MaxParts), fmt.Sprintf("| parameters of a tensor | %d |", MaxParams),
		fmt.Sprintf("| %d bytes and %d times its stored size |", MaxDecoded, MaxRatio),
		"`" + PlanFile + "`", "`" + LedgerFile + "`", fmt.Sprintf("`% x`", Magic),
	} {
		if !strings.Contains(want, row) {
			t.Errorf("%s lacks %q", page, row)
		}
	}
}

// replaceExample puts text between a marker line and the next end marker.
func replaceExample(t *testing.T, page, marker, text string) string {
	t.Helper()
	begin := strings.Index(page, marker)
	if begin < 0 {
		t.Fatalf("no %q", marker)
	}
	begin += strings.Index(page[begin:], "\n") + 1
	end := begin + strings.Index(page[begin:], "<!-- end -->")
	return page[:begin] + text + page[end:]
}

// annotate dumps a package of one tensor: the fields of the preamble a line
// each, then header and data in rows of 16 bytes.
func annotate(data []byte) string {
	var b strings.Builder
	row := func(off, n int, note string) {
		line := fmt.Sprintf("%08x  %-47s  %s", off, fmt.Sprintf("% x", data[off:off+n]), note)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	rows := func(from, to int) {
		for off := from; off < to; off += 16 {
			n := min(16, to-off)
			row(off, n, printable(data[off:off+n]))
		}
	}
	head := len(headOf(data))
	row(0, 8, "magic")
	row(8, 4, "version 1")
	row(12, 4, "reserved")
	row(16, 8, fmt.Sprintf("header size %d", head))
	row(24, 8, fmt.Sprintf("file size %d", len(data)))
	row(32, 16, "root hash")
	row(48, 16, "")
	b.WriteString("header\n")
	rows(preambleSize, preambleSize+head)
	fmt.Fprintf(&b, "zeros to D = %d\ntensor w: 1.0, 2.0\n", pageSize)
	row(pageSize, 8, "")
	b.WriteString("zeros to the end\n")
	return b.String()
}

func printable(p []byte) string {
	return string(bytes.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e {
			return '.'
		}
		return r
	}, p))
}
