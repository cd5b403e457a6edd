package eval

import (
	"math"
	"slices"
)

// An Estimate is a figure with its standard error.
type Estimate struct {
	Value  float64 `json:"value"`
	StdErr float64 `json:"std_err"`
}

// mean returns the mean of x and its standard error.
func mean(x []float64) Estimate {
	n := float64(len(x))
	var sum float64
	for _, v := range x {
		sum += v
	}
	m := sum / n
	if len(x) < 2 {
		return Estimate{Value: m}
	}
	var squares float64
	for _, v := range x {
		squares += (v - m) * (v - m)
	}
	return Estimate{m, math.Sqrt(squares / (n - 1) / n)}
}

// exp returns e to the power of an estimate, its error to first order.
func (e Estimate) exp() Estimate {
	v := math.Exp(e.Value)
	return Estimate{v, v * e.StdErr}
}

// share returns how often hit is true.
func share(hit []bool) Estimate {
	n, k := float64(len(hit)), 0.0
	for _, h := range hit {
		if h {
			k++
		}
	}
	p := k / n
	return Estimate{p, math.Sqrt(p * (1 - p) / n)}
}

// quantile returns the q-quantile of ascending numbers, interpolated between
// neighbours, and half the distance between the order statistics that lie one
// standard deviation of the binomial rank on either side.
func quantile(sorted []float64, q float64) Estimate {
	at := func(rank float64) float64 {
		rank = min(max(rank, 0), float64(len(sorted)-1))
		lo := math.Floor(rank)
		a, b := sorted[int(lo)], sorted[int(math.Ceil(rank))]
		if a == b {
			return a // also where both are infinite
		}
		return a + (rank-lo)*(b-a)
	}
	n := float64(len(sorted))
	rank, d := q*(n-1), math.Sqrt(n*q*(1-q))
	e := Estimate{Value: at(rank)}
	if lo, hi := at(math.Floor(rank-d)), at(math.Ceil(rank+d)); lo != hi {
		e.StdErr = (hi - lo) / 2
	}
	return e
}

// sorted returns an ascending copy.
func sorted(x []float64) []float64 {
	out := slices.Clone(x)
	slices.Sort(out)
	return out
}
