package pipeline

import (
	"github.com/nstf/nstf/formats/graph"
	"github.com/nstf/nstf/formats/model"
	"github.com/nstf/nstf/formats/plan"
	"github.com/nstf/nstf/formats/scheme"
	"github.com/nstf/nstf/quantize/encode"
	"github.com/nstf/nstf/quantize/fit"
)

// Chosen is what somebody chose without a planner: recipes by role.
type Chosen struct {
	Scheme string // of linears
	Embed  string // of the embedding table; "": Scheme
	Head   string // "": one bit more than a trellis code, else as encode.NewPolicy has it
}

// Plan returns the plan that this makes for a model. What a trellis code cannot
// hold gets a scheme of about its size, what no block divides the nearest that
// fits. Names that cannot be written are a formats.UnsupportedError.
func (c Chosen) Plan(m *model.Model) (*plan.Plan, error) {
	switch bits := trellis(c.Scheme).Bits; {
	case c.Head == "" && c.Embed != "" && m.Graph.Tied():
		c.Head = c.Embed
	case c.Head == "" && bits > 0:
		c.Head = plan.Trellis(min(bits+1, scheme.TCQMaxBits)).String()
	}
	policy, err := encode.NewPolicy(rounded(c.Scheme), rounded(c.Embed), rounded(c.Head))
	if err != nil {
		return nil, err
	}
	p := &plan.Plan{Version: plan.Version}
	for _, w := range m.Graph.Weights() {
		t := m.Tensor(w.Name)
		row := plan.Tensor{Name: w.Name, Role: string(w.Role), Shape: w.Shape, Bytes: t.Size()}
		if s := policy.Choose(m.Graph, &w); s != nil {
			n, k := t.Rows()
			code := c.trellis(m.Graph, &w)
			if code.Bits == 0 {
				code = plan.Code{Scheme: fit.Fallback(s, k)}
			}
			bytes := fit.Bytes(code, int(n), int(k))
			if !encode.Settled(&t, 8*float64(bytes)/float64(n*k), code.Bits == 0) {
				row.Recipe, row.Bytes = plan.Dense(code), bytes
			}
		}
		p.Tensors = append(p.Tensors, row)
	}
	return p, nil
}

// trellis returns the trellis code that a name stands for, none for other names.
func trellis(name string) plan.Code {
	if c, err := plan.ParseCode(name); err == nil && c.Bits > 0 {
		return c
	}
	return plan.Code{}
}

// trellis returns the trellis code that a matrix gets, none where it gets none.
func (c Chosen) trellis(g *graph.Graph, w *graph.Weight) plan.Code {
	name := c.Scheme
	switch {
	case w.Name == g.Head.Weight, w.Role.Base() == graph.RoleHead:
		name = c.Head
	case w.Role.Base() == graph.RoleEmbed && c.Embed != "":
		name = c.Embed
	}
	d := len(w.Shape)
	code := trellis(name)
	if code.Bits == 0 || !fit.Fits(code, int(w.Shape[d-2]), int(w.Shape[d-1])) {
		return plan.Code{}
	}
	return code
}

// rounded names the scheme for matrices that a trellis code cannot hold; other
// names stay.
func rounded(name string) string {
	switch bits := trellis(name).Bits; {
	case bits == 0:
		return name
	case bits <= 4:
		return "q4_k"
	case bits == 5:
		return "q5_k"
	}
	return "q6_k"
}
