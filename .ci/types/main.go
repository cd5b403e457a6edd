// Command types checks the types of this module's packages and tests for a target, from source and without making code
// of them: go run ./.ci/types windows/amd64. It takes a quarter of the time of a build.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// A source is what go list says of a package. Its test's form is one of its own: "p [p.test]".
type source struct {
	ImportPath, Dir, Name, ForTest string
	GoFiles                        []string
	ImportMap                      map[string]string
	Standard                       bool
	Module                         *struct{ Main bool }
	Error                          *struct{ Err string }
}

func main() {
	for _, target := range os.Args[1:] {
		n, err := check(target)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", target, err)
			os.Exit(1)
		}
		fmt.Printf("%s: %d packages and tests of ours\n", target, n)
	}
}

// check returns how many packages of this module it checked.
func check(target string) (int, error) {
	system, arch, ok := strings.Cut(target, "/")
	if !ok {
		return 0, errors.New("not SYSTEM/ARCHITECTURE")
	}
	list := exec.Command("go", "list", "-deps", "-test", "-json=ImportPath,Dir,Name,ForTest,GoFiles,ImportMap,Standard,Module,Error", "./...")
	list.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := list.Start(); err != nil {
		return 0, err
	}
	known := map[string]*types.Package{"unsafe": types.Unsafe}
	fset, ours := token.NewFileSet(), 0
	for d := json.NewDecoder(out); ; {
		var s source
		if err := d.Decode(&s); err == io.EOF {
			return ours, list.Wait()
		} else if err != nil {
			return ours, err
		}
		if s.Error != nil {
			return ours, errors.New(s.Error.Err)
		}
		if s.ImportPath == "unsafe" || strings.HasSuffix(s.ImportPath, ".test") {
			continue // a test's main is generated
		}
		mine := s.Module != nil && s.Module.Main
		if mine {
			ours++
		}
		c := types.Config{Sizes: types.SizesFor("gc", arch), IgnoreFuncBodies: !mine, Importer: importer{known, s.ImportMap}}
		if !mine {
			c.Error = func(error) {} // code that assembly or the linker completes
		}
		files, err := parse(fset, &s)
		if err != nil {
			return ours, err
		}
		path, _, _ := strings.Cut(s.ImportPath, " ")
		p, err := c.Check(path, fset, files, nil)
		if err != nil && mine {
			return ours, err
		}
		known[s.ImportPath] = p
	}
}

// parse reads a package's files.
func parse(fset *token.FileSet, s *source) ([]*ast.File, error) {
	files, errs := make([]*ast.File, len(s.GoFiles)), make([]error, len(s.GoFiles))
	var group sync.WaitGroup
	for i, name := range s.GoFiles {
		group.Go(func() {
			files[i], errs[i] = parser.ParseFile(fset, filepath.Join(s.Dir, name), nil, parser.SkipObjectResolution)
		})
	}
	group.Wait()
	return files, errors.Join(errs...)
}

// An importer finds what was checked before, by the names that a package has for it.
type importer struct {
	known   map[string]*types.Package
	renamed map[string]string
}

func (i importer) Import(path string) (*types.Package, error) {
	if p, ok := i.renamed[path]; ok {
		path = p
	}
	if p := i.known[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s was not listed", path)
}
