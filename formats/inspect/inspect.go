// Package inspect says what lies in a model file without reading its tensors.
//
// In: a path to anything that formats/checkpoint opens, or to a GGUF, safetensors
// file or package of an architecture that nobody here knows. Out: a [Report]
// of plain data, for printing or JSON: architecture, sizes per role and per
// scheme, tensors, attached files.
//
// Compatibility: JSON keys may be added, never renamed or given another
// meaning.
package inspect

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"slices"
	"sort"
	"strings"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/checkpoint"
	"github.com/nstf/nstf/formats/form"
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/nstf"
)

// A Report describes a model.
type Report struct {
	Path         string       `json:"path"`
	Kind         string       `json:"kind"` // "nstf", "gguf" or "safetensors"
	Architecture string       `json:"architecture"`
	Known        bool         `json:"known"`             // the architecture has a graph; sizes below then count its tensors by role
	Note         string       `json:"note,omitempty"`    // why not, where it has none, or why it cannot be used
	Unknown      []string     `json:"unknown,omitempty"` // what of a package only newer programs decode, such as `scheme "q9"`
	Quantized    string       `json:"quantized,omitempty"`
	Params       int64        `json:"parameters"` // numbers in all tensors, those that pass through included
	Bytes        int64        `json:"tensor_bytes"`
	FileBytes    int64        `json:"file_bytes"` // of all files that hold tensors
	BPW          float64      `json:"bpw"`        // bits per weight of all tensors, scales included
	Shape        *Shape       `json:"shape,omitempty"`
	Roles        []Group      `json:"roles"`
	Schemes      []Group      `json:"schemes"`
	Tensors      []Tensor     `json:"tensors"`
	Files        []File       `json:"files"`
	Provenance   *Provenance  `json:"provenance,omitempty"` // packages only
	tensors      []roleTensor // in the order of the file or the graph
}

// A Shape is a graph's sizes.
type Shape struct {
	Layers  int   `json:"layers"`
	Width   int64 `json:"width"`
	Vocab   int64 `json:"vocab"`
	Context int64 `json:"context"`
	Heads   int64 `json:"heads"`
	KVHeads int64 `json:"kv_heads"`
	HeadDim int64 `json:"head_dim"`
	Latent  int64 `json:"latent_dim,omitempty"`   // numbers that attention over latents remembers of a position, for all heads
	Delta   int   `json:"delta_layers,omitempty"` // that are gated delta nets, without these heads
	Mamba   int   `json:"mamba_layers,omitempty"` // that are state spaces, in the same way
	Conv    int   `json:"shortconv_layers,omitempty"`
	Experts int64 `json:"experts,omitempty"` // of the first block that has some
	Used    int64 `json:"experts_used,omitempty"`
	Shared  int64 `json:"experts_shared_width,omitempty"` // of the layer beside them that all tokens go through
	Tied    bool  `json:"tied"`                           // the head reads the embedding table
}

// A Group is tensors that have a role or a scheme in common.
type Group struct {
	Name    string   `json:"name"`
	Tensors int      `json:"tensors"`
	Params  int64    `json:"parameters"`
	Bytes   int64    `json:"bytes"`
	BPW     float64  `json:"bpw"`
	Schemes []string `json:"schemes,omitempty"` // of a role, by name
}

// A Tensor is one stored tensor.
type Tensor struct {
	Name   string           `json:"name"`
	Role   string           `json:"role"`
	Shape  []int64          `json:"shape"`
	Scheme string           `json:"scheme"`
	Params map[string]int64 `json:"scheme_params,omitempty"`
	Bytes  int64            `json:"bytes"`
	BPW    float64          `json:"bpw"`
	// Unknown says what keeps this program from decoding the tensor.
	Unknown string `json:"unknown,omitempty"`
}

// A File is an attached file.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	Stored int64  `json:"stored_bytes,omitempty"` // in a package
}

// Provenance says how a package was made.
type Provenance struct {
	Tool    string   `json:"tool"`
	Flags   []string `json:"flags"`
	Sources []Source `json:"sources"`
	Notes   []string `json:"notes"`
	Root    string   `json:"root"` // BLAKE3 that names the whole content
}

// A Source is a file that a package was made from.
type Source struct {
	Role  string `json:"role"`
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	Hash  string `json:"blake3"`
}

// A roleTensor is a tensor with what the graph uses it for.
type roleTensor struct {
	formats.Tensor
	role    graph.Role
	unknown string
}

// Open describes the model at path. A container whose architecture is
// unknown, or that is no whole model (a vocabulary, a part of one), is
// described as it is stored, and so is a package of schemes that only a newer
// program decodes. Errors are those of [checkpoint.Open].
func Open(path string) (*Report, error) {
	m, err := checkpoint.Open(path)
	if err != nil {
		r, rawErr := openRaw(path, err)
		if rawErr != nil {
			return nil, rawErr
		}
		return r, nil
	}
	defer m.Close()
	return fromModel(m)
}

func fromModel(m *model.Model) (*Report, error) {
	g := m.Graph
	r := &Report{Path: m.Path, Kind: string(m.Kind), Architecture: g.Arch, Known: true, Quantized: m.Quantized, Shape: shape(g), Files: []File{}}
	for _, w := range g.Weights() {
		r.tensors = append(r.tensors, roleTensor{Tensor: m.Tensor(w.Name), role: w.Role})
	}
	for _, t := range m.Passthrough {
		r.tensors = append(r.tensors, roleTensor{Tensor: t, role: graph.RoleOther})
	}
	for _, f := range m.Files {
		r.Files = append(r.Files, File{Name: f.Name, Bytes: int64(len(f.Data))})
	}
	if m.Kind == model.KindNSTF {
		if err := r.addPackage(m.Path); err != nil {
			return nil, err
		}
	}
	return r, r.sum(m.Sources())
}

