package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const modulePath = "github.com/nstf/nstf/"

// forbidden is the import graph's law: packages under from do not import
// packages under any of to but their own, and what is under but neither obeys
// nor is forbidden. Tests are free.
var forbidden = []struct {
	from    string
	to      []string
	but     []string
	because string
}{
	{"formats", []string{"kernels", "runtime", "decompose", "quantize", "calibrate", "cmd", "testdata"}, nil,
		"what bytes and models are does not depend on what is computed with them"},
	{"formats/tensor", []string{"formats"}, nil,
		"elements and bytes know nothing of containers"},
	{"formats/scheme", []string{"formats/arch", "formats/checkpoint", "formats/gguf", "formats/graph", "formats/hf", "formats/model", "formats/nstf", "formats/safetensors"}, nil,
		"a scheme is read by every container and knows none"},
	{"kernels", []string{"runtime", "decompose", "quantize", "calibrate", "cmd", "testdata"}, nil,
		"a kernel is arithmetic on stored numbers, without policy"},
	{"runtime", []string{"decompose", "quantize", "calibrate", "cmd", "testdata"}, nil,
		"running a package never needs a quantizer"},
	{"runtime", []string{"kernels/kerneltest"}, []string{"runtime/bench"},
		"cases belong to tests, and to the place that times kernels for a user"},
	{"runtime/sample", []string{"runtime"}, nil,
		"tokens are chosen by rules that know no device"},
	{"runtime/device", []string{"runtime"}, []string{"runtime/sample"},
		"a contract knows none who keep it"},
	{"runtime/load", []string{"runtime"}, []string{"runtime/device"},
		"weights are opened alike for any backend"},
	{"runtime/cache", []string{"runtime"}, nil,
		"pages are counted without knowing what lies in them"},
	{"runtime/place", []string{"runtime"}, nil,
		"machines are measured and blocks laid out before anything runs"},
	{"runtime/gpu/driver", []string{"runtime"}, nil,
		"a vendor's library is bound without knowing what it will run"},
	{"runtime/cpu", []string{"runtime"}, []string{"runtime/cache", "runtime/device", "runtime/load", "runtime/place", "runtime/sample"},
		"a backend knows neither another nor who drives it"},
	{"runtime/gpu", []string{"runtime"}, []string{"runtime/cache", "runtime/device", "runtime/load", "runtime/place", "runtime/sample"},
		"a backend knows neither another nor who drives it"},
	{"runtime/exec", []string{"runtime/eval", "runtime/generate", "runtime/grammar", "runtime/schedule", "runtime/serve", "runtime/bench"}, nil,
		"an executor does not know what it is used for"},
	{"runtime/schedule", []string{"runtime/cpu", "runtime/gpu", "runtime/generate", "runtime/grammar", "runtime/serve", "runtime/bench", "runtime/eval"}, nil,
		"requests share an executor, whatever it runs on and they are for"},
	{"runtime/generate", []string{"runtime/cpu", "runtime/gpu", "runtime/schedule", "runtime/serve", "runtime/bench", "runtime/eval"}, nil,
		"text comes from an executor, whatever that runs on"},
	{"runtime/serve", []string{"runtime/cpu", "runtime/gpu", "runtime/bench", "runtime/eval"}, nil,
		"answers come from executors, whatever they run on"},
	{"runtime/grammar", []string{"formats/tokenizer", "formats/model", "formats/checkpoint", "formats/tensor", "formats/graph", "kernels",
		"runtime/device", "runtime/exec", "runtime/generate", "runtime/sample"}, nil,
		"a vocabulary comes in as bytes: whose it is does not matter"},
	{"cmd", []string{"kernels/kerneltest"}, nil,
		"cases belong to tests, and to the place that times kernels for a user"},
	{"decompose", []string{"runtime", "calibrate", "quantize", "cmd", "testdata"}, nil,
		"only quantize/pipeline joins the stages"},
	{"calibrate", []string{"decompose", "quantize", "cmd", "testdata"}, nil,
		"statistics do not know what they will be used for"},
	{"quantize", []string{"runtime", "calibrate", "cmd", "testdata"}, []string{"quantize/pipeline"},
		"only quantize/pipeline joins the stages"},
	{"testdata", []string{"formats", "kernels", "runtime", "decompose", "quantize", "calibrate", "cmd"}, nil,
		"data holds no code of ours"},
}

type goPackage struct {
	ImportPath string
	Dir        string
	Imports    []string
	GoFiles    []string
	SFiles     []string
}

func under(pkg string, roots []string) bool {
	for _, r := range roots {
		if pkg == r || strings.HasPrefix(pkg, r+"/") {
			return true
		}
	}
	return false
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,GoFiles,SFiles", "./...")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []goPackage
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, modulePath)
		all = append(all, p)
	}
}

func TestImportsPointOneWay(t *testing.T) {
	checked := 0
	for _, p := range listPackages(t) {
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, modulePath)
			if !ours {
				continue
			}
			checked++
			for _, rule := range forbidden {
				if under(p.ImportPath, []string{rule.from}) && !under(p.ImportPath, rule.but) && under(to, rule.to) && !under(to, rule.but) && !under(to, []string{rule.from}) {
					t.Errorf("%s imports %s: %s", p.ImportPath, to, rule.because)
				}
			}
		}
	}
	if checked < 20 {
		t.Fatalf("only %d imports of ours seen: the list is not being read", checked)
	}
}

