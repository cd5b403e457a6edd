package arch

import "github.com/nstf/nstf/formats/graph"

// GGUFName returns the name under which llama.cpp keeps a tensor of the graph:
// for what it measured of a model. It returns false for an architecture that it
// does not run, and for a tensor that it keeps fused with others, unless what
// they read is the same.
func GGUFName(g *graph.Graph, tensor string) (string, bool) {
	a, ok := ByName(g.Arch)
	if !ok || a.llama == nil {
		return "", false
	}
	pattern, block, suffix := Split(tensor)
	have := map[string]bool{}
	for _, w := range g.Weights() {
		have[w.Name] = true
	}
	links := Placed(a.ggufLinks, g)
	for i := range links {
		l := &links[i]
		if l.Index(pattern) < 0 || l.PerExpert() || !l.Holds(g) {
			continue
		}
		if l.Columns != nil && l.Columns(g, block) != nil {
			return "", false // it reads the same numbers in another order
		}
		all := true
		for _, p := range l.Parts {
			all = all && have[Fill(p, block, 0)+suffix]
		}
		if all {
			return l.Name(block, 0, suffix), true
		}
	}
	return "", false
}
