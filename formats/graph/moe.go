package graph

// A MoE routes each token to TopK of Experts feed-forward layers:
//
//	s      = score(Router x)                     of each expert
//	chosen = the TopK largest of s + SelectBias, among the TopGroups best groups
//	w[e]   = s[e], divided by max(their sum + Epsilon, Floor) where Normalize is set, times Scale and ExpertScale[e]
//	y      = sigmoid(SharedGate x)*Shared(x) + sum of w[e]*expert[e](x)
//	       = Shared(x) + LatentUp(sum of w[e]*expert[e](LatentDown x))   with both
//	       = Shared(x) + sum of expert[e](w[e]*x)                        with WeighInput
//
// Of equals the lower index is chosen. Groups are runs of Experts/Groups
// neighbours; a group is as good as the sum of its GroupBest largest s +
// SelectBias. Experts of other groups are not chosen; with ZeroMasked they
// stand for the choice with 0 instead. Without a SharedGate the shared layer's
// factor is 1. With a RouterNorm the router does not read x but RouterNorm of the
// block's hidden state, which x is a norm of. Expert matrices are stacked: tensors [Experts][Out][In].
//
// A shared layer has the roles of a dense layer's matrices: it sees every token,
// so its statistics, errors and costs are a dense layer's, and what is said of
// those by role holds for it; a rule for it alone names its tensors.
//
// Source: transformers 5.23, the routers of DeepSeek-V3, GLM-4-MoE and Nemotron-H
// (sigmoid, groups by their two best, 1e-20 added), DeepSeek-V2 (softmax, groups
// by their best), DeepSeek-V4 (root), MiniMax-M2 (sigmoid, nothing added), LFM2
// (1e-6 added), ERNIE 4.5 (softmax, a floor), AXK2 (masked by 0), Qwen3-Next (a
// gate of the shared layer), Nemotron-H (latent experts), gpt-oss (softmax over the chosen), Llama 4 (weights of the input) and Gemma 4 (a norm
// and a factor for each expert); llama.cpp's
// build_moe_ffn; groups as in DeepSeek-V3, arXiv 2412.19437.
type MoE struct {
	Act Activation `json:"act"`
	Gating
	Experts     int64   `json:"experts"`
	TopK        int64   `json:"top_k"`
	Score       Score   `json:"score,omitempty"`
	SelectBias  string  `json:"select_bias,omitempty"` // tensor [Experts]; counts for the choice alone
	Groups      int64   `json:"groups,omitempty"`      // 0 = one
	TopGroups   int64   `json:"top_groups,omitempty"`
	GroupBest   int64   `json:"group_best,omitempty"` // 1 or 2; 0 = 2
	ZeroMasked  bool    `json:"zero_masked,omitempty"`
	Normalize   bool    `json:"normalize,omitempty"`
	Epsilon     float32 `json:"epsilon,omitempty"`
	Floor       float32 `json:"floor,omitempty"`
	Scale       float32 `json:"scale,omitempty"`        // 0 = 1
	ExpertScale string  `json:"expert_scale,omitempty"` // tensor [Experts]
	WeighInput  bool    `json:"weigh_input,omitempty"`  // of experts, in place of what they give; not with LatentDown
	RouterNorm  *Norm   `json:"router_norm,omitempty"`
	Router      Linear  `json:"router"`                // [Experts][D]
	LatentDown  *Linear `json:"latent_down,omitempty"` // [L][D]; nil: L is D, and experts read x
	LatentUp    *Linear `json:"latent_up,omitempty"`   // [D][L]
	Gate        *Linear `json:"gate,omitempty"`        // [F][L] of an expert; nil: act(up(x)) alone
	Up          Linear  `json:"up"`                    // [F][L]
	Down        Linear  `json:"down"`                  // [L][F]
	Shared      *FFN    `json:"shared,omitempty"`
	SharedGate  *Linear `json:"shared_gate,omitempty"` // [1][D]
}

// A Score turns a router's logits into the scores of experts.
type Score string

// The scores.
const (
	ScoreSoftmax  Score = ""         // over all experts
	ScoreSigmoid  Score = "sigmoid"  // of each
	ScoreSelected Score = "selected" // the logits choose; s is a softmax over the chosen
	ScoreRoot     Score = "root"     // sqrt(log(1+exp(logit)))
)

// Factor returns the factor on the experts' weights.
func (m *MoE) Factor() float32 {
	if m.Scale == 0 {
		return 1
	}
	return m.Scale
}

