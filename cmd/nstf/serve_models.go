package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/inspect"
	"github.com/nstf/nstf/formats/ledger"
	"github.com/nstf/nstf/formats/model"
	kernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/generate"
	"github.com/nstf/nstf/runtime/place"
	"github.com/nstf/nstf/runtime/schedule"
	"github.com/nstf/nstf/runtime/serve"
)

// mostModels bounds the models of a folder.
const mostModels = 256

// sources returns the models that are served, by the paths of a command line.
func (a *app) sources(ctx context.Context, paths []string, f *serveFlags) ([]serve.Source, error) {
	var all []serve.Source
	add := func(path string, lenient bool) error {
		s, err := a.source(ctx, path, f)
		if err != nil && lenient && ctx.Err() == nil {
			a.warn(fmt.Sprintf("%s is left out: %v", formats.Printable(path), err))
			return nil
		}
		if err != nil {
			return err
		}
		if slices.ContainsFunc(all, func(o serve.Source) bool { return o.Info.Name == s.Info.Name }) {
			return usagef("two models are called %s", s.Info.Name)
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
			if err := add(p, true); err != nil {
				return nil, err
			}
		}
	}
	if len(all) == 0 {
		return nil, formats.Errorf(paths[0], "", "there is no model in it")
	}
	return all, nameThem(all, f.alias)
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
	inside, err := modelsOf(path)
	if err != nil {
		return nil, err
	}
	if len(inside) > mostModels {
		return nil, formats.Errorf(path, "", "%d models, and %d at most are served", len(inside), mostModels)
	}
	return inside, nil
}

// configFile makes a directory one of Hugging Face's.
const configFile = "config.json"

func isFolder(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, configFile))
	return err == nil
}

