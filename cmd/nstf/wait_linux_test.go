package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nstf/nstf/formats/work"
)

// shared is how much longer than on a quiet machine anything may take where others have the
// processors too: tests tell a process that hangs from one that ends, not how fast it is.
const shared = 10

// within runs a process and fails where it does not end in what would be time enough on a
// quiet machine, behind a second for signals where it gets some then.
func within(t *testing.T, limit time.Duration, c *exec.Cmd, signals ...os.Signal) (code int, stderr string) {
	t.Helper()
	var errs bytes.Buffer
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for _, sig := range signals {
		time.AfterFunc(time.Second, func() { c.Process.Signal(sig) })
		limit += time.Second
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	select {
	case <-done:
		return c.ProcessState.ExitCode(), errs.String()
	case <-time.After(shared * limit):
		c.Process.Kill()
		<-done
		t.Errorf("nstf %s did not end within %v; stderr:\n%s", strings.Join(c.Args[1:], " "), limit, errs.String())
		return -1, ""
	}
}

// What is no regular file where one belongs is a bad input to every command, which does
// not wait for it and does not read it to its end.
func TestNoRegularFile(t *testing.T) {
	hf := filepath.Join(micro, "llama-headdim")
	sparse := func(path string) error {
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return f.Truncate(8 << 30)
	}
	kinds := map[string]func(path string) error{
		"FIFO":      func(path string) error { return syscall.Mkfifo(path, 0o666) },
		"zero":      func(path string) error { return os.Symlink("/dev/zero", path) },
		"loop":      func(path string) error { return os.Symlink(path, path) },
		"directory": func(path string) error { return os.Mkdir(path, 0o777) },
		"sparse":    sparse,
	}
	for kind, make := range kinds {
		for _, name := range []string{"config.json", "tokenizer.json", "generation_config.json", "model-00002-of-00004.safetensors", "model.safetensors.index.json"} {
			dir := copyDir(t, hf)
			path := filepath.Join(dir, name)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			out := t.TempDir()
			for what, args := range lines(dir, out) {
				if what == "verify" || what == "tokenize" && !strings.HasPrefix(name, "tokenizer") || what == "inspect" && name == "tokenizer.json" && kind != "x" {
					continue
				}
				t.Run(kind+"/"+name+"/"+what, func(t *testing.T) {
					c := command(t, args...)
					c.Stdin = strings.NewReader("x")
					code, stderr := within(t, 10*time.Second, c)
					if code != exitInput || !strings.Contains(stderr, "error: ") {
						t.Errorf("exit %d, want %d; stderr:\n%s", code, exitInput, stderr)
					}
					empty(t, out)
				})
			}
		}
		path := filepath.Join(t.TempDir(), "model")
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		for what, args := range lines(path, t.TempDir()) {
			if kind == "directory" && what == "tokenize" {
				continue
			}
			t.Run(kind+"/model/"+what, func(t *testing.T) {
				if code, stderr := within(t, 10*time.Second, command(t, args...)); code != exitInput {
					t.Errorf("exit %d, want %d; stderr:\n%s", code, exitInput, stderr)
				}
			})
		}
	}
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 300))
	for what, args := range lines(long, t.TempDir()) {
		invoke(args...).fails(t, exitInput, "")
		_ = what
	}
	dir := copyDir(t, hf)
	index := filepath.Join(dir, "model.safetensors.index.json")
	text, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(index, bytes.ReplaceAll(text, []byte("model-00002-of-00004"), []byte(strings.Repeat("y", 3000))), 0o666); err != nil {
		t.Fatal(err)
	}
	invoke("inspect", dir).fails(t, exitInput, "")
	invoke("convert", dir, "-o", filepath.Join(t.TempDir(), "x.nstf")).fails(t, exitInput, "")
}

// A signal ends a command within a second where it waits for who writes a pipe, and
// leaves nothing.
func TestSignalWhileWaiting(t *testing.T) {
	model := filepath.Join(micro, "llama-2")
	for name, args := range map[string][]string{
		"open by calibrate": {"calibrate", model, "--calib", "FIFO", "-o", "x.nstats"},
		"open by quantize":  {"quantize", model, "--calib", "FIFO", "--bpw", "13", "-o", "x.nstf"},
		"open by eval":      {"eval", model, "--text", "FIFO"},
		"open by run":       {"run", model, "-f", "FIFO"},
		"read by calibrate": {"calibrate", model, "--calib", "-", "-o", "x.nstats"},
		"read by eval":      {"eval", model, "--text", "-"},
		"read by run":       {"run", model, "-"},
		"read by tokenize":  {"tokenize", model},
	} {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			if sig == syscall.SIGINT && args[0] != "run" {
				continue // one place hears both
			}
			t.Run(sig.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				fifo := filepath.Join(dir, "text")
				if err := syscall.Mkfifo(fifo, 0o666); err != nil {
					t.Fatal(err)
				}
				args := slices.Clone(args)
				for i, a := range args {
					switch {
					case a == "FIFO":
						args[i] = fifo
					case strings.HasPrefix(a, "x."):
						args[i] = filepath.Join(dir, a)
					}
				}
				c := command(t, args...)
				r, w, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				defer r.Close()
				c.Stdin = r
				code, stderr := within(t, time.Second, c, sig)
				if code != exitInterrupted || !strings.Contains(stderr, "interrupted") {
					t.Errorf("exit %d, want %d; stderr:\n%s", code, exitInterrupted, stderr)
				}
				if entries, _ := os.ReadDir(dir); len(entries) != 1 {
					t.Errorf("left %v", entries)
				}
			})
		}
	}
}

