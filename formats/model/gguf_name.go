package model

// GGUFName returns the name under which llama.cpp keeps a tensor of the graph:
// for what it measured of a model. It returns false for an architecture that it
// does not run, and for a tensor that it keeps fused with others, unless what
// they read is the same.
func (g *Graph) GGUFName(tensor string) (string, bool) {
	a, ok := byName(g.Arch)
	if !ok || a.llama == nil {
		return "", false
	}
	pattern, block, suffix := split(tensor)
	have := map[string]bool{}
	for _, w := range g.Weights() {
		have[w.Name] = true
	}
	for i := range a.ggufLinks {
		l := &a.ggufLinks[i]
		if l.partIndex(pattern) < 0 || l.perExpert() {
			continue
		}
		all := true
		for _, p := range l.parts {
			all = all && have[fill(p, block, 0)+suffix]
		}
		if all {
			return l.name(block, 0, suffix), true
		}
	}
	return "", false
}
