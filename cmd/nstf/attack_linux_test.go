package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/zeebo/blake3"
)

// How many attacks are made, from which seed, and which alone: see .ci/hostile.
var (
	attacks     = flag.Int("attacks", 60, "attacks that TestAttacks makes")
	attackSeed  = flag.Uint64("attack-seed", 1, "of their choice")
	attackAlone = flag.Int("attack", -1, "the number of one, to repeat it alone")
)

// What a command may take on a model of some kilobytes, whatever was done to it.
const (
	attackTime   = 20 * time.Second
	attackMemory = 1 << 20 // KiB resident
)

// An attack is a damaged input and what is done with it.
type attack struct {
	kind string
	make func(r *rand.Rand, dir string) (victim string, err error) // writes it into dir
	run  [][]string                                                // M: the input, OUT: a path in an empty folder
}

// A verdict is what came of one command.
type verdict struct {
	said string // on standard error
	kind string
	code int
	took time.Duration
	kib  int64
}

// TestAttacks damages inputs of every kind in many ways and holds every command to what
// it promises: it ends in time and within memory, with a documented exit code, without
// Go's text of a crash; after a failure no output is left; and no damaged package becomes
// a whole one.
func TestAttacks(t *testing.T) {
	all := newAttacks(t)
	var (
		mu       sync.Mutex
		verdicts []verdict
		wait     sync.WaitGroup
	)
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for i := range next {
				dir := filepath.Join(t.TempDir(), fmt.Sprint(i))
				got := all[i%len(all)].try(t, i, dir)
				os.RemoveAll(dir)
				mu.Lock()
				verdicts = append(verdicts, got...)
				mu.Unlock()
			}
		})
	}
	for i := range *attacks {
		if *attackAlone < 0 || i == *attackAlone {
			next <- i
		}
	}
	close(next)
	wait.Wait()
	tally(t, verdicts)
}

// tally prints what came of the attacks, by kind.
func tally(t *testing.T, verdicts []verdict) {
	type row struct {
		codes map[int]int
		took  time.Duration
		kib   int64
	}
	rows := map[string]*row{}
	for _, v := range verdicts {
		r := rows[v.kind]
		if r == nil {
			r = &row{codes: map[int]int{}}
			rows[v.kind] = r
		}
		r.codes[v.code]++
		r.took, r.kib = max(r.took, v.took), max(r.kib, v.kib)
	}
	t.Logf("seed %d, %d attacks, %d commands", *attackSeed, *attacks, len(verdicts))
	for _, kind := range slices.Sorted(maps.Keys(rows)) {
		r := rows[kind]
		t.Logf("%-22s exit 0: %5d  1: %4d  2: %4d  3: %5d  4: %4d  longest %6.2f s, most memory %4d MiB",
			kind, r.codes[0], r.codes[1], r.codes[2], r.codes[3], r.codes[4], r.took.Seconds(), r.kib>>10)
	}
}

// try makes attack number i and runs its commands.
func (a *attack) try(t *testing.T, i int, dir string) (out []verdict) {
	fail := func(format string, args ...any) {
		t.Errorf("attack %d of seed %d (%s; alone: .ci/hostile %d %d %d): %s", i, *attackSeed, a.kind, *attacks, *attackSeed, i, fmt.Sprintf(format, args...))
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		fail("%v", err)
		return nil
	}
	victim, err := a.make(rand.New(rand.NewPCG(*attackSeed, uint64(i))), dir)
	if err != nil {
		fail("%v", err)
		return nil
	}
	damaged := false
	for _, args := range a.run {
		to := filepath.Join(dir, "out")
		if err := os.Mkdir(to, 0o777); err != nil {
			fail("%v", err)
			return out
		}
		line := make([]string, len(args))
		for j, arg := range args {
			if line[j] = strings.ReplaceAll(arg, "OUT", filepath.Join(to, "out")); arg == "M" {
				line[j] = victim
			}
		}
		v, problem := attacked(line, to)
		v.kind = a.kind
		out = append(out, v)
		if problem != "" {
			fail("nstf %s: %s", strings.Join(line, " "), problem)
		}
		switch {
		case args[0] == "verify":
			damaged = v.code != exitFine && !onlyPadding(v.said)
		case damaged && v.code == exitFine && slices.Contains([]string{"convert", "quantize", "export", "calibrate"}, args[0]):
			fail("nstf %s: exit 0, but verify refuses the package", strings.Join(line, " "))
		}
		os.RemoveAll(to)
	}
	return out
}

// onlyPadding reports whether all that verify found is bytes between tensors that are not
// zero: who writes the tensors again does not read those, and makes a whole package.
func onlyPadding(said string) bool {
	for line := range strings.Lines(said) {
		if strings.HasPrefix(line, "error: ") && !strings.Contains(line, ": padding byte ") {
			return false
		}
	}
	return true
}

