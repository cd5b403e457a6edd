// Package graph says what a language model computes: which operations follow
// one another, with every constant they need and the names of the tensors that
// they read. It holds no weights, and no knowledge of the checkpoint that a
// graph came from: a runtime executes it without knowing any architecture by
// name, and a package carries it as JSON, so that an old runtime runs a new
// architecture made of known operations. docs/graph.md specifies all of it.
//
// A block is norms, a mixer and a feed-forward layer. Each kind of operation
// is one type in one file; it lists its parts ([Part]: matrices with their
// shapes, norms, vectors) and checks its constants. Whoever walks a graph,
// to load it, to count it or to show it, walks these parts.
//
// Invariants: a graph that passed [Graph.Check] has sizes that fit together
// and lie within bounds; it is not changed afterwards and may be read from any
// number of goroutines.
//
// Compatibility: names in JSON are part of the package format. They may be
// added, never renamed or given another meaning. A graph with an operation
// that this program lacks is refused by the operation's name.
package graph

import "slices"

// A Graph is a language model without its weights. One token's hidden state x
// of D numbers goes through
//
//	x = Embed.Table[id]*Embed.Scale + Embed.Positions[pos]
//	for each block:
//	    sequential: x = x + post(mixer(norm(x)));  x = x + post(ffn(norm(x)))
//	    parallel:   x = x + mixer(norm(x)) + ffn(norm2(x))
//	    either:     x = x + per_layer(x);  x = x * OutScale
//	logits = softcap(Head(Norm(x)))
type Graph struct {
	Arch    string    `json:"arch"`    // row of the architecture table it was built by; a label, not an instruction
	Context int64     `json:"context"` // positions the model was made for
	Vocab   int64     `json:"vocab"`   // rows of the logits
	Width   int64     `json:"width"`   // D
	Embed   Embedding `json:"embed"`
	// PerLayer is what blocks with a PerLayer read besides; nil: there are none.
	PerLayer *PerLayer `json:"per_layer,omitempty"`
	Ropes    []Rope    `json:"ropes,omitempty"` // rotary embeddings that the blocks refer to by index
	Blocks   []Block   `json:"blocks"`
	Norm     *Norm     `json:"norm"`
	Head     Head      `json:"head"`
	MTP      []MTP     `json:"mtp,omitempty"` // what guesses further tokens, for those who can use it
}

// An Embedding turns token ids into hidden states.
type Embedding struct {
	Table     string  `json:"table"`               // tensor [Vocab][D]
	Scale     float32 `json:"scale"`               // factor on each row; 1 for most
	Positions string  `json:"positions,omitempty"` // tensor [Context][D] of learned positions, added
}

// A Head turns the last hidden state into logits.
type Head struct {
	Linear
	Softcap float32 `json:"softcap,omitempty"` // c: logits = c*tanh(logits/c); 0 = none
}

// A Block is one layer: a mixer, which lets tokens see one another, and a
// feed-forward layer, each behind a norm, or one of them alone.
type Block struct {
	// Parallel blocks add mixer and feed-forward, both computed from the
	// block's input, in one step. A nil FFNNorm then means that both read the
	// output of AttnNorm.
	Parallel bool `json:"parallel,omitempty"`
	// A bare block is sequential and has no norms in front: its branches read the
	// hidden state itself.
	Bare         bool       `json:"bare,omitempty"`
	AttnNorm     *Norm      `json:"attn_norm,omitempty"` // the mixer's input
	Attn         *Attention `json:"attn,omitempty"`      // at most one of Attn, Latent, Delta, Mamba and ShortConv is set
	Latent       *Latent    `json:"latent,omitempty"`
	Delta        *Delta     `json:"delta,omitempty"`
	Mamba        *Mamba     `json:"mamba,omitempty"`
	ShortConv    *ShortConv `json:"shortconv,omitempty"`
	AttnPostNorm *Norm      `json:"attn_post_norm,omitempty"` // on the mixer's output, before it is added
	FFNNorm      *Norm      `json:"ffn_norm,omitempty"`
	FFN          *FFN       `json:"ffn,omitempty"` // one of FFN and MoE is set, or both
	MoE          *MoE       `json:"moe,omitempty"`
	// Of a block with both, which adds them up before FFNPostNorm: norms of the
	// layer's output, of the mixture's input (nil: it reads what the layer reads) and
	// of its output.
	DensePostNorm *Norm          `json:"dense_post_norm,omitempty"`
	MoENorm       *Norm          `json:"moe_norm,omitempty"`
	MoEPostNorm   *Norm          `json:"moe_post_norm,omitempty"`
	FFNPostNorm   *Norm          `json:"ffn_post_norm,omitempty"`
	PerLayer      *PerLayerInput `json:"per_layer,omitempty"`
	OutScale      string         `json:"out_scale,omitempty"` // tensor [1]: factor on the hidden state at the end
}

// An operation is a mixer or a feed-forward layer.
type operation interface {
	parts(l *lister) // in the order of execution
	check(c *checker)
}