// Best returns how many of its experts say how good a group is.
func (m *MoE) Best() int64 {
	if m.GroupBest == 0 {
		return 2
	}
	return m.GroupBest
}

// Routed reports whether a matrix is a stack of the experts that tokens are routed to: what
// a token reads little of, and what most of a mixture's bytes are.
func (m *MoE) Routed(l *Linear) bool { return l != nil && (l == m.Gate || l == &m.Up || l == &m.Down) }

// Latent returns the numbers of a row that experts read and give, of hidden states of a width.
func (m *MoE) Latent(width int64) int64 {
	if m.LatentDown != nil {
		return m.LatentDown.Out
	}
	return width
}

// parts lists what reads one input together: the layer's own, then what lies
// between its matrices.
func (m *MoE) parts(l *lister) {
	f, s, latent := m.Up.Out, m.Shared, m.Latent(l.width)
	l.norm("moe.router_norm", m.RouterNorm, l.width)
	l.linear("moe.router", &m.Router, l.width, m.Experts)
	l.linear("moe.shared_gate", m.SharedGate, l.width, 1)
	l.linear("moe.latent_down", m.LatentDown, l.width, latent)
	l.vector("moe.select_bias", m.SelectBias, m.Experts)
	l.vector("moe.expert_scale", m.ExpertScale, m.Experts)
	if s != nil {
		s.inner(l, "moe.shared")
	}
	l.stack("moe.gate", m.Gate, m.Experts, m.TopK, latent, f)
	l.stack("moe.up", &m.Up, m.Experts, m.TopK, latent, f)
	if s != nil {
		s.outer(l, "moe.shared")
	}
	l.stack("moe.down", &m.Down, m.Experts, m.TopK, f, latent)
	l.linear("moe.latent_up", m.LatentUp, latent, l.width)
}

func (m *MoE) check(c *checker) {
	c.activation("moe.act", m.Act)
	c.gating("moe", m.Gating, m.Act, m.Gate)
	c.within("moe.experts", m.Experts, 1<<16)
	c.within("moe.top_k", m.TopK, max(m.Experts, 1))
	c.within("moe.up", m.Up.Out, 1<<28)
	switch m.Score {
	case ScoreSoftmax, ScoreSigmoid, ScoreSelected, ScoreRoot:
	default:
		c.unsupported("moe.score", "score", string(m.Score))
	}
	if !(m.Epsilon >= 0) || !(m.Floor >= 0) || !(m.Scale >= 0) {
		c.fail("moe", "epsilon %v, floor %v and scale %v must not be negative", m.Epsilon, m.Floor, m.Scale)
	}
	c.finite("moe.epsilon", m.Epsilon)
	c.finite("moe.floor", m.Floor)
	c.finite("moe.scale", m.Scale)
	if m.Groups != 0 || m.TopGroups != 0 || m.GroupBest != 0 || m.ZeroMasked {
		m.checkGroups(c)
	}
	switch {
	case (m.LatentDown == nil) != (m.LatentUp == nil):
		c.fail("moe.latent_down", "and latent_up are one of each")
	case m.LatentDown != nil && m.SharedGate != nil:
		c.fail("moe.shared_gate", "stands beside latent_down")
	case m.LatentDown != nil && m.WeighInput:
		c.fail("moe.weigh_input", "stands beside latent_down")
	case m.LatentDown != nil:
		c.within("moe.latent_down", m.LatentDown.Out, 1<<24)
	}
	if m.Shared != nil {
		m.Shared.checkAt(c, "moe.shared")
	} else if m.SharedGate != nil {
		c.fail("moe.shared_gate", "there is no shared layer")
	}
}

func (m *MoE) checkGroups(c *checker) {
	c.within("moe.groups", m.Groups, max(m.Experts, 1))
	c.within("moe.top_groups", m.TopGroups, max(m.Groups, 1))
	c.within("moe.group_best", m.Best(), 2)
	if c.err != nil {
		return
	}
	if m.Experts%m.Groups != 0 || m.Experts/m.Groups < m.Best() {
		c.fail("moe.groups", "%d experts are not %d groups of %d or more", m.Experts, m.Groups, m.Best())
	} else if m.TopK > m.TopGroups*(m.Experts/m.Groups) {
		c.fail("moe.top_k", "%d experts are not in %d groups of %d", m.TopK, m.TopGroups, m.Experts/m.Groups)
	}
}
