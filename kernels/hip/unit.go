package hip

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed *.hip
var sources embed.FS

// A Unit is what is compiled at once: a source file and its defines. Units are
// comparable, and equal units are one compilation.
type Unit struct {
	File    string // matvec.hip
	Defines string // NAME=VALUE pairs, separated by spaces, in the order that the operation's type writes them
}

// Source returns the unit's whole text: its file with every #include of ours
// put in its place once, each part under a #line directive. The name SCHEME.hip
// stands for the file of the scheme that the unit's NSTF_SCHEME names.
func (u Unit) Source() string {
	var b strings.Builder
	u.expand(&b, u.File, map[string]bool{})
	return b.String()
}

// Define returns the value of one of the unit's defines, "" where it has none.
func (u Unit) Define(name string) string {
	for _, d := range strings.Fields(u.Defines) {
		if value, ok := strings.CutPrefix(d, name+"="); ok {
			return value
		}
	}
	return ""
}

// expand writes a file. An unknown name is a mistake of this package.
func (u Unit) expand(b *strings.Builder, name string, seen map[string]bool) {
	if name == "SCHEME.hip" {
		name = u.Define("NSTF_SCHEME") + ".hip"
	}
	if seen[name] {
		return
	}
	seen[name] = true
	text, err := sources.ReadFile(name)
	if err != nil {
		panic("hip: " + err.Error())
	}
	fmt.Fprintf(b, "#line 1 \"%s\"\n", name)
	for i, line := range strings.SplitAfter(string(text), "\n") {
		included, ok := strings.CutPrefix(line, `#include "`)
		if !ok {
			b.WriteString(line)
			continue
		}
		u.expand(b, strings.TrimSuffix(strings.TrimSpace(included), `"`), seen)
		fmt.Fprintf(b, "#line %d \"%s\"\n", i+2, name)
	}
}

// Options returns the compiler's options for the unit on a target, the
// architecture's aside: the driver adds that in its own spelling.
func (u Unit) Options(t Target) []string {
	options := []string{
		"-DNSTF_" + strings.ToUpper(string(t.API)) + "=1",
		fmt.Sprintf("-DNSTF_WAVE=%d", t.Wave),
		"-DNSTF_MATRIX=NSTF_MATRIX_" + string(t.Matrix()),
	}
	for _, d := range strings.Fields(u.Defines) {
		options = append(options, "-D"+d)
	}
	return options
}