// mixers and ffns list the operations that a block has of either kind; a
// sound block has one mixer, one layer or two beside one another, or both.
func (b *Block) mixers() []operation {
	return slices.Concat(present(b.Attn), present(b.Latent), present(b.Delta), present(b.Mamba), present(b.ShortConv))
}
func (b *Block) ffns() []operation { return append(present(b.FFN), present(b.MoE)...) }

// Mixes reports whether the block has a mixer, Feeds whether it has a feed-forward layer
// or a mixture: it has one of them at least. Neither allocates: each token asks.
func (b *Block) Mixes() bool {
	return b.Attn != nil || b.Latent != nil || b.Delta != nil || b.Mamba != nil || b.ShortConv != nil
}
func (b *Block) Feeds() bool { return b.FFN != nil || b.MoE != nil }

func present[T any, P interface {
	*T
	operation
}](o P) []operation {
	if o == nil {
		return nil
	}
	return []operation{o}
}

// A Norm scales a vector: "rms" divides by the root of the mean square,
// "layer" subtracts the mean first. y = norm(x)*(Weight+Offset)*Scale + Bias.
type Norm struct {
	Kind   NormKind `json:"kind"`
	Weight string   `json:"weight,omitempty"` // "": ones
	Bias   string   `json:"bias,omitempty"`   // of "layer" alone
	Eps    float32  `json:"eps"`
	Offset float32  `json:"offset,omitempty"` // 1 for checkpoints that store weight-1
	Scale  float32  `json:"scale,omitempty"`  // 0 = 1
}

// Factor returns the factor on the norm's weights.
func (n *Norm) Factor() float32 {
	if n.Scale == 0 {
		return 1
	}
	return n.Scale
}

// A NormKind names a normalisation.
type NormKind string

// The normalisations.
const (
	RMSNorm   NormKind = "rms"
	LayerNorm NormKind = "layer"
)

// A Linear is y = W x + b with W[Out][In]. Linears with the same Input read
// the same vector: they share calibration statistics and transforms of the
// activations.
type Linear struct {
	Role   Role   `json:"role"`
	Weight string `json:"weight"`
	Bias   string `json:"bias,omitempty"`
	In     int64  `json:"in"`
	Out    int64  `json:"out"`
	Input  string `json:"input"`
}

// A Role says what a matrix does in its block, the same in every
// architecture, so that policy can be written down as data. Those of multi-token
// prediction are the same behind "mtp_": see [Role.MTP].
type Role string

// The roles.
const (
	RoleEmbed  Role = "embed"
	RoleHead   Role = "head"
	RoleQ      Role = "attn_q"
	RoleK      Role = "attn_k"
	RoleV      Role = "attn_v"
	RoleO      Role = "attn_o"
	RoleOGate  Role = "attn_gate"
	RoleQA     Role = "attn_q_a"  // of latent attention: queries by way of a latent,
	RoleKVA    Role = "attn_kv_a" // what is remembered of a position,
	RoleKB     Role = "attn_k_b"  // and stacks of a matrix for each head
	RoleVB     Role = "attn_v_b"
	RoleGate   Role = "ffn_gate"
	RoleUp     Role = "ffn_up"
	RoleDown   Role = "ffn_down"
	RoleRouter Role = "moe_router"
	RoleXGate  Role = "moe_gate"
	RoleXUp    Role = "moe_up"
	RoleXDown  Role = "moe_down"
	RoleXTo    Role = "moe_latent_down" // to what experts read, and back
	RoleXFrom  Role = "moe_latent_up"
	RoleQKV    Role = "delta_qkv"
	RoleZ      Role = "delta_z"
	RoleDGate  Role = "delta_gate" // beta and alpha of a delta net, and what alpha reads
	RoleDOut   Role = "delta_out"
	RoleMZ     Role = "mamba_z"
	RoleMXBC   Role = "mamba_xbc"
	RoleMGate  Role = "mamba_gate" // dt of a state space
	RoleMOut   Role = "mamba_out"
	RoleCIn    Role = "conv_in"
	RoleCOut   Role = "conv_out"
	RolePGate  Role = "per_layer_gate" // of a block's per-layer input
	RolePDown  Role = "per_layer_down"
	RolePModel Role = "per_layer_model" // the projection that all blocks' per-layer inputs come from
	RoleNorm   Role = "norm"            // norm weights, biases and other vectors
	RoleOther  Role = "other"           // tensors that pass through

	RoleMTPEmbed   Role = "mtp_embed"   // a table of multi-token prediction's own
	RoleMTPProject Role = "mtp_project" // joins embedding and hidden state
)

// Steers reports whether such a matrix decides what others do: a router's rounding
// changes which experts run, that of a recurrent mixer's gates how long it remembers.
func (r Role) Steers() bool {
	switch r.Base() {
	case RoleRouter, RoleDGate, RoleMGate:
		return true
	}
	return false
}