// attacked runs a command line in a process of its own and says what it broke.
func attacked(line []string, out string) (v verdict, problem string) {
	ctx, cancel := context.WithTimeout(context.Background(), attackTime)
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0], line...)
	c.Env = append(os.Environ(), asCommand+"=1")
	c.Stdin = strings.NewReader("some text")
	var errs bytes.Buffer
	c.Stderr = &errs
	began := time.Now()
	c.Run()
	v.took, v.code = time.Since(began), c.ProcessState.ExitCode()
	if usage, ok := c.ProcessState.SysUsage().(*syscall.Rusage); ok {
		v.kib = usage.Maxrss
	}
	text := errs.String()
	v.said = text
	switch left, _ := os.ReadDir(out); {
	case ctx.Err() != nil:
		return v, fmt.Sprintf("not ended after %v", attackTime)
	case v.code < 0 || v.code > exitUnsupported:
		return v, fmt.Sprintf("exit %d: %.2000s", v.code, text)
	case strings.Contains(text, "goroutine ") || strings.Contains(text, "runtime error") || strings.Contains(text, "panic:"):
		return v, fmt.Sprintf("a crash is told: %.2000s", text)
	case v.code != exitFine && !strings.Contains(text, "error: "):
		return v, fmt.Sprintf("exit %d without a word: %.500s", v.code, text)
	case v.code != exitFine && len(text) > 16<<10:
		return v, fmt.Sprintf("an error of %d bytes: %.200s", len(text), text)
	case v.kib > attackMemory:
		return v, fmt.Sprintf("%d MiB resident", v.kib>>10)
	case v.code != exitFine && len(left) > 0:
		return v, fmt.Sprintf("exit %d, and %s is left", v.code, left[0].Name())
	}
	return v, ""
}

// newAttacks makes whole inputs and returns all ways to damage them.
func newAttacks(t *testing.T) []attack {
	t.Helper()
	src := filepath.Join(micro, "llama-2")
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	calib := []string{"--calib", demoText, "--samples", "4", "--ctx", "16"}
	must(t, "convert", src, "-o", at("m.nstf"))
	must(t, "quantize", src, "--scheme", "q4_0", "-o", at("q.nstf"))
	must(t, "export", src, "-o", at("m.gguf"))
	must(t, "export", at("q.nstf"), "-o", at("q.gguf"))
	must(t, append([]string{"calibrate", src, "-o", at("m.nstats")}, calib...)...)
	must(t, "plan", src, "--stats", at("m.nstats"), "--bpw", "13", "-o", at("plan.json"))
	model := [][]string{
		{"inspect", "M", "--tensors"}, {"convert", "M", "-o", "OUT.nstf"}, {"quantize", "M", "--scheme", "q8_0", "-o", "OUT.nstf"},
		{"export", "M", "--dtype", "bf16", "-o", "OUT.gguf"}, {"run", "M", "-p", "x", "--greedy", "--max-tokens", "2", "--ctx", "64"}, {"tokenize", "M"},
	}
	pkg := append([][]string{{"verify", "M"}, append([]string{"calibrate", "M", "-o", "OUT.nstats"}, calib...)}, model...)
	all := []attack{}
	add := func(kind, from string, run [][]string, damage func(r *rand.Rand, p []byte) []byte) {
		whole, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, attack{kind, func(r *rand.Rand, dir string) (string, error) {
			path := filepath.Join(dir, "damaged"+filepath.Ext(from))
			return path, os.WriteFile(path, damage(r, bytes.Clone(whole)), 0o666)
		}, run})
	}
	for _, name := range []string{"m.nstf", "q.nstf"} {
		add("package", at(name), pkg, anywhere)
		add("package's header", at(name), pkg, header)
	}
	for _, name := range []string{"m.gguf", "q.gguf"} {
		add("GGUF", at(name), model, inFront)
	}
	add("statistics", at("m.nstats"), [][]string{{"plan", src, "--stats", "M", "--bpw", "13", "-o", "OUT.json"}}, inFront)
	add("plan", at("plan.json"), [][]string{{"quantize", src, "--plan", "M", "--calib", demoText, "--samples", "4", "--ctx", "16", "-o", "OUT.nstf"}}, jsonText)
	for _, file := range []string{"text.parquet", "chat.parquet"} {
		add("parquet", filepath.Join("../../testdata/parquet", file), [][]string{{"calibrate", src, "--calib", "M", "--samples", "1", "--ctx", "4", "-o", "OUT.nstats"}}, anywhere)
	}
	for name, damage := range map[string]func(*rand.Rand, []byte) []byte{"config.json": jsonText, "generation_config.json": jsonText, "tokenizer.json": jsonText,
		"tokenizer_config.json": jsonText, "model.safetensors": inFront} {
		all = append(all, beside(src, name, model, "", damage), beside(src, name, model, "no regular file: ", nil))
	}
	slices.SortStableFunc(all, func(a, b attack) int { return strings.Compare(a.kind, b.kind) })
	return all
}

