package graph

import (
	"fmt"
	"math"
	"strings"
)

// A Mamba is the second kind of selective state space (Mamba 2): a recurrence whose
// memory is one matrix S [State][HeadDim] for each head, and the last inputs of a
// causal convolution over every channel. At each position, with mixed = XBC h of C
// channels (x of all heads, b of all groups, c of all groups):
//
//	m[i]  = silu(ConvBias[i] + sum over j < Kernel of Conv[i][j] * mixed[i] of the position Kernel-1-j before)
//	step  = min(max(softplus(DT h + DTBias), MinStep), MaxStep)     of each head
//	S     = exp(step*A)*S + b (step*x)ᵀ                             x, b, c in m
//	o     = Sᵀc + Skip*x
//	y     = Out(Norm(o * silu(Z h)))                                Norm over each of Groups runs of the heads' numbers
//
// A is Decay, or -exp(Decay) with DecayLog. Positions before the first have mixed =
// 0, and S begins as 0. Head h reads b and c of group h/(Heads/Groups).
//
// Source: transformers 5.23, GraniteMoeHybridMambaLayer and NemotronHMamba2Mixer;
// arXiv 2405.21060.
type Mamba struct {
	Heads    int64   `json:"heads"`
	HeadDim  int64   `json:"head_dim"`
	Groups   int64   `json:"groups"`
	State    int64   `json:"state"`  // numbers of b and of c
	Kernel   int64   `json:"kernel"` // positions that the convolution sees, the own included
	MinStep  float32 `json:"min_step,omitempty"`
	MaxStep  float32 `json:"max_step,omitempty"` // 0: no limit
	DecayLog bool    `json:"decay_log,omitempty"`
	Conv     string  `json:"conv"`                // tensor [C][Kernel]
	ConvBias string  `json:"conv_bias,omitempty"` // tensor [C]
	Decay    string  `json:"decay"`               // tensor [Heads]
	DTBias   string  `json:"dt_bias"`             // tensor [Heads]
	Skip     string  `json:"skip"`                // tensor [Heads]
	Norm     *Norm   `json:"norm,omitempty"`      // of Heads*HeadDim numbers
	Z        Linear  `json:"z"`                   // [Heads*HeadDim][D]
	XBC      Linear  `json:"xbc"`                 // [C][D]
	DT       Linear  `json:"dt"`                  // [Heads][D]
	Out      Linear  `json:"out"`                 // [D][Heads*HeadDim]
}

// Values returns the numbers of all heads.
func (n *Mamba) Values() int64 { return n.Heads * n.HeadDim }

// Channels returns C, the numbers that go through the convolution.
func (n *Mamba) Channels() int64 { return n.Values() + 2*n.Groups*n.State }

// Columns returns the numbers of the convolution's memory, [Kernel-1][C], the
// oldest position first.
func (n *Mamba) Columns() int64 { return (n.Kernel - 1) * n.Channels() }

// Memory returns the numbers that a sequence remembers: the columns, then S of
// each head.
func (n *Mamba) Memory() int64 { return n.Columns() + n.Values()*n.State }

// Longest returns the largest step.
func (n *Mamba) Longest() float32 {
	if n.MaxStep == 0 {
		return float32(math.Inf(1))
	}
	return n.MaxStep
}

// CheckSizes reports the first size that no such layer has.
func (n *Mamba) CheckSizes() error {
	err := checkSizes(size{"heads", n.Heads, 1 << 16}, size{"head_dim", n.HeadDim, maxStateDim}, size{"groups", n.Groups, 1 << 16},
		size{"state", n.State, maxStateDim}, size{"kernel", n.Kernel, maxKernel})
	if err == nil && n.Heads%n.Groups != 0 {
		err = fmt.Errorf("heads: %d is not a multiple of %d groups", n.Heads, n.Groups)
	}
	return err
}

func (n *Mamba) parts(l *lister) {
	c, v := n.Channels(), n.Values()
	l.linear("mamba.z", &n.Z, l.width, v)
	l.linear("mamba.xbc", &n.XBC, l.width, c)
	l.linear("mamba.dt", &n.DT, l.width, n.Heads)
	l.table("mamba.conv", n.Conv, c, n.Kernel)
	l.vector("mamba.conv_bias", n.ConvBias, c)
	l.vector("mamba.decay", n.Decay, n.Heads)
	l.vector("mamba.dt_bias", n.DTBias, n.Heads)
	l.vector("mamba.skip", n.Skip, n.Heads)
	l.norm("mamba.norm", n.Norm, v)
	l.linear("mamba.out", &n.Out, v, l.width)
}

func (n *Mamba) check(c *checker) {
	if err := n.CheckSizes(); err != nil {
		name, what, _ := strings.Cut(err.Error(), ": ")
		c.fail("mamba."+name, "%s", what)
		return
	}
	c.finite("mamba.min_step", n.MinStep)
	c.finite("mamba.max_step", n.MaxStep)
	if !(n.MinStep >= 0) || !(n.Longest() >= n.MinStep) {
		c.fail("mamba.min_step", "%v and max_step %v are no range of steps", n.MinStep, n.MaxStep)
	}
	c.name("mamba.conv", n.Conv)
	c.name("mamba.decay", n.Decay)
	c.name("mamba.dt_bias", n.DTBias)
	c.name("mamba.skip", n.Skip)
	if n.Norm != nil && n.Norm.Kind != RMSNorm {
		c.unsupported("mamba.norm", "norm", string(n.Norm.Kind))
	}
}
