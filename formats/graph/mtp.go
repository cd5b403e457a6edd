package graph

import (
	"fmt"
	"strings"
)

// An MTP is a module of multi-token prediction: what guesses the token behind the
// next one from the model's own hidden states. The logits do not depend on it, so
// that a runtime may leave it out. With h the hidden state of position p that the
// module before has left, Graph.Norm's output for the first, and token the one that
// far ahead:
//
//	z = Project([EmbedNorm(Table[token]*scale); HiddenNorm(h)])
//	h = Norm(block(z))
//	guess = Head(h)
//
// Its matrices have roles that begin with "mtp_", so that they are quantized apart:
// no calibration text shows what they read.
//
// Source: arXiv 2412.19437, section 2.2; llama.cpp's graph_mtp of glm4-moe.cpp and
// qwen35.cpp, which take h behind the last norm and put the embedding first.
type MTP struct {
	EmbedNorm  *Norm   `json:"embed_norm"`
	HiddenNorm *Norm   `json:"hidden_norm"`
	Project    Linear  `json:"project"` // [D][2D]
	Block      Block   `json:"block"`
	Norm       *Norm   `json:"norm,omitempty"`  // nil: Graph.Norm
	Table      string  `json:"table,omitempty"` // tensor [Vocab][D]; "": the model's
	Head       *Linear `json:"head,omitempty"`  // [Vocab][D]; nil: the model's
}

// mtpPrefix is what the roles of such a module's matrices begin with.
const mtpPrefix = "mtp_"

// MTP returns the role of a matrix that does in a module of multi-token prediction
// what r does in the model.
func (r Role) MTP() Role { return mtpPrefix + r }

// IsMTP reports whether a role is one of multi-token prediction.
func (r Role) IsMTP() bool { return strings.HasPrefix(string(r), mtpPrefix) }

// Base returns the role of the model's that a role of multi-token prediction is
// named by, and any other role as it is.
func (r Role) Base() Role { return Role(strings.TrimPrefix(string(r), mtpPrefix)) }

// stacked reports whether a role is one of a stack: of a mixture's, or of latent
// attention's.
func (r Role) stacked() bool {
	switch r.Base() {
	case RoleXGate, RoleXUp, RoleXDown, RoleKB, RoleVB:
		return true
	}
	return false
}

// Parts lists what a module reads, in the order of execution, its own embedding
// table apart.
func (m *MTP) Parts(width, vocab int64) []Part {
	l := &lister{width: width}
	l.norm("embed_norm", m.EmbedNorm, width)
	l.norm("hidden_norm", m.HiddenNorm, width)
	l.linear("project", &m.Project, 2*width, width)
	l.out = append(l.out, m.Block.Parts(width)...)
	l.norm("norm", m.Norm, width)
	l.linear("head", m.Head, width, vocab)
	return l.out
}

// Linears returns a module's matrices in the order of execution.
func (m *MTP) Linears() []*Linear {
	var out []*Linear
	for _, p := range m.Parts(0, 0) {
		if p.Linear != nil {
			out = append(out, p.Linear)
		}
	}
	return out
}

// modules checks the modules of multi-token prediction.
func (c *checker) modules() {
	if n := len(c.g.MTP); n > 0 {
		c.within("mtp", int64(n), MaxBlocks)
	}
	for i := range c.g.MTP {
		m := &c.g.MTP[i]
		c.at, c.mtp = fmt.Sprintf("mtp[%d].", i), true
		if m.EmbedNorm == nil || m.HiddenNorm == nil {
			c.fail("embed_norm", "and hidden_norm are one of each")
		}
		c.at += "block."
		c.checkBlock(&m.Block)
		if c.at = strings.TrimSuffix(c.at, "block."); c.err == nil {
			c.parts(m.Parts(c.g.Width, c.g.Vocab))
		}
	}
	c.at, c.mtp = "", false
}