// modelsOf returns what may be models in a folder, not nil; of a split file its first part.
func modelsOf(folder string) ([]string, error) {
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

// nameThem gives models further names: NAME of the first one, or NAME=MODEL.
func nameThem(all []serve.Source, aliases []string) error {
	for _, alias := range aliases {
		name, of, ok := strings.Cut(alias, "=")
		i := 0
		if ok {
			i = slices.IndexFunc(all, func(s serve.Source) bool {
				return s.Info.Name == of || s.Info.Path == of || filepath.Clean(s.Info.Path) == filepath.Clean(of)
			})
		}
		switch {
		case name == "" || i < 0:
			return usagef("--alias %s names no model: NAME, of the first one, or NAME=MODEL", alias)
		case slices.ContainsFunc(all, func(s serve.Source) bool { return s.Info.Name == name || slices.Contains(s.Info.Aliases, name) }):
			return usagef("--alias %s: there is a model of that name", alias)
		}
		all[i].Info.Aliases = append(all[i].Info.Aliases, name)
	}
	return nil
}

// source looks at a model, without loading it.
func (a *app) source(ctx context.Context, path string, f *serveFlags) (serve.Source, error) {
	m, err := checkpoint.Open(path)
	if err != nil {
		return serve.Source{}, err
	}
	defer m.Close()
	info := describe(m, path)
	if info.Parallel = f.parallel; f.context > 0 {
		info.Context = f.context
	}
	return serve.Source{Info: info, Load: func() (*serve.Model, func(), error) { return a.load(ctx, path, f) }}, nil
}

// usualMemory is how many bytes of weights are loaded at once where nobody says: on the
// processor half of the machine's memory, on GPUs as many as their memory takes.
func (f *serveFlags) usualMemory() int64 {
	if f.device.named() {
		return 0
	}
	m := place.Discover(kernels.Best())
	return m.Memory / 2
}

// load loads a model, and returns what unloads it.
func (a *app) load(ctx context.Context, path string, f *serveFlags) (_ *serve.Model, end func(), err error) {
	if f.verify {
		if err := a.verifyFirst(ctx, path); err != nil {
			return nil, nil, err
		}
	}
	began := time.Now()
	m, err := checkpoint.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	tok, err := m.Tokenizer()
	if err != nil {
		return nil, nil, err
	}
	on := a.device(&f.device)
	on.Warm = true
	var policy *device.Policy // of this model
	if f.policy != nil {
		own := *f.policy
		policy = &own
	}
	if err := f.attention.fit(policy, m); err != nil {
		return nil, nil, err
	}
	kv, chose, err := keptBy(m, f.kv, f.exact)
	if err != nil {
		return nil, nil, err
	}
	if chose != nil {
		f.Log.Info(describeKept(chose), "model", path)
	}
	ex, err := exec.New(m, exec.Options{Threads: f.threads, Context: f.context, Exact: f.exact, KV: kv, Policy: policy, Sequences: f.parallel, Device: on})
	if err != nil {
		return nil, nil, err
	}
	info := describe(m, path)
	info.Context, info.Parallel = ex.Context(), f.parallel
	pooling, _, err := m.Pooling()
	if err != nil { // it answers all the same
		f.Log.Warn("embeddings are of the last token", "model", info.Name, "error", err.Error())
		pooling, err = model.PoolLast, nil
	}
	sampling, _ := generate.Recommended(m)
	o := schedule.Options{}
	if f.disk != nil {
		if !ex.Storable() {
			f.Log.Warn("what a GPU remembers is not kept on the disk", "model", info.Name)
		}
		o.Disk, o.Identity = f.disk, identity(path, &info, f)
	}
	s := schedule.New(ex, o)
	f.Log.Info("loaded", "model", info.Name, "arch", info.Arch, "bytes", info.Bytes, "context", info.Context, "pooling", string(pooling), "ms", time.Since(began).Milliseconds())
	return &serve.Model{Info: info, Tokenizer: tok, Scheduler: s, Sampling: sampling, Pooling: pooling}, func() {
		s.Close()
		room := ex.Room() // all of it, unless something is lost
		f.Log.Info("unloaded", "model", info.Name, "pages_left", room.Pages-room.Free, "places_left", room.Places-room.Idle)
		ex.Close()
		m.Close()
	}, nil
}

// identity tells apart what the prompts of a model come to: by its files and their times,
// the program, and how it computes.
func identity(path string, info *serve.Info, f *serveFlags) string {
	id := fmt.Sprintf("%s\n%s\n%v %v", info.Digest, f.Version, f.exact, f.kv)
	files, _ := os.ReadDir(path) // none of a model that is one file, whose time the digest has
	for _, e := range files {
		if i, err := e.Info(); err == nil {
			id += fmt.Sprintf("\n%q %d %d", e.Name(), i.Size(), i.ModTime().UnixNano())
		}
	}
	return id
}

// describe tells of a model before it is loaded.
func describe(m *model.Model, path string) serve.Info {
	info := serve.Info{Name: modelName(path), Path: path, Created: time.Now(), Arch: m.Graph.Arch, Context: m.Graph.Context, Ledger: accuracy(path)}
	if i, err := os.Stat(path); err == nil {
		info.Created = i.ModTime()
	}
	sum := sha256.New()
	for _, file := range m.Files {
		fmt.Fprintln(sum, file.Name, len(file.Data))
		sum.Write(file.Data)
	}
	fmt.Fprintln(sum, info.Created.UnixNano())
	for _, t := range m.Tensors() {
		info.Parameters += t.Elements()
		info.Bytes += t.Size()
		fmt.Fprintln(sum, t.Name, t.Scheme, t.Shape)
	}
	info.Digest = hex.EncodeToString(sum.Sum(nil))
	if info.Parameters > 0 {
		info.Bits = 8 * float64(info.Bytes) / float64(info.Parameters)
	}
	return info
}

// accuracy returns what a package's ledger says of it as a whole.
func accuracy(path string) []serve.Fact {
	l, err := inspect.Ledger(path)
	if err != nil || l == nil {
		return nil
	}
	var facts []serve.Fact
	add := func(name, format string, f *ledger.Figure, scale float64) {
		if f != nil {
			facts = append(facts, serve.Fact{Name: name, Value: fmt.Sprintf(format, scale*f.Mean, scale*f.SE)})
		}
	}
	add("KL divergence from the original", "%.4f ± %.4f", l.Model.KLD, 1)
	add("perplexity", "%.3f ± %.3f", l.Model.Perplexity, 1)
	add("of the original", "%.3f ± %.3f", l.Model.Original, 1)
	add("same best guess", "%.1f ± %.1f %%", l.Model.Top1, 100)
	return facts
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