func shape(g *graph.Graph) *Shape {
	s := &Shape{Layers: len(g.Blocks), Width: g.Width, Vocab: g.Vocab, Context: g.Context, Tied: g.Tied()}
	for i := range g.Blocks {
		if a := g.Blocks[i].Attn; a != nil && s.Heads == 0 {
			s.Heads, s.KVHeads, s.HeadDim = a.Heads, a.KVHeads, a.HeadDim
		}
		if a := g.Blocks[i].Latent; a != nil && s.Heads == 0 {
			s.Heads, s.KVHeads, s.HeadDim, s.Latent = a.Heads, 1, a.QueryDim(), a.KeyDim()
		}
		if g.Blocks[i].Delta != nil {
			s.Delta++
		}
		if g.Blocks[i].Mamba != nil {
			s.Mamba++
		}
		if g.Blocks[i].ShortConv != nil {
			s.Conv++
		}
	}
	for i := range g.Blocks {
		if m := g.Blocks[i].MoE; m != nil {
			if s.Experts, s.Used = m.Experts, m.TopK; m.Shared != nil {
				s.Shared = m.Shared.Up.Out
			}
			break
		}
	}
	return s
}

// addPackage adds what only a package knows.
func (r *Report) addPackage(path string) error {
	p, err := nstf.Open(path)
	if err != nil {
		return err
	}
	defer p.Close()
	r.readPackage(p)
	return nil
}

func (r *Report) readPackage(p *nstf.Package) {
	r.Files = []File{}
	for _, f := range p.Files() {
		r.Files = append(r.Files, File{Name: f.Name, Bytes: f.Size, Stored: f.Stored})
	}
	from := p.Provenance()
	r.Provenance = &Provenance{Tool: from.Tool, Flags: append([]string{}, from.Flags...), Sources: []Source{},
		Notes: append([]string{}, from.Notes...), Root: p.Root().String()}
	for _, s := range from.Sources {
		r.Provenance.Sources = append(r.Provenance.Sources, Source{s.Role, s.Name, s.Size, s.Hash.String()})
	}
}

// sum fills in everything that follows from the tensors and the files that
// hold them.
func (r *Report) sum(paths []string) error {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		r.FileBytes += info.Size()
	}
	roles, schemes := map[string]*Group{}, map[string]*Group{}
	var roleOrder []string
	r.Tensors = []Tensor{}
	for _, t := range r.tensors {
		n, size := t.Elements(), t.Size()
		role := string(t.role)
		if roles[role] == nil {
			roleOrder = append(roleOrder, role)
		}
		how := stored(&t)
		add(roles, role, n, size, how)
		add(schemes, how, n, size, "")
		r.Params = plus(r.Params, n)
		r.Bytes += size
		r.Tensors = append(r.Tensors, Tensor{t.Name, role, t.Shape, how, t.Params, size, bpw(size, n), t.unknown})
	}
	r.BPW = bpw(r.Bytes, r.Params)
	r.Roles, r.Schemes = []Group{}, []Group{}
	for _, name := range roleOrder {
		r.Roles = append(r.Roles, *roles[name])
	}
	for _, g := range schemes {
		r.Schemes = append(r.Schemes, *g)
	}
	sort.Slice(r.Schemes, func(i, j int) bool {
		a, b := &r.Schemes[i], &r.Schemes[j]
		return a.Bytes > b.Bytes || a.Bytes == b.Bytes && a.Name < b.Name
	})
	return nil
}

// stored says in one word how a tensor is coded.
func stored(t *roleTensor) string {
	switch {
	case t.Form == "":
		return t.Scheme
	case t.unknown == "":
		return form.Describe(&t.Tensor)
	}
	var schemes []string
	for _, f := range t.Factors {
		if !slices.Contains(schemes, f.Scheme) {
			schemes = append(schemes, f.Scheme)
		}
	}
	return t.Form + ":" + strings.Join(schemes, ",")
}

// plus adds numbers of parameters. A tensor of an unknown scheme may claim 2^63 of them
// in no bytes.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func add(groups map[string]*Group, name string, n, size int64, scheme string) {
	g := groups[name]
	if g == nil {
		g = &Group{Name: name}
		groups[name] = g
	}
	g.Tensors++
	g.Params = plus(g.Params, n)
	g.Bytes += size
	g.BPW = bpw(g.Bytes, g.Params)
	if i := sort.SearchStrings(g.Schemes, scheme); scheme != "" && (i == len(g.Schemes) || g.Schemes[i] != scheme) {
		g.Schemes = append(g.Schemes[:i], append([]string{scheme}, g.Schemes[i:]...)...)
	}
}

func bpw(size, n int64) float64 {
	if n == 0 {
		return 0
	}
	return 8 * float64(size) / float64(n)
}

// rawReason says why a container is shown as it is stored, false where the
// failure is its own: damage is not to be shown as if all were well.
func rawReason(path string, err error) (string, bool) {
	var unsupported *formats.UnsupportedError
	switch {
	case errors.As(err, &unsupported):
		return unsupported.Error(), true
	case errors.Is(err, fs.ErrNotExist):
		if _, statErr := os.Stat(path); statErr == nil {
			return "no config.json beside it", true
		}
	}
	return "", false
}
