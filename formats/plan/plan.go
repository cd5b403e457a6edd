// Package plan reads and writes plans: files that say how each tensor of a
// model is to be stored, what that is predicted to cost, and what would have
// come next.
//
// In: JSON, made by quantize/plan or edited by hand. Out: a [Plan]. A package
// carries the plan that made it as nstf/plan.json. docs/planning.md describes
// the fields.
//
// Reading is strict: an unknown field, one that comes twice, one that is
// missing, a recipe that is none, or a number that is not finite is a
// [formats.FormatError] with the file, the field and the byte's offset. What
// is written has one order, one line for each tensor, and figures of six
// digits, so that the same plan gives the same bytes and two plans can be
// compared line by line.
//
// Compatibility: fields may be added, never renamed or given another meaning;
// a plan of a newer version is refused by that number.
package plan

import (
	"slices"

	"github.com/nstf/nstf/formats"
	"github.com/nstf/nstf/formats/graph"
)

// Version is what this program writes, and the newest that it reads.
const Version = 1

// A Plan says how each tensor of a model is stored.
type Plan struct {
	Version   int64     `json:"version"`
	Source    Source    `json:"source"`
	Budget    Budget    `json:"budget"`
	Seed      int64     `json:"seed"`   // of rotations
	Effort    int64     `json:"effort"` // of the search for codes; 0: the default
	Predicted Predicted `json:"predicted"`
	Tensors   []Tensor  `json:"tensors"` // all of the graph's, in its order
}

// A Source says what a plan was made from. Names are without folders, hashes
// 64 hexadecimal digits or "" where nothing was hashed.
type Source struct {
	Model string `json:"model"`
	Hash  string `json:"hash"`  // of the model, as its statistics give it
	Stats string `json:"stats"` // name of the statistics, or of the text that they were measured on
}

// A Budget is what a plan was to keep; of Bytes, BPW and KLD one is set, none
// in a plan that somebody else chose.
type Budget struct {
	Bytes   int64    `json:"bytes,omitempty"`   // of the whole package
	BPW     float64  `json:"bpw,omitempty"`     // bits per weight of the graph's tensors
	KLD     float64  `json:"kld,omitempty"`     // mean KL divergence in nats
	Device  string   `json:"device,omitempty"`  // whose time per token was minimised, "" for none
	Schemes []string `json:"schemes,omitempty"` // recipes that were considered
	Keep    []string `json:"keep,omitempty"`    // overrides "regex=recipe"
}

// Predicted is what a plan is expected to come to.
type Predicted struct {
	KLD     float64 `json:"kld"`   // mean KL divergence in nats, 0 where nothing is known of it
	Bytes   int64   `json:"bytes"` // of the whole package
	BPW     float64 `json:"bpw"`   // bits per weight of the graph's tensors
	Seconds float64 `json:"seconds_per_token,omitempty"`
}

// A Tensor is one tensor's choice.
type Tensor struct {
	Name     string       `json:"name"`
	Role     string       `json:"role"`
	Shape    []int64      `json:"shape"`
	Recipe   Recipe       `json:"recipe"`
	Bytes    int64        `json:"bytes"` // of all parts, padding not included
	Error    float64      `json:"error"` // tr(E H E') / tr(W H W')
	Loss     float64      `json:"loss"`  // share of the predicted KL divergence
	RunnerUp *Alternative `json:"runner_up,omitempty"`
}

// An Alternative is a choice that was not taken.
type Alternative struct {
	Recipe Recipe  `json:"recipe"`
	Bytes  int64   `json:"bytes"`
	Error  float64 `json:"error"`
	Loss   float64 `json:"loss"`
}

// Elements returns the number of weights.
func (t *Tensor) Elements() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Tensor returns the choice for a name.
func (p *Plan) Tensor(name string) (*Tensor, bool) {
	for i := range p.Tensors {
		if p.Tensors[i].Name == name {
			return &p.Tensors[i], true
		}
	}
	return nil, false
}

// Check says whether a plan is one for this graph: it names every tensor of
// it, in its shape, and none else.
func (p *Plan) Check(file string, g *graph.Graph) error {
	shapes := make(map[string][]int64, len(p.Tensors))
	for i := range p.Tensors {
		shapes[p.Tensors[i].Name] = p.Tensors[i].Shape
	}
	for _, w := range g.Weights() {
		shape, ok := shapes[w.Name]
		if !ok {
			return formats.Errorf(file, w.Name, "the model's tensor is not in the plan: add it, with the recipe %q to leave it as it is", keep)
		}
		if !slices.Equal(shape, w.Shape) {
			return formats.Errorf(file, w.Name, "shape is %v in the plan, %v in the model: the plan is for another model", shape, w.Shape)
		}
		delete(shapes, w.Name)
	}
	for i := range p.Tensors {
		if _, left := shapes[p.Tensors[i].Name]; left {
			return formats.Errorf(file, p.Tensors[i].Name, "the model has no such tensor: the plan is for another model")
		}
	}
	return nil
}