// A text may come through a pipe, and an endless one ends when there is enough of it.
func TestTextThroughPipes(t *testing.T) {
	model := filepath.Join(micro, "llama-2")
	text, err := os.ReadFile(demoText)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "x.nstats")
	again := filepath.Join(t.TempDir(), "y.nstats")
	args := []string{"--samples", "4", "--ctx", "16"}
	if r := invokeWith(t.Context(), bytes.NewReader(text), append([]string{"calibrate", model, "--calib", "-", "-o", out}, args...)...); r.code != exitFine {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	must(t, append([]string{"calibrate", model, "--calib", demoText, "-o", again}, args...)...)
	for _, line := range [][]string{
		{"calibrate", model, "--calib", "-", "-o", out},
		{"eval", model, "--text", "-", "--ctx", "8", "--max-tokens", "32"},
		{"quantize", model, "--calib", "-", "--scheme", "q4_0", "-o", filepath.Join(t.TempDir(), "q.nstf")},
	} {
		c := command(t, append(line, args...)...)
		if line[0] == "eval" {
			c = command(t, line...)
		}
		yes := exec.Command("yes", "all work and no play makes a dull text")
		pipe, err := yes.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := yes.Start(); err != nil {
			t.Skipf("no yes here: %v", err)
		}
		c.Stdin = pipe
		code, stderr := within(t, 60*time.Second, c)
		pipe.Close()
		yes.Wait()
		if code != exitFine {
			t.Errorf("%v from an endless pipe: exit %d\n%s", line, code, stderr)
		}
	}
	r := invokeWith(t.Context(), bytes.NewReader(append([]byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0}, text...)), append([]string{"calibrate", model, "--calib", "-", "-o", out}, args...)...)
	r.fails(t, exitInput, "not a text")
}

// One line of 96 MB takes memory for what was asked for.
func TestLongLine(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 96 MB")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "line.txt")
	if err := os.WriteFile(path, bytes.Repeat([]byte("all work and no play "), 96<<20/21), 0o666); err != nil {
		t.Fatal(err)
	}
	c := command(t, "calibrate", filepath.Join(micro, "llama-2"), "--calib", path, "--samples", "2", "--ctx", "16", "-o", filepath.Join(dir, "x.nstats"))
	var errs bytes.Buffer
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	// What getrusage says is this process's peak where that is larger: it is handed on
	// by exec. /proc has the program's own, while it runs.
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	most, err := 0, error(nil)
	for running := true; running; {
		if status, rerr := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Process.Pid)); rerr == nil {
			if _, hwm, ok := bytes.Cut(status, []byte("VmHWM:")); ok {
				fmt.Sscan(string(hwm), &most)
			}
		}
		select {
		case err = <-done:
			running = false
		case <-time.After(2 * time.Millisecond):
		}
	}
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	if most == 0 || most > 400<<10 {
		t.Errorf("%d KiB were resident", most)
	} else {
		t.Logf("%d KiB were resident", most)
	}
}

// What is lost of standard output is an error of every command.
func TestLostOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("no full device: %v", err)
	}
	defer full.Close()
	deaf, err := os.Open(os.DevNull) // cannot be written to
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	pkg := packaged(t, filepath.Join(micro, "llama-2"))
	for _, args := range [][]string{
		{"inspect", pkg}, {"inspect", pkg, "--tensors"}, {"inspect", pkg, "--json"}, {"verify", pkg}, {"verify", pkg, "--json"}, {"diff", pkg, pkg}, {"diff", pkg, pkg, "--json"},
		{"version"}, {"version", "--json"}, {"--version"}, {"--help"}, {"convert", "--help"}, {"help", "run"}, {"completion", "bash"}, {"config"},
		{"run", pkg, "-p", "x", "--max-tokens", "2"}, {"tokenize", pkg}, {"eval", pkg, "--text", microText, "--ctx", "8", "--max-tokens", "16"},
		{"convert", pkg, "-o", filepath.Join(t.TempDir(), "x.nstf")}, {"plan", pkg, "--bpw", "13"}, {"plan", pkg, "--bpw", "13", "--json"},
	} {
		for _, to := range []*os.File{full, deaf} {
			c := command(t, args...)
			c.Stdin, c.Stdout = strings.NewReader("x"), to
			if code, stderr := within(t, 20*time.Second, c); code != exitFailure || !strings.Contains(stderr, "error: ") {
				t.Errorf("nstf %v into %s: exit %d; stderr:\n%s", args, to.Name(), code, stderr)
			}
		}
	}
}

