package exec

import (
	"math"

	"github.com/nstf/nstf/formats/graph"
)

// delta goes through the positions one by one.
func (r *reference) delta(n *graph.Delta, h [][]float64) [][]float64 {
	dk, dv, kernel := int(n.KeyDim), int(n.ValueDim), int(n.Kernel)
	queries := int(n.KeyHeads) * dk
	memory := make([][][]float64, n.Heads)
	for a := range memory {
		memory[a] = make([][]float64, dk)
		for i := range memory[a] {
			memory[a][i] = make([]float64, dv)
		}
	}
	mixed, out := make([][]float64, len(h)), make([][]float64, len(h))
	for t := range h {
		mixed[t] = r.mul(&n.QKV, 0, h[t])
		c := r.convolve(n.Conv, "", kernel, mixed[:t+1])
		for i := range c {
			c[i] = activate(graph.SiLU, c[i])
		}
		by := func(first *graph.Linear) []float64 {
			if first == nil {
				return h[t]
			}
			return r.mul(first, 0, h[t])
		}
		alpha, beta, z := r.mul(&n.Alpha, 0, by(n.AlphaA)), r.mul(&n.Beta, 0, h[t]), r.mul(&n.Z, 0, by(n.ZA))
		var heads []float64
		for a, s := range memory {
			at := int(n.KeyHead(int64(a))) * dk
			q, k := unit(c[at:at+dk], n.Eps), unit(c[queries+at:queries+at+dk], n.Eps)
			v, o := c[2*queries+a*dv:2*queries+(a+1)*dv], make([]float64, dv)
			rate := r.weights[n.Decay][a]
			if n.DecayLog {
				rate = -math.Exp(rate)
			}
			fade := func(row int) float64 {
				at := a
				if n.ByChannel {
					at = a*dk + row
				}
				return math.Exp(rate * math.Log1p(math.Exp(alpha[at]+r.weights[n.DTBias][at])))
			}
			for j := range dv {
				told := 0.0
				for i := range dk {
					s[i][j] *= fade(i)
					told += s[i][j] * k[i]
				}
				for i := range dk {
					s[i][j] += k[i] * sigmoid(beta[a]) * (v[j] - told)
					o[j] += s[i][j] * q[i] / math.Sqrt(float64(dk))
				}
			}
			for j, v := range r.norm(n.Norm, o) {
				gate := activate(graph.SiLU, z[a*dv+j])
				if n.SigmoidGate {
					gate = sigmoid(z[a*dv+j])
				}
				heads = append(heads, v*gate)
			}
		}
		out[t] = r.mul(&n.Out, 0, heads)
	}
	return out
}

// convolve is a causal convolution of each channel at the last of some positions.
func (r *reference) convolve(table, bias string, kernel int, x [][]float64) []float64 {
	c := make([]float64, len(x[0]))
	for i := range c {
		if bias != "" {
			c[i] = r.weights[bias][i]
		}
		for back := range min(kernel, len(x)) {
			c[i] += r.weights[table][i*kernel+kernel-1-back] * x[len(x)-1-back][i]
		}
	}
	return c
}

func (r *reference) shortConv(n *graph.ShortConv, h [][]float64) [][]float64 {
	c := int(n.Channels())
	var products, out [][]float64
	for t := range h {
		z, m := r.mul(&n.In, 0, h[t]), make([]float64, c)
		for i := range m {
			m[i] = z[i] * z[2*c+i]
		}
		products = append(products, m)
		y := r.convolve(n.Conv, n.ConvBias, int(n.Kernel), products)
		for i := range y {
			y[i] *= z[c+i]
		}
		out = append(out, r.mul(&n.Out, 0, y))
	}
	return out
}

// mamba sums what every earlier position left in S, instead of keeping S.
func (r *reference) mamba(n *graph.Mamba, h [][]float64) [][]float64 {
	dim, size, values := int(n.HeadDim), int(n.State), int(n.Values())
	var mixed, c, steps, out [][]float64
	for t := range h {
		mixed = append(mixed, r.mul(&n.XBC, 0, h[t]))
		m := r.convolve(n.Conv, n.ConvBias, int(n.Kernel), mixed)
		for i := range m {
			m[i] = activate(graph.SiLU, m[i])
		}
		step := r.mul(&n.DT, 0, h[t])
		for a := range step {
			step[a] = math.Max(math.Log1p(math.Exp(step[a]+r.weights[n.DTBias][a])), float64(n.MinStep))
			if n.MaxStep > 0 {
				step[a] = math.Min(step[a], float64(n.MaxStep))
			}
		}
		c, steps = append(c, m), append(steps, step)
		y, z := make([]float64, values), r.mul(&n.Z, 0, h[t])
		for a := range int(n.Heads) {
			decay := r.weights[n.Decay][a]
			if n.DecayLog {
				decay = -math.Exp(decay)
			}
			b := values + a/(int(n.Heads)/int(n.Groups))*size
			query, since := b+int(n.Groups)*size, 0.0
			for i := a * dim; i < (a+1)*dim; i++ {
				y[i] = r.weights[n.Skip][a] * m[i]
			}
			for s := t; s >= 0; s-- {
				met := 0.0
				for i := range size {
					met += m[query+i] * c[s][b+i]
				}
				for i := a * dim; i < (a+1)*dim; i++ {
					y[i] += math.Exp(decay*since) * steps[s][a] * met * c[s][i]
				}
				since += steps[s][a]
			}
		}
		for i := range y {
			y[i] *= activate(graph.SiLU, z[i])
		}
		out = append(out, r.mul(&n.Out, 0, r.groupNorm(n.Norm, int(n.Groups), y)))
	}
	return out
}

// groupNorm is an RMS norm of each of some runs, with weights of their own.
func (r *reference) groupNorm(n *graph.Norm, groups int, x []float64) []float64 {
	if n == nil {
		return x
	}
	out, each := make([]float64, len(x)), len(x)/groups
	for i := range x {
		square := 0.0
		for _, v := range x[i/each*each : i/each*each+each] {
			square += v * v / float64(each)
		}
		out[i] = x[i] / math.Sqrt(square+float64(n.Eps)) * (r.weights[n.Weight][i] + float64(n.Offset)) * float64(n.Factor())
	}
	return out
}

// unit returns x divided by its length.
func unit(x []float64, eps float32) []float64 {
	sum := float64(eps)
	for _, v := range x {
		sum += v * v
	}
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v / math.Sqrt(sum)
	}
	return out
}
