package driver

// Native reports whether a replay is one call of the runtime.
func (g *Graph) Native() bool { return g.exec != 0 }
