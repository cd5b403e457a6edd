// Package plan chooses how each tensor of a model is stored: of candidates
// with sizes and predicted losses it takes, for every tensor, the one that
// together lose least under a budget of bytes, or the fewest bytes under a
// bound on the loss.
//
// In: [Item]s with their [Candidate]s and a [Budget]. Out: a choice with its
// bounds. It is pure: the same items and budget give the same choice on every
// machine. Losses are expected KL divergence in nats and add up over tensors;
// bytes are those of parts, their padding, and what they take in a package's
// header.
//
// Compatibility: choices may get better in every release.
package plan

// A Candidate is one way to store a tensor.
type Candidate struct {
	Recipe string  // see formats/plan.ParseRecipe
	Bytes  int64   // of all parts, padding not included
	Error  float64 // tr(E H E') / tr(W H W')
	Loss   float64 // expected KL divergence in nats
}

// An Item is a tensor and the ways to store it, in any order.
type Item struct {
	Name       string
	Role       string
	Shape      []int64
	Candidates []Candidate
}

// A Budget is what a choice has to keep. One of the fields is set.
type Budget struct {
	Bytes   int64   // of the whole package
	BPW     float64 // bits per weight of all items
	MaxLoss float64 // sum of the losses
}