// lonely are things that live at one address only.
var lonely = []struct {
	what    string
	pattern *regexp.Regexp
	allowed []string // packages, or files
	because string
}{
	{"unsafe", regexp.MustCompile(`(?m)^\s*(import\s+)?"unsafe"$`), []string{"runtime/gpu/driver", "formats/tensor/view.go", "formats/tensor/file_windows.go", "formats/atomicfile/space_windows.go"},
		"danger has an address"},
	{"purego", regexp.MustCompile(`"github.com/ebitengine/purego"`), []string{"runtime/gpu/driver"}, "danger has an address"},
	{"the environment", regexp.MustCompile(`\bos\.(Getenv|LookupEnv|Environ)\(`), []string{"cmd"}, "only cmd reads the environment"},
	{"printing", regexp.MustCompile(`\bfmt\.Print(ln|f)?\(|\bos\.(Stdout|Stderr)\b`), []string{"cmd", "kernels/cpu/internal/gen"}, "only cmd prints"},
	{"exiting", regexp.MustCompile(`\bos\.Exit\(|\blog\.Fatal`), []string{"cmd", "kernels/cpu/internal/gen"}, "only cmd exits"},
	{"creating or renaming files", regexp.MustCompile(`\bos\.(Create|CreateTemp|OpenFile|WriteFile|Rename|Link|Symlink|Truncate|CopyFS|MkdirTemp|OpenRoot)\(`),
		[]string{"formats/atomicfile",
			"formats/hub/cache.go", "formats/hub/pull.go", // a cache whose layout is huggingface_hub's
			"formats/hub/begun.go",                // appends to what it wrote through atomicfile
			"calibrate/hidden.go",                 // a scratch file that has no name
			"runtime/gpu/driver/permission.go",    // opens a device, to learn whether it may
			"formats/tensor/file_unix.go",         // opens without waiting
			"formats/model/random/blocks.go",      // a checkpoint of holes in a temporary folder
			"quantize/pipeline/forecast.go",       // a temporary folder
			"cmd/nstf/demo.go", "cmd/nstf/dev.go", // temporary folders
			"kernels/cpu/internal/gen"},
		"an output names all its inputs, so that none of them is overwritten"},
	{"opening files", regexp.MustCompile(`\bos\.(Open|ReadFile)\(|\btensor\.OpenFile\(`),
		[]string{"formats/open.go", "formats/tensor", "formats/atomicfile",
			"testdata/packed",
			"formats/corpus/read.go",                                                     // pipes, which a user may mean
			"runtime/gpu", "runtime/bench/rss_linux.go", "runtime/place", "kernels/cpu"}, // the system's own
		"what somebody else wrote is opened as a regular file, and read within a limit"},
	{"outputs that name no inputs", regexp.MustCompile(`\batomicfile\.Scratch\(`),
		[]string{"formats/work", "formats/hub/cache.go", "formats/hub/begun.go", "quantize/pipeline", "runtime/gpu/kernelcache", "runtime/gpu/tuned.go", "runtime/place", "runtime/schedule/disk.go", "cmd/nstf/demo.go"},
		"only folders that the program keeps for itself hold none"},
	{"outputs", regexp.MustCompile(`\batomicfile\.New(Output|Folder)\(`), []string{"cmd/nstf/output.go"},
		"commands open outputs by one function"},
	{"object stores", regexp.MustCompile(`"github.com/minio/minio-go/`), []string{"formats/work/bucket.go", "formats/work/objects.go", "cmd/nstf/store.go"}, "who speaks to whom is known"},
	{"networks", regexp.MustCompile(`(?m)^\s*(import\s+)?"net/http"$`), []string{"runtime/serve", "formats/hub", "cmd/nstf"}, "who speaks to whom is known"},
	{"init", regexp.MustCompile(`(?m)^func init\(\)`), nil, "nothing registers itself"},
}

func TestDangerHasAnAddress(t *testing.T) {
	files := 0
	for _, p := range listPackages(t) {
		if len(p.SFiles) > 0 && p.ImportPath != "kernels/cpu" {
			t.Errorf("%s has assembly: danger has an address", p.ImportPath)
		}
		for _, name := range p.GoFiles {
			path := p.ImportPath + "/" + name
			src, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			files++
			for _, l := range lonely {
				if l.pattern.Match(src) && !under(path, l.allowed) {
					t.Errorf("%s has %s: %s", path, l.what, l.because)
				}
			}
		}
	}
	if files < 50 {
		t.Fatalf("only %d files seen", files)
	}
}

func TestTopLevelAndNames(t *testing.T) {
	allowed := map[string]bool{
		"cmd": true, "formats": true, "quantize": true, "decompose": true, "calibrate": true, "runtime": true,
		"kernels": true, "testdata": true, "docs": true,
	}
	for _, p := range listPackages(t) {
		top, _, _ := strings.Cut(p.ImportPath, "/")
		if !allowed[top] {
			t.Errorf("package %s lies outside the house", p.ImportPath)
		}
		switch filepath.Base(p.ImportPath) {
		case "util", "utils", "common", "helpers", "misc":
			t.Errorf("package %s is named after nothing", p.ImportPath)
		}
	}
}
