package serve

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/inspect"
	"github.com/nstf/nstf/formats/ledger"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/runtime/device"
	"github.com/nstf/nstf/runtime/exec"
	"github.com/nstf/nstf/runtime/generate"
	"github.com/nstf/nstf/runtime/schedule"
)

// A Loader makes sources of a [Pool] of model files.
type Loader struct {
	// Exec is how models are executed.
	Exec exec.Options
	// Fit, where given, is asked before each loading for what depends on the model, and
	// changes a copy of Exec: its policy of attention, the device as it is now.
	Fit func(m *model.Model, o *exec.Options) error
	// Verify, where given, is asked whether a file is whole, before each loading.
	Verify func(path string) error
	// Disk keeps what was computed of prompts; nil: none does. Version is the program's:
	// another one computes them again.
	Disk    *schedule.Disk
	Version string
	Log     *slog.Logger // not nil
}

// mostAtOnce is how many conversations a GPU has places for where a place is little more than
// a list of tokens, and mostLists bounds the bytes of these lists.
const (
	mostAtOnce = 136
	mostLists  = 128 << 20
)

// places returns how many conversations of a model a GPU has places for; 0: what suits
// Sequences. Recurrent states, codes of keys and values, and the histories of a policy take
// memory of their own for each place.
func places(g *graph.Graph, o *exec.Options) int {
	if g.Recurrent() || o.Policy != nil || !slices.Contains([]string{"", "f16", "f32", "q8"}, o.KV) {
		return o.Places
	}
	context := o.Context
	if context == 0 {
		context = g.Context
	}
	lists := min(mostAtOnce, mostLists/(4*(max(context, 0)+1))) // of int32, one more than positions
	return max(o.Places, int(lists), device.UsualPlaces(o.Sequences))
}

// Source looks at a model, without loading it.
func (l *Loader) Source(path string) (Source, error) {
	m, err := checkpoint.Open(path)
	if err != nil {
		return Source{}, err
	}
	defer m.Close()
	info := describe(m, path)
	if info.Parallel = l.Exec.Sequences; l.Exec.Context > 0 {
		info.Context = l.Exec.Context
	}
	return Source{Info: info, Load: func() (*Model, func(), error) { return l.load(path) }}, nil
}

// load loads a model, and returns what unloads it.
func (l *Loader) load(path string) (_ *Model, end func(), err error) {
	if l.Verify != nil {
		if err := l.Verify(path); err != nil {
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
	on := l.Exec
	if l.Fit != nil {
		if err := l.Fit(m, &on); err != nil {
			return nil, nil, err
		}
	}
	on.Places = places(m.Graph, &on)
	ex, err := exec.New(m, on)
	if err != nil {
		return nil, nil, err
	}
	info := describe(m, path)
	info.Context, info.Parallel = ex.Context(), on.Sequences
	pooling, _, err := m.Pooling()
	if err != nil { // it answers all the same
		l.Log.Warn("embeddings are of the last token", "model", info.Name, "error", err.Error())
		pooling, err = model.PoolLast, nil
	}
	sampling, _ := generate.Recommended(m)
	o := schedule.Options{}
	if l.Disk != nil {
		if !ex.Storable() {
			l.Log.Warn("what a GPU remembers is not kept on the disk", "model", info.Name)
		}
		o.Disk, o.Identity = l.Disk, l.identity(path, &info)
	}
	s := schedule.New(ex, o)
	l.Log.Info("loaded", "model", info.Name, "arch", info.Arch, "bytes", info.Bytes, "context", info.Context, "pooling", string(pooling), "ms", time.Since(began).Milliseconds())
	return &Model{Info: info, Tokenizer: tok, Scheduler: s, Sampling: sampling, Pooling: pooling}, func() {
		s.Close()
		room := ex.Room() // all of it, unless something is lost
		l.Log.Info("unloaded", "model", info.Name, "pages_left", room.Pages-room.Free, "places_left", room.Places-room.Idle)
		ex.Close()
		m.Close()
	}, nil
}

// identity tells apart what the prompts of a model come to: by its files and their times,
// the program, and how it computes.
func (l *Loader) identity(path string, info *Info) string {
	id := fmt.Sprintf("%s\n%s\n%v %v", info.Digest, l.Version, l.Exec.Exact, l.Exec.KV)
	files, _ := os.ReadDir(path) // none of a model that is one file, whose time the digest has
	for _, e := range files {
		if i, err := e.Info(); err == nil {
			id += fmt.Sprintf("\n%q %d %d", e.Name(), i.Size(), i.ModTime().UnixNano())
		}
	}
	return id
}

// describe tells of a model before it is loaded.
func describe(m *model.Model, path string) Info {
	info := Info{Name: modelName(path), Path: path, Created: time.Now(), Arch: m.Graph.Arch, Context: m.Graph.Context, Ledger: accuracy(path)}
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
func accuracy(path string) []Fact {
	l, err := inspect.Ledger(path)
	if err != nil || l == nil {
		return nil
	}
	var facts []Fact
	add := func(name, format string, f *ledger.Figure, scale float64) {
		if f != nil {
			facts = append(facts, Fact{Name: name, Value: fmt.Sprintf(format, scale*f.Mean, scale*f.SE)})
		}
	}
	add("KL divergence from the original", "%.4f ± %.4f", l.Model.KLD, 1)
	add("perplexity", "%.3f ± %.3f", l.Model.Perplexity, 1)
	add("of the original", "%.3f ± %.3f", l.Model.Original, 1)
	add("same best guess", "%.1f ± %.1f %%", l.Model.Top1, 100)
	return facts
}
