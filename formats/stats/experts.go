package stats

import "fmt"

// Shrink is the number of tokens that what all experts read weighs in the
// moments of an expert that saw too few: H = (n*H_e + Shrink*H)/(n + Shrink).
const Shrink = 512

// Enough is how many tokens an expert's own moments need: 256, and a quarter of
// the features.
func Enough(k int) int64 { return max(256, int64(k)/4) }

// A Coverage says whose moments an expert gets.
type Coverage string

// The coverages.
const (
	CoverOwn    Coverage = "own"    // its own
	CoverShrunk Coverage = "shrunk" // its own and the block's
	CoverBlock  Coverage = "block"  // the block's: no token came to it
)

// Cover returns the coverage of an expert's input.
func (in *Input) Cover() Coverage {
	switch {
	case in.Tokens == 0:
		return CoverBlock
	case in.Tokens < Enough(in.K):
		return CoverShrunk
	}
	return CoverOwn
}

// Moments returns the second moments [K][K] that errors in a linear are weighed
// by: those of its input, or for an expert >= 0 of a mixture the expert's own,
// shrunk towards those of all experts where too few tokens came, and theirs
// where none did. Errors are those of reading, and an input that is not here.
func (f *File) Moments(input string, expert int) ([]float64, error) {
	all := f.Inputs[input]
	if all == nil {
		return nil, fmt.Errorf("no statistics of input %q", input)
	}
	var own *Input
	if list := f.Experts[input]; expert >= 0 && expert < len(list) {
		own = list[expert]
	}
	if own == nil || own.Cover() == CoverBlock {
		return all.Moments()
	}
	h, err := own.Moments()
	if err != nil || own.Cover() == CoverOwn {
		return h, err
	}
	block, err := all.Moments()
	if err != nil {
		return nil, err
	}
	ShrinkTowards(h, block, own.Tokens)
	return h, nil
}

// ShrinkTowards mixes the moments of tokens tokens with those of a block.
func ShrinkTowards(h, block []float64, tokens int64) {
	n := float64(tokens)
	for i, v := range block {
		h[i] = (n*h[i] + Shrink*v) / (n + Shrink)
	}
}

// An ExpertCoverage counts a mixture's experts by whose moments they get.
type ExpertCoverage struct {
	Input  string  `json:"input"`
	Tokens []int64 `json:"tokens"` // of each expert
	Shrunk []int   `json:"shrunk,omitempty"`
	Block  []int   `json:"block,omitempty"` // no token came to these
}

// Coverage lists the mixtures' inputs in the order of their names.
func (f *File) Coverage() []ExpertCoverage {
	var out []ExpertCoverage
	for _, name := range sortedKeys(f.Experts) {
		c := ExpertCoverage{Input: name}
		for i, in := range f.Experts[name] {
			c.Tokens = append(c.Tokens, in.Tokens)
			switch in.Cover() {
			case CoverShrunk:
				c.Shrunk = append(c.Shrunk, i)
			case CoverBlock:
				c.Block = append(c.Block, i)
			}
		}
		out = append(out, c)
	}
	return out
}
