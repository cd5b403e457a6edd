package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/atomicfile"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/logprob"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
)

// The kinds of files that commands write, by how they begin: what is replaced without
// --force is of the same kind.
var (
	packageKind    = atomicfile.Kind{Name: "a package", Is: begins(nstf.Magic)}
	ggufKind       = atomicfile.Kind{Name: "a GGUF file", Is: begins("GGUF")}
	statisticsKind = atomicfile.Kind{Name: "a file of statistics", Is: func(head []byte) bool {
		return bytes.Contains(head, []byte(`"nstf`)) && len(head) > 8 && head[8] == '{'
	}}
	planKind      = atomicfile.Kind{Name: "a plan", Is: func(head []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(head), []byte("{")) }}
	policyKind    = atomicfile.Kind{Name: "a policy of attention", Is: planKind.Is}
	keptKind      = atomicfile.Kind{Name: "a choice of bits for keys and values", Is: planKind.Is}
	pageKind      = atomicfile.Kind{Name: "an HTML page", Is: func(head []byte) bool { return bytes.HasPrefix(bytes.ToLower(head), []byte("<!doctype html")) }}
	referenceKind = atomicfile.Kind{Name: "a file of log-probabilities", Is: begins(logprob.Magic)}
	arrayKind     = atomicfile.Kind{Name: "a NumPy array", Is: begins("\x93NUMPY")}
)

func begins(magic string) func([]byte) bool {
	return func(head []byte) bool { return bytes.HasPrefix(head, []byte(magic)) }
}

// An outputFlag is -o, or another flag that names a file to write.
type outputFlag struct {
	path  string
	force bool
}

// add adds -o.
func (f *outputFlag) add(s *pflag.FlagSet, usage string) {
	s.StringVarP(&f.path, "output", "o", "", usage)
	f.addForce(s)
}

func (f *outputFlag) addForce(s *pflag.FlagSet) {
	s.BoolVar(&f.force, "force", false, "replace a file that is not of the same kind")
}

// output is the way of every command to a file that it writes: inputs are all that it
// reads, the model's files among them. What would be lost is refused before any work.
func (a *app) output(path string, kind atomicfile.Kind, force bool, m *model.Model, inputs ...string) (*atomicfile.Output, error) {
	inputs = slices.Clone(inputs)
	if m != nil {
		inputs = append(inputs, m.Inputs()...)
	}
	return a.remember(atomicfile.NewOutput(path, atomicfile.Terms{Inputs: inputs, Kind: kind, Force: force}))
}

// folder is the way to a folder that is written: it is new, or empty.
func (a *app) folder(path string) (*atomicfile.Output, error) {
	return a.remember(atomicfile.NewFolder(path))
}

// packageOutput is output for a package, which no other program would look for under
// the name of its own format.
func (a *app) packageOutput(f outputFlag, m *model.Model, inputs ...string) (*atomicfile.Output, error) {
	switch ending := strings.ToLower(filepath.Ext(f.path)); {
	case ending == ".gguf":
		return nil, &atomicfile.RefusedError{Path: f.path, Reason: "the output is a package, not a GGUF file", Hint: "name it OUT.nstf; nstf export MODEL -o " + f.path + " writes GGUF"}
	case ending == ".safetensors", strings.HasSuffix(f.path, "/"), isDir(f.path):
		return nil, &atomicfile.RefusedError{Path: f.path, Reason: "the output is a package, one file", Hint: "name it OUT.nstf; nstf export MODEL -o DIR/ writes a directory of safetensors"}
	}
	return a.output(f.path, packageKind, f.force, m, inputs...)
}

// describeFile says what is at a path before it is replaced, "" where nothing is.
func describeFile(path string) string {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return ""
	}
	return size(info.Size()) + " of " + info.ModTime().Format("2006-01-02 15:04")
}

// sayReplaced tells what was lost by writing to a path; was is of [describeFile].
func (a *app) sayReplaced(path, was string) {
	if was != "" {
		fmt.Fprintf(a.err, "replaced %s, which was %s\n", formats.Printable(path), was)
	}
}

// remember keeps an output in mind, so that nothing of it is left where the process has
// to end at once.
func (a *app) remember(o *atomicfile.Output, err error) (*atomicfile.Output, error) {
	if err == nil {
		a.mu.Lock()
		a.outputs = append(a.outputs, o)
		a.mu.Unlock()
	}
	return o, err
}

// modelFiles returns the files of a model that is opened later, none where path is not
// a model's.
func modelFiles(path string) []string {
	if path == "" || logprob.Is(path) {
		return []string{path}
	}
	m, err := checkpoint.Open(path)
	if err != nil {
		return []string{path} // opening it where it is read says what is wrong
	}
	defer m.Close()
	return m.Inputs()
}
