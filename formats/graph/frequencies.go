package graph

import "math"

// Frequencies returns the angle that each of the Dim/2 pairs turns by per
// position, and the factor on cos and sin, for a sequence of seqLen positions
// (the last position of the pass, plus one). Kinds other than dynamic and
// longrope do not depend on it.
//
// Every step is rounded to float32 where transformers rounds it: at position
// 100000 one unit of the last place of a frequency is a hundredth of a
// radian, so rounding elsewhere gives other logits.
//
// Sources, for facts: RoPE arXiv 2104.09864; YaRN arXiv 2309.00071; LongRoPE
// arXiv 2402.13753; rounding and llama3's bands as in transformers'
// modeling_rope_utils.py.
func (r *Rope) Frequencies(seqLen int64) (freq []float32, attention float32) {
	return r.AppendFrequencies(make([]float32, 0, r.Dim/2), seqLen)
}

// AppendFrequencies is [Rope.Frequencies] into memory of the caller's.
func (r *Rope) AppendFrequencies(freq []float32, seqLen int64) ([]float32, float32) {
	s := &r.Scaling
	base := float32(r.Theta)
	if s.Kind == ScaleDynamic {
		base = r.dynamicBase(seqLen)
	}
	start := len(freq)
	for i := range r.Dim / 2 {
		freq = append(freq, power(base, i, r.Dim))
	}
	own := freq[start:] // Theta^(2i/Dim), to be inverted
	switch s.Kind {
	case ScaleYarn:
		r.yarn(own)
	case ScaleLongRope:
		factors := s.Short
		if r.beyond(seqLen) {
			factors = s.Long
		}
		for i, p := range own {
			own[i] = 1 / float32(factors[i]*p)
		}
	default:
		for i, p := range own {
			own[i] = s.apply(1/p, i)
		}
	}
	if s.Attention != 0 {
		return freq, float32(s.Attention)
	}
	return freq, 1
}

// Regime returns a number that is equal for two sequence lengths exactly when
// they have the same frequencies.
func (r *Rope) Regime(seqLen int64) int64 {
	switch r.Scaling.Kind {
	case ScaleDynamic:
		return max(seqLen, r.Scaling.Original)
	case ScaleLongRope:
		if r.beyond(seqLen) {
			return 1
		}
	}
	return 0
}

// Recomputes reports whether keys rotated in one [Rope.Regime] are of no use
// in another, so that a sequence which passes from one to the other is
// computed again. Dynamic scaling keeps them as they were rotated: that is
// what transformers' generation does for either kind.
func (r *Rope) Recomputes() bool { return r.Scaling.Kind == ScaleLongRope }

func (r *Rope) beyond(seqLen int64) bool { return seqLen > r.Scaling.Original }

// power returns base^(2i/dim), the exponent rounded to float32 first.
func power(base float32, i, dim int64) float32 {
	e := float32(2*i) / float32(dim)
	return float32(math.Pow(float64(base), float64(e)))
}

// apply changes the frequency f of pair i by the kinds that look at one
// frequency at a time.
func (s *RopeScaling) apply(f float32, i int) float32 {
	switch s.Kind {
	case ScaleLinear:
		return f / float32(s.Factor)
	case ScaleFactors:
		return f / s.Short[i]
	case ScaleLlama3:
		return s.llama3(f)
	}
	return f
}

// llama3 divides the frequencies whose wavelength is long, keeps those whose
// wavelength is short, and interpolates between.
func (s *RopeScaling) llama3(f float32) float32 {
	wavelength := float32(2*math.Pi) / f
	low, high := float64(s.Original)/s.LowFreq, float64(s.Original)/s.HighFreq
	switch {
	case wavelength > float32(low):
		return f / float32(s.Factor)
	case wavelength < float32(high):
		return f
	}
	smooth := (float32(s.Original)/wavelength - float32(s.LowFreq)) / float32(s.HighFreq-s.LowFreq)
	return float32(float32((1-smooth)*f)/float32(s.Factor)) + float32(smooth*f)
}

// dynamicBase raises the base with the length of the sequence beyond Original
// ("NTK-aware" scaling). A rotary embedding of one pair turns at 1 whatever
// the base.
func (r *Rope) dynamicBase(seqLen int64) float32 {
	s, base := &r.Scaling, float32(r.Theta)
	if seqLen <= s.Original || r.Dim <= 2 {
		return base
	}
	stretch := float32(float32(s.Factor)*float32(seqLen))/float32(s.Original) - float32(s.Factor-1)
	e := float64(r.Dim) / float64(r.Dim-2)
	return base * float32(math.Pow(float64(stretch), e))
}

// yarn turns powers of the base into frequencies: pairs that turn more than
// BetaFast times within Original positions keep theirs, those that turn less
// than BetaSlow times are divided by Factor, a linear ramp lies between.
func (r *Rope) yarn(powers []float32) {
	s := &r.Scaling
	low, high := r.yarnPair(s.BetaFast), r.yarnPair(s.BetaSlow)
	if s.Truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(r.Dim-1))
	if low == high {
		high += 0.001 // a step instead of a division by zero
	}
	for i, p := range powers {
		ramp := min(max((float32(i)-float32(low))/float32(high-low), 0), 1)
		keep := 1 - ramp
		stretched := 1 / float32(float32(s.Factor)*p)
		powers[i] = float32(stretched*(1-keep)) + float32((1/p)*keep)
	}
}

// yarnPair returns the pair, not rounded, that turns the given number of times
// within Original positions.
func (r *Rope) yarnPair(turns float64) float64 {
	return float64(r.Dim) * math.Log(float64(r.Scaling.Original)/(turns*2*math.Pi)) / (2 * math.Log(r.Theta))
}
