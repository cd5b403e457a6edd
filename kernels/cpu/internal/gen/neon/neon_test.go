package neon

import (
	"encoding/binary"
	"fmt"
	"go/constant"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/arch/arm64/arm64asm"
)

const kernels = "../../.."

// A word is a macro with its arguments filled in.
type word struct {
	macro, want string
	code        uint32
}

var define = regexp.MustCompile(`^#define (\w+)\(([^)]*)\) WORD \$\((.*)\) // (.*)$`)

// values lists what an argument is tried with: lanes i, shifts s, and registers,
// 31 of which is another thing where an address is meant.
func values(name, text string) []int {
	switch {
	case name == "m" && strings.Contains(text, ".h[{i}]"):
		return []int{0, 1, 10, 15} // lanes of 16 bits are of the lower registers
	case name == "i" && (strings.Contains(text, ".h}") || strings.Contains(text, ".h[{i}]")):
		return []int{0, 1, 2, 3, 4, 5, 6, 7}
	case name == "i" && strings.Contains(text, "[{i}]"):
		return []int{0, 1, 2, 3}
	case name == "s":
		return []int{1, 2, 8, 16, 31, 32}
	case name == "i" && strings.Contains(text, "{16i}"):
		return []int{0, 1, 33, 161}
	case name == "g":
		return []int{0, 1, 7, 15}
	case strings.Contains(text, "x{"+name+"}"):
		return []int{0, 1, 15, 16, 30}
	}
	return []int{0, 1, 10, 21, 31}
}

// words fills in every combination of arguments of every macro.
func words(t *testing.T) []word {
	src, err := os.ReadFile(filepath.Join(kernels, "neon_arm64.h"))
	if err != nil {
		t.Fatal(err)
	}
	var all []word
	for _, line := range strings.Split(string(src), "\n") {
		m := define.FindStringSubmatch(line)
		if m == nil {
			if strings.HasPrefix(line, "#define") {
				t.Errorf("not a word with what it stands for: %s", line)
			}
			continue
		}
		args := strings.Split(m[2], ", ")
		fill(args, m[3], m[4], func(expr, text string) {
			v, err := types.Eval(token.NewFileSet(), nil, token.NoPos, expr)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			code, ok := constant.Uint64Val(constant.ToInt(v.Value))
			if !ok || code>>32 != 0 {
				t.Fatalf("%s: %s is not a word", line, v.Value)
			}
			all = append(all, word{m[1], text, uint32(code)})
		})
	}
	return all
}

// fill replaces the first argument by each of its values, then the others.
func fill(args []string, expr, text string, done func(expr, text string)) {
	if len(args) == 0 {
		done(expr, text)
		return
	}
	for _, v := range values(args[0], text) {
		n := fmt.Sprint(v)
		said := strings.NewReplacer("{"+args[0]+"}", n, "{16i}", fmt.Sprint(16*v), "{32g}", fmt.Sprint(32*v)).Replace(text)
		if args[0] != "i" && args[0] != "g" {
			said = strings.ReplaceAll(text, "{"+args[0]+"}", n)
		}
		fill(args[1:], strings.ReplaceAll(expr, "("+args[0]+")", "("+n+")"), strings.Replace(said, ", #0]", "]", 1), done)
	}
}

// Go's disassembler knows Arm v8.0: what it must not know is listed.
func TestWords(t *testing.T) {
	newer := map[string]bool{"SDOT4S": true, "SDOTE4S": true}
	all, seen := words(t), map[string]bool{}
	for _, w := range all {
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], w.code)
		inst, err := arm64asm.Decode(b[:])
		if newer[w.macro] != (err != nil) {
			t.Errorf("%s: %#08x: %v", w.macro, w.code, err)
		}
		if err == nil {
			if got := strings.ReplaceAll(arm64asm.GNUSyntax(inst), ",#", ", #"); got != w.want {
				t.Errorf("%s: %#08x is %q, want %q", w.macro, w.code, got, w.want)
			}
		}
		seen[w.macro] = true
	}
	if len(seen) < 40 {
		t.Errorf("only %d macros were found", len(seen))
	}
	t.Logf("%d macros, %d words", len(seen), len(all))
}

// Binutils know all of it. They are asked where they are installed: .ci/arm64
// installs them and wants this not to be skipped.
func TestWordsWithObjdump(t *testing.T) {
	objdump, err := exec.LookPath("aarch64-linux-gnu-objdump")
	if err != nil {
		t.Skip(err)
	}
	all := words(t)
	var raw []byte
	for _, w := range all {
		raw = binary.LittleEndian.AppendUint32(raw, w.code)
	}
	file := filepath.Join(t.TempDir(), "words")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(objdump, "-D", "-z", "-b", "binary", "-m", "aarch64", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range regexp.MustCompile(`(?m)^ *[0-9a-f]+:\t([0-9a-f]{8}) +\t(.*)$`).FindAllStringSubmatch(string(out), -1) {
		if n == len(all) {
			t.Fatal("more instructions than words")
		}
		if got := strings.Join(strings.Fields(m[2]), " "); got != all[n].want {
			t.Errorf("%s: %#08x is %q, want %q", all[n].macro, all[n].code, got, all[n].want)
		}
		n++
	}
	if n != len(all) {
		t.Errorf("%d instructions of %d words", n, len(all))
	}
}

// No word stands outside of the file that is tested.
func TestWordsAreInOnePlace(t *testing.T) {
	var files []string
	for _, pattern := range []string{"*_arm64.s", "*_arm64.h"} {
		more, err := filepath.Glob(filepath.Join(kernels, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	if len(files) < 10 {
		t.Fatalf("only %v were found", files)
	}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(f) != "neon_arm64.h" && regexp.MustCompile(`(?m)\bWORD\b`).Match(src) {
			t.Errorf("%s holds a WORD", f)
		}
	}
}
