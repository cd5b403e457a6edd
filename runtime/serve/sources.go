package serve

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nstf/nstf/formats"
)

// mostModels bounds the models of a folder.
const mostModels = 256

// A NameError says that names of models do not tell them apart, or are of none.
type NameError string

func (e NameError) Error() string { return string(e) }

// Sources returns the models of paths, of which folders stand for every model in them.
// What cannot be opened in a folder is left out and told to the loader's Log.
func (l *Loader) Sources(ctx context.Context, paths []string) ([]Source, error) {
	var all []Source
	add := func(path string, lenient bool) error {
		s, err := l.Source(path)
		if err != nil && lenient && ctx.Err() == nil {
			l.Log.Warn("left out", "path", path, "error", err.Error())
			return nil
		}
		if err != nil {
			return err
		}
		if slices.ContainsFunc(all, func(o Source) bool { return o.Info.Name == s.Info.Name }) {
			return NameError("two models are called " + s.Info.Name)
		}
		all = append(all, s)
		return nil
	}
	for _, path := range paths {
		inside, err := modelsIn(path)
		if err != nil {
			return nil, err
		}
		if inside == nil {
			if err := add(path, false); err != nil {
				return nil, err
			}
		}
		for _, p := range inside {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := add(p, true); err != nil {
				return nil, err
			}
		}
	}
	if len(all) == 0 {
		return nil, formats.Errorf(paths[0], "", "there is no model in it")
	}
	return all, nil
}

// modelsIn returns what may be models in a folder, nil where the path is no folder or is
// a model itself.
func modelsIn(path string) ([]string, error) {
	if i, err := formats.Stat(path); err != nil || !i.IsDir() {
		return nil, nil // it is said when it is opened
	}
	if isFolder(path) {
		return nil, nil
	}
	inside, err := ModelsOf(path)
	if err != nil {
		return nil, err
	}
	if len(inside) > mostModels {
		return nil, formats.Errorf(path, "", "%d models, and %d at most are served", len(inside), mostModels)
	}
	return inside, nil
}

func isFolder(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "config.json")) // which makes a directory one of Hugging Face's
	return err == nil
}

// ModelsOf returns what may be models in a folder, not nil; of a split file its first part.
func ModelsOf(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	inside := []string{}
	for _, e := range entries {
		p, ending := filepath.Join(folder, e.Name()), filepath.Ext(e.Name())
		part := strings.Contains(e.Name(), "-of-") && !strings.Contains(e.Name(), "-00001-of-")
		if isFolder(p) || !part && (ending == ".nstf" || ending == ".gguf") {
			inside = append(inside, p)
		}
	}
	return inside, err
}

// Alias gives models further names: NAME of the first one, or NAME=MODEL, a model's name or
// path. Errors are a [NameError].
func Alias(all []Source, aliases []string) error {
	for _, alias := range aliases {
		name, of, ok := strings.Cut(alias, "=")
		i := 0
		if ok {
			i = slices.IndexFunc(all, func(s Source) bool {
				return s.Info.Name == of || s.Info.Path == of || filepath.Clean(s.Info.Path) == filepath.Clean(of)
			})
		}
		switch {
		case name == "" || i < 0:
			return NameError(fmt.Sprintf("the alias %s names no model: NAME, of the first one, or NAME=MODEL", alias))
		case slices.ContainsFunc(all, func(s Source) bool { return s.Info.Name == name || slices.Contains(s.Info.Aliases, name) }):
			return NameError(fmt.Sprintf("the alias %s: there is a model of that name", alias))
		}
		all[i].Info.Aliases = append(all[i].Info.Aliases, name)
	}
	return nil
}

// modelName is what a model of a path is called. In the cache of a hub the folder of its
// repository says that, models--ORG--NAME/snapshots/COMMIT.
func modelName(path string) string {
	path = filepath.Clean(path)
	name := filepath.Base(path)
	if up := filepath.Dir(path); filepath.Base(up) == "snapshots" {
		if of, ok := strings.CutPrefix(filepath.Base(filepath.Dir(up)), "models--"); ok {
			parts := strings.Split(of, "--")
			name = parts[len(parts)-1]
		}
	}
	for _, ending := range []string{".nstf", ".gguf", ".safetensors"} {
		name = strings.TrimSuffix(name, ending)
	}
	return name
}
