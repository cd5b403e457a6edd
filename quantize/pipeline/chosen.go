package pipeline

import (
	"fmt"

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
	switch bits := plan.TrellisBits(c.Scheme); {
	case c.Head == "" && c.Embed != "" && m.Graph.Tied():
		c.Head = c.Embed
	case c.Head == "" && bits > 0:
		c.Head = fmt.Sprintf("tcq%d", min(bits+1, scheme.TCQMaxBits))
	}
	policy, err := encode.NewPolicy(rounded(c.Scheme), rounded(c.Embed), rounded(c.Head))
	if err != nil {
		return nil, err
	}
	p := &plan.Plan{Version: plan.Version}
	for _, w := range m.Graph.Weights() {
		t := m.Tensor(w.Name)
		row := plan.Tensor{Name: w.Name, Role: string(w.Role), Shape: w.Shape, Recipe: plan.Keep, Bytes: t.Size()}
		if s := policy.Choose(m.Graph, &w); s != nil {
			n, k := t.Rows()
			if row.Recipe = c.trellis(m.Graph, &w); row.Recipe == "" {
				row.Recipe = fit.Fallback(s, k).Name
			}
			row.Bytes = fit.Bytes(row.Recipe, int(n), int(k))
		}
		p.Tensors = append(p.Tensors, row)
	}
	return p, nil
}

// trellis returns the trellis code that a matrix gets, "" where it gets none.
func (c Chosen) trellis(g *model.Graph, w *model.Weight) string {
	name := c.Scheme
	switch {
	case w.Name == g.Head.Weight:
		name = c.Head
	case w.Role == model.RoleEmbed && c.Embed != "":
		name = c.Embed
	}
	d := len(w.Shape)
	if plan.TrellisBits(name) == 0 || !fit.Fits(name, int(w.Shape[d-2]), int(w.Shape[d-1])) {
		return ""
	}
	return name
}

// rounded names the scheme for matrices that a trellis code cannot hold; other
// names stay.
func rounded(name string) string {
	switch bits := plan.TrellisBits(name); {
	case bits == 0:
		return name
	case bits <= 4:
		return "q4_k"
	case bits == 5:
		return "q5_k"
	}
	return "q6_k"
}