// A standard output that was closed is told of, and the null device of a shell is not. It
// is told of only, and ends with 0: before any code of ours runs, Go opens /dev/null to
// read and write for each of the first three descriptors that is closed (checkfds of
// package runtime), which is what subprocess.DEVNULL and 'ignore' of Node.js hand down.
// Nothing tells the two apart: flags, position and device are the same, and kcmp finds a
// description shared with the caller only while that keeps it open.
func TestClosedOutput(t *testing.T) {
	pkg := packaged(t, filepath.Join(micro, "llama-2"))
	for to, warned := range map[string]bool{">&-": true, ">/dev/null": false, "<>/dev/null >&0": true, "| cat": false} {
		for _, args := range [][]string{{"inspect", pkg}, {"verify", pkg}, {"diff", pkg, pkg}, {"version"}, {"--help"}} {
			c := command(t, args...)
			c.Args = append([]string{"sh", "-c", `"$0" "$@" ` + to}, c.Args...)
			var err error
			if c.Path, err = exec.LookPath("sh"); err != nil {
				t.Fatal(err)
			}
			if code, stderr := within(t, 20*time.Second, c); code != exitFine || strings.Contains(stderr, "printed is lost") != warned {
				t.Errorf("nstf %v %s: exit %d; stderr:\n%s", args, to, code, stderr)
			}
		}
	}
}

// Two runs do not share a work folder.
func TestTwoRuns(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "x.nstf")
	folder, err := work.Create(work.Path(out), work.Job{"a": "b"})
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"quantize", filepath.Join(micro, "llama-2"), "--calib", demoText, "--samples", "4", "--ctx", "16", "--scheme", "q4_0", "-o", out}
	for _, more := range []string{"", "--resume", "--discard"} {
		line := args
		if more != "" {
			line = append(append([]string{}, args...), more)
		}
		r := invoke(line...)
		r.fails(t, exitFailure, "in use by process")
		if strings.Contains(r.err, "interrupted run") || strings.Contains(r.err, "--resume") {
			t.Errorf("%q: the run was not interrupted: %s", more, r.err)
		}
	}
	if err := folder.Close(); err != nil {
		t.Fatal(err)
	}
	invoke(args...).fails(t, exitFailure, "interrupted run")
	must(t, append(args, "--discard")...)
}

// Tensors that no graph reads take time by their number, not by its square: 100,000 of
// them took 12 s once.
func TestManyUnusedTensors(t *testing.T) {
	dir := copyDir(t, filepath.Join(micro, "llama-2"))
	path := filepath.Join(dir, "model.safetensors")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	size := binary.LittleEndian.Uint64(whole)
	data := whole[8+size:]
	took := func(count int) time.Duration { // of a processor
		var head strings.Builder
		head.Write(bytes.TrimRight(whole[8:8+size], "} "))
		head.WriteByte('}')
		for i := range count {
			at := len(data) + 8*i
			fmt.Fprintf(&head, `,"unused.%d.weight":{"dtype":"F32","shape":[2],"data_offsets":[%d,%d]}`, i, at, at+8)
		}
		head.WriteByte('}')
		out := binary.LittleEndian.AppendUint64(nil, uint64(head.Len()))
		out = append(append(append(out, head.String()...), data...), make([]byte, 8*count)...)
		if err := os.WriteFile(path, out, 0o666); err != nil {
			t.Fatal(err)
		}
		c := command(t, "convert", dir, "-o", filepath.Join(t.TempDir(), "x.nstf"))
		var said bytes.Buffer
		c.Stdout = &said
		code, stderr := within(t, time.Minute, c)
		if code != exitFine || !strings.Contains(said.String(), fmt.Sprintf("and %d more", count-50)) {
			t.Fatalf("exit %d; stderr:\n%.2000s", code, stderr)
		}
		return c.ProcessState.UserTime()
	}
	if few, many := took(25_000), took(100_000); many > 8*few {
		t.Errorf("100,000 took %v of a processor, a quarter of them %v", many, few)
	} else {
		t.Logf("%v and %v", few, many)
	}
}
