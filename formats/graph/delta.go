package graph

import (
	"fmt"
	"strings"
)

// A Delta is a gated delta net: linear attention whose memory is one matrix S
// [KeyDim][ValueDim] for each value head, and the last inputs of a causal
// convolution over every channel. At each position, with mixed = QKV x of C
// channels (queries of all key heads, keys of all, values of all heads):
//
//	c[i]   = silu(sum over j < Kernel of Conv[i][j] * mixed[i] of the position Kernel-1-j before)
//	q, k   = a/sqrt(sum of a² + Eps) of each head's queries and keys in c; q also / sqrt(KeyDim)
//	beta   = sigmoid(Beta x), g = A * softplus(Alpha a + DTBias)  of each head
//	S      = exp(g)*S
//	S      = S + k (beta*(v - Sᵀk))ᵀ
//	y      = Out(Norm(Sᵀq) * silu(Z z))   Norm over each head alone
//
// A is Decay, or -exp(Decay) with DecayLog. a is AlphaA x and z is ZA x, or x without
// them. Where it is ByChannel, g has a number for each row of a head's S, which is
// multiplied with its own. Where it is SigmoidGate, sigmoid stands for silu behind Norm.
// Positions before the first have mixed = 0, and S begins as 0. Head h reads the queries
// and keys of key head h/(Heads/KeyHeads), or of h mod KeyHeads where it is Tiled.
//
// Source: transformers 5.23, Qwen3_5GatedDeltaNet, KimiLinearDeltaAttention and
// torch_recurrent_gated_delta_rule; Gated Delta Networks, arXiv 2412.06464; Kimi Linear,
// arXiv 2510.26692, section 2.
type Delta struct {
	Heads       int64   `json:"heads"`     // value heads
	KeyHeads    int64   `json:"key_heads"` // query and key heads
	KeyDim      int64   `json:"key_dim"`
	ValueDim    int64   `json:"value_dim"`
	Kernel      int64   `json:"kernel"` // positions that the convolution sees, the own included
	Eps         float32 `json:"eps"`    // in the lengths of queries and keys
	Tiled       bool    `json:"tiled,omitempty"`
	DecayLog    bool    `json:"decay_log,omitempty"`
	ByChannel   bool    `json:"by_channel,omitempty"`
	SigmoidGate bool    `json:"sigmoid_gate,omitempty"`
	Conv        string  `json:"conv"`    // tensor [C][Kernel]
	Decay       string  `json:"decay"`   // tensor [Heads]
	DTBias      string  `json:"dt_bias"` // tensor [F], see Fades
	Norm        *Norm   `json:"norm"`    // of ValueDim numbers
	QKV         Linear  `json:"qkv"`     // [C][D]
	ZA          *Linear `json:"z_a,omitempty"`
	Z           Linear  `json:"z"`    // [Heads*ValueDim][ZA.Out or D]
	Beta        Linear  `json:"beta"` // [Heads][D]
	AlphaA      *Linear `json:"alpha_a,omitempty"`
	Alpha       Linear  `json:"alpha"` // [F][AlphaA.Out or D]
	Out         Linear  `json:"out"`   // [D][Heads*ValueDim]
}

// Fades returns F, the numbers by which S of all heads fade at a position: one of each
// head, or one of each row of its S.
func (n *Delta) Fades() int64 {
	if n.ByChannel {
		return n.Heads * n.KeyDim
	}
	return n.Heads
}

// Channels returns C, the numbers that go through the convolution.
func (n *Delta) Channels() int64 { return 2*n.KeyHeads*n.KeyDim + n.Values() }

// Values returns the numbers of all heads' values.
func (n *Delta) Values() int64 { return n.Heads * n.ValueDim }

// Columns returns the numbers of the convolution's memory, [Kernel-1][C], the
// oldest position first.
func (n *Delta) Columns() int64 { return (n.Kernel - 1) * n.Channels() }

// Memory returns the numbers that a sequence remembers: the columns, then S of
// each head.
func (n *Delta) Memory() int64 { return n.Columns() + n.Heads*n.KeyDim*n.ValueDim }

// KeyHead returns the key head that a head reads.
func (n *Delta) KeyHead(head int64) int64 {
	if n.Tiled {
		return head % n.KeyHeads
	}
	return head / (n.Heads / n.KeyHeads)
}

// CheckSizes reports the first size that no delta net has.
func (n *Delta) CheckSizes() error {
	err := checkSizes(size{"heads", n.Heads, 1 << 16}, size{"key_heads", n.KeyHeads, 1 << 16}, size{"key_dim", n.KeyDim, maxStateDim},
		size{"value_dim", n.ValueDim, maxStateDim}, size{"kernel", n.Kernel, maxKernel})
	if err == nil && n.Heads%n.KeyHeads != 0 {
		err = fmt.Errorf("heads: %d is not a multiple of %d key heads", n.Heads, n.KeyHeads)
	}
	return err
}

func (n *Delta) parts(l *lister) {
	c, v := n.Channels(), n.Values()
	by := func(name string, a *Linear) int64 {
		if a == nil {
			return l.width
		}
		l.linear(name, a, l.width, a.Out)
		return a.Out
	}
	l.linear("delta.qkv", &n.QKV, l.width, c)
	l.linear("delta.z", &n.Z, by("delta.z_a", n.ZA), v)
	l.linear("delta.beta", &n.Beta, l.width, n.Heads)
	l.linear("delta.alpha", &n.Alpha, by("delta.alpha_a", n.AlphaA), n.Fades())
	l.table("delta.conv", n.Conv, c, n.Kernel)
	l.vector("delta.decay", n.Decay, n.Heads)
	l.vector("delta.dt_bias", n.DTBias, n.Fades())
	l.norm("delta.norm", n.Norm, n.ValueDim)
	l.linear("delta.out", &n.Out, v, l.width)
}

func (n *Delta) check(c *checker) {
	if err := n.CheckSizes(); err != nil {
		name, what, _ := strings.Cut(err.Error(), ": ")
		c.fail("delta."+name, "%s", what)
		return
	}
	if c.finite("delta.eps", n.Eps); !(n.Eps > 0) {
		c.fail("delta.eps", "%v is not positive", n.Eps)
	}
	if n.ZA != nil {
		c.within("delta.z_a", n.ZA.Out, maxLatentDim)
	}
	if n.AlphaA != nil {
		c.within("delta.alpha_a", n.AlphaA.Out, maxLatentDim)
	}
	c.name("delta.conv", n.Conv)
	c.name("delta.decay", n.Decay)
	c.name("delta.dt_bias", n.DTBias)
	if n.Norm == nil {
		c.fail("delta.norm", "is missing")
	} else if n.Norm.Kind != RMSNorm {
		c.unsupported("delta.norm", "norm", string(n.Norm.Kind))
	}
}
