package place

import (
	"math"
	"slices"
)

// A Rate is several samples of one figure.
type Rate struct {
	Median float64 `json:"median"`
	P10    float64 `json:"p10"` // the tenth percentile, between neighbours linearly
	P90    float64 `json:"p90"`
}

// NewRate orders samples, of which there is at least one.
func NewRate(samples []float64) Rate {
	s := slices.Sorted(slices.Values(samples))
	at := func(q float64) float64 {
		x := q * float64(len(s)-1)
		i := int(x)
		if i+1 == len(s) {
			return s[i]
		}
		return s[i] + (x-float64(i))*(s[i+1]-s[i])
	}
	return Rate{Median: at(0.5), P10: at(0.1), P90: at(0.9)}
}

// Times returns the rate in another unit.
func (r Rate) Times(f float64) Rate {
	return Rate{Median: r.Median * f, P10: r.P10 * f, P90: r.P90 * f}
}

// sound reports whether these can be measured figures.
func (r Rate) sound() bool {
	return r.P10 > 0 && r.P10 <= r.Median && r.Median <= r.P90 && !math.IsInf(r.P90, 0)
}
