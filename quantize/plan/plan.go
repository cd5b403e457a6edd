// Package plan chooses how each tensor of a model is stored: of candidates
// with sizes and predicted losses it takes, for every tensor, the one that
// together lose least under a budget of bytes, or the fewest bytes under a
// bound on the loss.
//
// In: [Item]s with their [Candidate]s and a [Budget]. Out: a formats/plan.Plan.
// It is pure: the same items and budget give the same plan on every machine.
// Losses are expected KL divergence in nats and add up over tensors. Bytes are
// those of a whole file where a [Package] counts them.
//
// Compatibility: choices may get better in every release.
package plan

import "github.com/nstf/nstf/formats/plan"

// A Candidate is one way to store a tensor.
type Candidate struct {
	Recipe plan.Recipe
	Bytes  int64   // of all parts, padding not included
	Error  float64 // tr(E H E') / tr(W H W')
	// Rounding is what rounded activations add to the error of a product.
	Rounding float64
	Loss     float64 // expected KL divergence in nats
	// Seconds is what the tensor adds to the time of a token, where it counts.
	Seconds float64
}

// Cost sets the loss for a sensitivity: what a relative error of 1 costs.
func (c *Candidate) Cost(sensitivity float64) { c.Loss = (c.Error + c.Rounding) * sensitivity }

// An Item is a tensor and the ways to store it, in any order.
type Item struct {
	Name       string
	Role       string
	Shape      []int64
	Candidates []Candidate
}

// A Budget is what a choice has to keep. One of the first
// three fields is set.
type Budget struct {
	Bytes   int64   // of the whole package
	BPW     float64 // bits per weight of all items, parts alone
	MaxLoss float64 // mean KL divergence in nats

	// Fastest asks under MaxLoss for the least time instead of the fewest bytes.
	// A byte then still costs ByteSeconds, so that what is seldom read does not
	// grow for nothing.
	Fastest     bool
	ByteSeconds float64

	// Package counts what Bytes counts, and what is least under MaxLoss; nil:
	// the parts alone.
	Package Package
}