// beside damages one file of a model directory, or puts something else in its place.
func beside(src, name string, run [][]string, kind string, damage func(*rand.Rand, []byte) []byte) attack {
	return attack{kind + name, func(r *rand.Rand, dir string) (string, error) {
		model := filepath.Join(dir, "model")
		if err := copyFiles(model, src); err != nil {
			return "", err
		}
		path := filepath.Join(model, name)
		if damage != nil {
			p, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			return model, os.WriteFile(path, damage(r, p), 0o666)
		}
		if err := os.Remove(path); err != nil {
			return "", err
		}
		switch r.IntN(6) {
		case 0:
			return model, syscall.Mkfifo(path, 0o666)
		case 1:
			return model, os.Symlink("/dev/zero", path)
		case 2:
			return model, os.Symlink(path, path)
		case 3:
			return model, os.Mkdir(path, 0o777)
		case 4:
			return model, os.Symlink(strings.Repeat("x", 2000), path)
		}
		f, err := os.Create(path)
		if err != nil {
			return "", err
		}
		defer f.Close()
		return model, f.Truncate(8 << 30)
	}, run}
}

// anywhere damages bytes anywhere, or cuts the file.
func anywhere(r *rand.Rand, p []byte) []byte { return some(r, p, len(p)) }

// inFront damages bytes where headers lie.
func inFront(r *rand.Rand, p []byte) []byte {
	if r.IntN(4) == 0 {
		return anywhere(r, p)
	}
	return some(r, p, min(len(p), 6000))
}

func some(r *rand.Rand, p []byte, within int) []byte {
	if r.IntN(12) == 0 {
		return p[:r.IntN(len(p))]
	}
	for range 1 + r.IntN(3) {
		at := r.IntN(within)
		switch r.IntN(5) {
		case 0:
			p[at] ^= 1 << r.IntN(8)
		case 1:
			p[at] = byte(r.IntN(256))
		case 2:
			copy(p[at:], bytes.Repeat([]byte{0xff}, 1+r.IntN(8)))
		case 3:
			from := p[r.IntN(len(p)):]
			copy(p[at:], from[:min(16, len(from))])
		case 4:
			copy(p[at:], binary.LittleEndian.AppendUint64(nil, 1<<r.IntN(63)))
		}
	}
	return p
}

// header damages a package's JSON and gives it a new and valid root hash.
func header(r *rand.Rand, p []byte) []byte {
	n := int(binary.LittleEndian.Uint64(p[16:]))
	text := p[64 : 64+n]
	for range 1 + r.IntN(2) {
		if at := r.IntN(n); r.IntN(2) == 0 {
			text[at] = "0123456789{}[]\",:-eE.x"[r.IntN(22)]
		} else if i := bytes.IndexAny(text[at:], "0123456789"); i >= 0 {
			text[at+i] = '0' + byte(r.IntN(10))
		}
	}
	h := blake3.New()
	h.Write(p[:32])
	h.Write(text)
	copy(p[32:], h.Sum(nil))
	return p
}

// jsonText changes values of a JSON file: numbers grow, strings get control characters,
// lists nest, keys go; now and then only a byte.
func jsonText(r *rand.Rand, p []byte) []byte {
	var v any
	if r.IntN(5) == 0 || json.Unmarshal(p, &v) != nil {
		return anywhere(r, p)
	}
	for range 1 + r.IntN(2) {
		v = changed(r, v, 0)
	}
	out, err := json.Marshal(v)
	if err != nil {
		return anywhere(r, p)
	}
	return out
}

// changed goes down into a value by chance and changes what it meets.
func changed(r *rand.Rand, v any, depth int) any {
	if depth < 8 && r.IntN(depth+2) < 2+depth {
		switch x := v.(type) {
		case map[string]any:
			if keys := slices.Sorted(maps.Keys(x)); len(keys) > 0 {
				k := keys[r.IntN(len(keys))]
				if r.IntN(8) == 0 {
					delete(x, k)
				} else {
					x[k] = changed(r, x[k], depth+1)
				}
				return x
			}
		case []any:
			if len(x) > 0 {
				i := r.IntN(len(x))
				x[i] = changed(r, x[i], depth+1)
				return x
			}
		}
	}
	nested := any(1)
	for range 200 {
		nested = []any{nested}
	}
	values := []any{nil, -1, 0, 1, 1 << 31, 1e18, 1e300, -0.5, true, "", "\x1b[31m\x00", strings.Repeat("a", 1<<16), strings.Repeat("(a+)+", 40), []any{}, map[string]any{}, nested}
	return values[r.IntN(len(values))]
}
