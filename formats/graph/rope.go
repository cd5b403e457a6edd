package graph

import (
	"fmt"
	"math"
)

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

// Check refuses rotary embeddings that the head cannot hold.
func (r *Rope) Check(headDim int64) error {
	if r.Dim < 2 || r.Dim%2 != 0 || r.Dim > headDim {
		return fmt.Errorf("rotary dimension %d does not fit a head of %d", r.Dim, headDim)
	}
	if !(r.Theta > 0) || math.IsInf(r.Theta, 0) {
		return fmt.Errorf("rotary base %v is not positive", r.Theta)
	}
	s := &r.Scaling
	for _, f := range [][]float32{s.Short, s.Long} {
		if f != nil && int64(len(f)) != r.Dim/2 {
			return fmt.Errorf("rotary scaling has %d factors, not %d", len(f), r.Dim/2)
		}
		for _, v := range f {
			if !(v > 0) {
				return fmt.Errorf("rotary factor %v is not positive", v)
			}
		}
	}
	switch s.Kind {
	case ScaleLinear, ScaleDynamic, ScaleLlama3, ScaleYarn:
		if !(s.Factor >= 1) || math.IsInf(s.Factor, 0) {
			return fmt.Errorf("rotary scaling factor %v is less than 1", s.Factor)
		}
	}
	if s.Kind == ScaleYarn && r.Theta <= 1 {
		return fmt.Errorf("rotary base %v of scaling %q is not above 1", r.Theta, s.Kind)
	}
	return s.check()
}

// check refuses constants that would make frequencies infinite or no numbers.
func (s *RopeScaling) check() error {
	stretches := s.Kind == ScaleDynamic || s.Kind == ScaleLlama3 || s.Kind == ScaleYarn || s.Kind == ScaleLongRope
	switch {
	case stretches && s.Original < 1:
		return fmt.Errorf("rotary scaling stretches a context of %d", s.Original)
	case s.Kind == ScaleLlama3 && !(s.LowFreq > 0 && s.HighFreq > s.LowFreq && s.HighFreq <= math.MaxFloat32):
		return fmt.Errorf("rotary scaling between the frequencies %v and %v", s.LowFreq, s.HighFreq)
	case s.Kind == ScaleYarn && !(s.BetaFast > 0 && s.BetaSlow > 0 && s.BetaFast+s.BetaSlow <= math.MaxFloat32):
		return fmt.Errorf("rotary scaling between %v and %v turns", s.BetaFast, s.BetaSlow)
	case !(s.Attention >= 0 && s.Attention <= math.MaxFloat32):
		return fmt.Errorf("rotary attention factor %v", s.Attention)
	}
	return nil
}
