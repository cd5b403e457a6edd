package main

import (
	"context"
	"errors"

	"github.com/nstf/nstf/formats/model"
	kernels "github.com/nstf/nstf/kernels/cpu"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/place"
	"github.com/nstf/nstf/runtime/serve"
)

// configFile makes a directory one of Hugging Face's.
const configFile = "config.json"

// sources returns the models that are served, by the paths of a command line.
func (a *app) sources(ctx context.Context, paths []string, f *serveFlags) ([]serve.Source, error) {
	l := serve.Loader{Exec: exec.Options{Threads: f.threads, Context: f.context, Exact: f.exact, KV: f.kv, Sequences: f.parallel}, Disk: f.disk, Version: f.Version, Log: f.Log}
	l.Fit = func(m *model.Model, o *exec.Options) error {
		kv, chose, err := keptBy(m, f.kv, f.exact)
		if err != nil {
			return err
		}
		if chose != nil {
			f.Log.Info(describeKept(chose), "model", m.Path)
		}
		o.KV = kv
		o.Device = f.attention.on(a.device(&f.device))
		o.Device.Warm = true
		if f.policy != nil {
			own := *f.policy // of this model
			o.Policy = &own
		}
		return f.attention.fit(o.Policy, m)
	}
	if f.verify {
		l.Verify = func(path string) error { return a.verifyFirst(ctx, path) }
	}
	all, err := l.Sources(ctx, paths)
	if err == nil {
		err = serve.Alias(all, f.alias)
	}
	var names serve.NameError
	if errors.As(err, &names) {
		err = &usageError{err: err}
	}
	return all, err
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
