// Package ledger reads and writes accuracy ledgers: what became of each tensor
// of a package, what that was predicted to cost, and what was measured.
//
// In: JSON, written by whoever made the package, which carries it as
// nstf/ledger.json. Out: a [Ledger]. docs/planning.md describes the fields.
//
// Reading is strict, like that of plans: whatever is unknown, doubled, missing
// or not finite is a [formats.FormatError] with the file, the field and the
// byte's offset. What is written has one order, one line for each tensor, and
// figures of six digits.
//
// Compatibility: fields may be added, never renamed or given another meaning;
// a ledger of a newer version is refused by that number.
package ledger

// Version is what this program writes, and the newest that it reads.
const Version = 1

// A Ledger is the account of a package.
type Ledger struct {
	Version int64    `json:"version"`
	Source  Source   `json:"source"`
	Model   Model    `json:"model"`
	Notes   []string `json:"notes"`   // what happened on the way, such as a plan that was changed
	Experts []Expert `json:"experts"` // of mixtures, those that saw too few tokens
	Blocks  []Block  `json:"blocks"`
	Layers  []Layer  `json:"layers,omitempty"` // where a planner chose, or keys and values were measured
	Tensors []Tensor `json:"tensors"`          // of the graph, in its order
}

// A Source says what was measured on what. Names are without folders, hashes
// 64 hexadecimal digits, "" where nothing was hashed.
type Source struct {
	Model     string `json:"model"`
	Hash      string `json:"hash"` // of the model, as its statistics give it
	Text      string `json:"text"` // that the package was fitted on
	TextHash  string `json:"text_hash"`
	Context   int64  `json:"context"`      // tokens of a window
	Windows   int64  `json:"windows"`      // that the package was fitted on
	Held      string `json:"held"`         // what the measurements were made on
	HeldCount int64  `json:"held_windows"` // windows of it
	Seed      int64  `json:"seed"`
}

// A Figure is a mean with its standard error.
type Figure struct {
	Mean float64 `json:"mean"`
	SE   float64 `json:"se"`
}

// A Model is what the package as a whole costs, on text that nothing was
// fitted on. Fields that were not measured are nil.
type Model struct {
	Bytes        int64   `json:"bytes"` // of the graph's tensors
	BPW          float64 `json:"bpw"`   // bits per weight of the graph's tensors
	PredictedKLD float64 `json:"predicted_kld"`
	KLD          *Figure `json:"kld,omitempty"`         // mean KL divergence in nats
	Floor        *Figure `json:"noise_floor,omitempty"` // KLD of the source computed as the package is
	Perplexity   *Figure `json:"perplexity,omitempty"`
	Original     *Figure `json:"original_perplexity,omitempty"`
	Top1         *Figure `json:"top1,omitempty"` // share of tokens whose best guess is the same
}

// A Block is how far the hidden states behind a block have drifted from those
// of the original: their mean squared difference over the mean square.
type Block struct {
	Index int64   `json:"block"`
	Drift float64 `json:"drift"`
}

// A Layer is a block of a model as a plan has it, and what each method by itself would save
// there and cost: fewer bits for its matrices, factors for them, fewer bits for its keys and
// values, and steps that read some pages of these. What is not known of it is nil.
type Layer struct {
	Block   int64    `json:"block"` // -1: what is outside the blocks
	Bytes   int64    `json:"bytes"` // of its tensors
	Loss    float64  `json:"loss"`  // their share of the predicted KL divergence
	Bits    *Saving  `json:"bits,omitempty"`
	Factors *Saving  `json:"factors,omitempty"`
	KV      *KeptKV  `json:"kv,omitempty"`
	Pages   *PagesOf `json:"pages,omitempty"`
}

// A Saving is what tensors of a layer save where each takes the next step down that costs
// least for a byte, and the predicted divergence that this adds.
type Saving struct {
	Tensors int64   `json:"tensors"` // that have such a step
	Bytes   int64   `json:"bytes"`
	Loss    float64 `json:"loss"`
}

// A KeptKV is what a layer's keys and values save of half precision as was chosen, and the
// divergence that was measured where it alone keeps them so.
type KeptKV struct {
	Format string  `json:"format"`
	Bytes  float64 `json:"bytes_per_position"`
	KLD    float64 `json:"kld"`
}

// A PagesOf is what a layer's heads read by a policy, and the divergences that were measured
// where one head alone reads so few, added up.
type PagesOf struct {
	Read float64 `json:"read"` // of its pages, the mean over heads
	KLD  float64 `json:"kld"`
}

// An Expert is one that too few tokens reached to be measured alone.
type Expert struct {
	Input  string `json:"input"`
	Expert int64  `json:"expert"`
	Tokens int64  `json:"tokens"`
	Used   string `json:"used"` // what its statistics were made of instead
}

// A Tensor is one tensor's account. Errors are relative and calibrated:
// tr(E H E') / tr(W H W').
type Tensor struct {
	Name      string       `json:"name"`
	Role      string       `json:"role"`
	Block     int64        `json:"block"` // -1 outside the blocks
	Recipe    string       `json:"recipe"`
	Method    string       `json:"method"` // how it was fitted, "" where it was kept
	Bits      float64      `json:"bits"`   // per weight, scales included
	Bytes     int64        `json:"bytes"`
	Predicted float64      `json:"predicted_error"`
	Obtained  float64      `json:"obtained_error"`
	Loss      float64      `json:"loss"`              // share of the predicted KL divergence
	Seconds   float64      `json:"seconds,omitempty"` // that fitting took, where it was recorded
	RunnerUp  *Alternative `json:"runner_up,omitempty"`
}

// An Alternative is a choice that was not taken.
type Alternative struct {
	Recipe string  `json:"recipe"`
	Bytes  int64   `json:"bytes"`
	Loss   float64 `json:"loss"`
}

// Tensor returns the account of a name.
func (l *Ledger) Tensor(name string) (*Tensor, bool) {
	for i := range l.Tensors {
		if l.Tensors[i].Name == name {
			return &l.Tensors[i], true
		}
	}
	return nil, false
}
