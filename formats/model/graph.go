package model

// A Graph is a language model without its weights: which operations follow
// one another, with every constant they need, and the names of the tensors
// they read. It holds no knowledge of the checkpoint it came from: a runtime
// executes it without knowing any architecture by name, and a package carries
// it as JSON, so that an old runtime runs a new architecture made of known
// operations.
//
// One token's hidden state x of D numbers goes through
//
//	x = Embed.Table[id]*Embed.Scale + Embed.Positions[pos]
//	for each block:
//	    sequential: x = x + post(attn(norm(x)));  x = x + post(ffn(norm(x)))
//	    parallel:   x = x + attn(norm(x)) + ffn(norm2(x))
//	logits = softcap(Head(Norm(x)))
//
// Field names in JSON are part of the package format: they may be added,
// never renamed or given another meaning.
type Graph struct {
	Arch    string    `json:"arch"`    // row of the architecture table it was built by; a label, not an instruction
	Context int64     `json:"context"` // positions the model was made for
	Vocab   int64     `json:"vocab"`   // rows of the logits
	Width   int64     `json:"width"`   // D
	Embed   Embedding `json:"embed"`
	Ropes   []Rope    `json:"ropes,omitempty"` // rotary embeddings that the blocks refer to by index
	Blocks  []Block   `json:"blocks"`
	Norm    *Norm     `json:"norm"`
	Head    Head      `json:"head"`
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

// A Block is one transformer layer.
type Block struct {
	// Parallel blocks add attention and feed-forward, both computed from the
	// block's input, in one step. A nil FFNNorm then means that both read the
	// output of AttnNorm.
	Parallel     bool      `json:"parallel,omitempty"`
	AttnNorm     *Norm     `json:"attn_norm"`
	Attn         Attention `json:"attn"`
	AttnPostNorm *Norm     `json:"attn_post_norm,omitempty"` // on attention's output, before it is added
	FFNNorm      *Norm     `json:"ffn_norm,omitempty"`
	FFN          *FFN      `json:"ffn,omitempty"` // exactly one of FFN and MoE is set
	MoE          *MoE      `json:"moe,omitempty"`
	FFNPostNorm  *Norm     `json:"ffn_post_norm,omitempty"`
}

// A Norm scales a vector: "rms" divides by the root of the mean square,
// "layer" subtracts the mean first. y = norm(x)*(Weight+Offset) + Bias.
type Norm struct {
	Kind   NormKind `json:"kind"`
	Weight string   `json:"weight"`
	Bias   string   `json:"bias,omitempty"`
	Eps    float32  `json:"eps"`
	Offset float32  `json:"offset,omitempty"` // 1 for checkpoints that store weight-1
}

// A NormKind names a normalisation.
type NormKind string

// The normalisations.
const (
	RMSNorm   NormKind = "rms"
	LayerNorm NormKind = "layer"
)

// An Attention is causal grouped-query attention. Query head h reads
// key-value head h/(Heads/KVHeads).
//
//	score[t][s] = softcap(Scale * q[t]·k[s])  for s <= t and, with a Window w, s > t-w
type Attention struct {
	Heads   int64   `json:"heads"`             // query heads
	KVHeads int64   `json:"kv_heads"`          // key and value heads
	HeadDim int64   `json:"head_dim"`          // features per head
	Scale   float32 `json:"scale"`             // factor on the scores
	Softcap float32 `json:"softcap,omitempty"` // c: score = c*tanh(score/c), before masking; 0 = none
	Window  int64   `json:"window,omitempty"`  // positions attended, the own included; 0 = all
	Rope    int     `json:"rope"`              // index into Graph.Ropes, -1 = none
	QNorm   *Norm   `json:"q_norm,omitempty"`  // over each head, before rotation
	KNorm   *Norm   `json:"k_norm,omitempty"`
	Q       Linear  `json:"q"` // [Heads*HeadDim][D]
	K       Linear  `json:"k"` // [KVHeads*HeadDim][D]
	V       Linear  `json:"v"` // [KVHeads*HeadDim][D]
	O       Linear  `json:"o"` // [D][Heads*HeadDim]
}

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
// architecture, so that policy can be written down as data.
type Role string

// The roles.
const (
	RoleEmbed  Role = "embed"
	RoleHead   Role = "head"
	RoleQ      Role = "attn_q"
	RoleK      Role = "attn_k"
	RoleV      Role = "attn_v"
	RoleO      Role = "attn_o"
	RoleGate   Role = "ffn_gate"
	RoleUp     Role = "ffn_up"
	RoleDown   Role = "ffn_down"
	RoleRouter Role = "moe_router"
	RoleXGate  Role = "moe_gate"
	RoleXUp    Role = "moe_up"
	RoleXDown  Role = "moe_down"
	RoleNorm   Role = "norm"  // norm weights and all biases
	RoleOther  Role = "other" // tensors that pass through
)

// An FFN is a feed-forward layer: down(act(gate(x)) * up(x)), or
// down(act(up(x))) without a gate.
type FFN struct {
	Act  Activation `json:"act"`
	Gate *Linear    `json:"gate,omitempty"` // [F][D]
	Up   Linear     `json:"up"`             // [F][D]
	Down Linear     `json:"down"`           // [D][F]
}

// An Activation names an elementwise function.
type Activation string

// The activations.
const (
	SiLU      Activation = "silu"
	GELU      Activation = "gelu"       // exact, by erf
	GELUTanh  Activation = "gelu_tanh"  // 0.5x(1+tanh(sqrt(2/pi)(x+0.044715x^3)))
	GELUQuick Activation = "gelu_quick" // x*sigmoid(1.702x)
	ReLU      Activation = "relu"
)

// A MoE routes each token to TopK of Experts gated feed-forward layers.
// Router scores are a softmax over all experts; the chosen ones are divided
// by their sum where Normalize is set. Expert matrices are stacked: tensors
// [Experts][Out][In].
type MoE struct {
	Act       Activation `json:"act"`
	Experts   int64      `json:"experts"`
	TopK      int64      `json:"top_k"`
	Normalize bool       `json:"normalize,omitempty"`
	Router    Linear     `json:"router"` // [Experts][D]
	Gate      Linear     `json:"gate"`
	Up        Linear     `json:"up"`
	Down      Linear     `json:"down"`
}

// A RopeStyle says which numbers of a head form a rotated pair.
type RopeStyle string

// The pairings: "half" rotates (i, i+Dim/2), "interleaved" (2i, 2i+1).
const (
	RopeHalf        RopeStyle = "half"
	RopeInterleaved RopeStyle = "interleaved"
)

// A Rope is a rotary position embedding of the first Dim numbers of a head:
// pair i turns by pos*f(i) with f(i) = Theta^(-2i/Dim) changed by Scaling.
type Rope struct {
	Style   RopeStyle   `json:"style"`
	Dim     int64       `json:"dim"`
	Theta   float64     `json:"theta"`
	Scaling RopeScaling `json:"scaling"`
}

// A RopeScaling stretches a rotary embedding over longer contexts. Kind says
// which of the other fields mean something; [Rope.Frequencies] holds the
// formulas.
type RopeScaling struct {
	Kind     ScalingKind `json:"kind"`
	Factor   float64     `json:"factor,omitempty"`
	Original int64       `json:"original,omitempty"` // context before stretching
	LowFreq  float64     `json:"low_freq,omitempty"` // llama3
	HighFreq float64     `json:"high_freq,omitempty"`
	BetaFast float64     `json:"beta_fast,omitempty"` // yarn
	BetaSlow float64     `json:"beta_slow,omitempty"`
	Truncate bool        `json:"truncate,omitempty"` // yarn: whole dimensions as bounds of the ramp
	// Attention multiplies cos and sin (yarn, longrope); 0 means 1.
	Attention float64 `json:"attention,omitempty"`
	// Short and Long divide the frequencies of each pair (longrope: by
	// whether the sequence exceeds Original; factors: Short always).
	Short []float32 `json:"short,omitempty"`
	Long  []float32 `json:"long,omitempty"`
}

// A ScalingKind names a rule of [RopeScaling].
type ScalingKind string

// The scaling rules.
const (
	ScaleNone     ScalingKind = "none"
	ScaleLinear   ScalingKind = "linear"
	ScaleDynamic  ScalingKind = "dynamic"
	ScaleLlama3   ScalingKind = "llama3"
	ScaleYarn     ScalingKind = "yarn"
	ScaleLongRope ScalingKind = "longrope"
	ScaleFactors  ScalingKind = "factors" // per-pair divisors that came as a tensor
)
